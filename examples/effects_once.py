"""Each effect once, although a message may come twice. Two recipes on SQLite; docs/duplicates.md explains them.

    idempotent    the effect can be repeated without harm: set the balance that the message names, do not add to it
    record        the id of every handled message is written down in the same transaction as its effect, and looked up
                  first; that needs a store that both share

Run as `python effects_once.py DATABASE`, it applies both to every message until it is killed; what it did is in the
database.
"""

import asyncio
import os
import sqlite3
import sys

from cometmq import Client, Message, StartFrom, json_codec

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")
TOPIC = "example-payments"

SCHEMA = """
CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, amount INTEGER NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS payments (account TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS handled (id TEXT PRIMARY KEY);
"""


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(SCHEMA)
    return database


def set_balance(database: sqlite3.Connection, message: Message[dict[str, int]]) -> None:
    """Idempotent: the message says what shall be, and how new that is. Twice is as good as once."""
    account, amount, version = message.keys[0], message.value["amount"], message.value["version"]
    with database:
        database.execute(
            "INSERT INTO balances VALUES (?, ?, ?) ON CONFLICT (account) DO UPDATE "
            "SET amount = excluded.amount, version = excluded.version WHERE excluded.version > balances.version",
            (account, amount, version),
        )


def pay_once(database: sqlite3.Connection, message: Message[dict[str, int]]) -> bool:
    """Record: the id and the effect are one transaction, so there is never one without the other."""
    with database:
        new = database.execute("INSERT OR IGNORE INTO handled VALUES (?)", (message.id,)).rowcount == 1
        if new:
            database.execute("INSERT INTO payments VALUES (?, ?)", (message.keys[0], message.value["amount"]))
    return new


async def consume(path: str) -> None:
    database = open_database(path)
    async with (
        Client(NAMESRV) as client,
        client.consumer("example-effects", TOPIC, codec=json_codec, start=StartFrom.FIRST) as consumer,
    ):
        async for message in consumer:
            set_balance(database, message)
            pay_once(database, message)
            print(f"handled {message.id}", flush=True)


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1]))
