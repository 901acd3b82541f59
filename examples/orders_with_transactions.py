"""Orders in SQLite and messages about them: both or neither.

    begin         the message is stored, invisible
    INSERT        the order is in the database
    leave         the message is committed and seen by consumers

If the program dies between the last two, nobody told the broker. It asks a producer of the group some time later, and
`was_saved` answers from the database: the one place that knows.
"""

import asyncio
import os
import sqlite3
import tempfile
from pathlib import Path

from cometmq import Client, Message, StartFrom, Tx, json_codec

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")
TOPIC = "example-orders"


class OutOfStock(Exception):
    pass


class Shop:
    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, check_same_thread=False)
        self.database.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL)")

    def save(self, order_id: str, item: str) -> None:
        if item == "unicorn":
            raise OutOfStock(item)
        with self.database:
            self.database.execute("INSERT INTO orders VALUES (?, ?)", (order_id, item))

    def has(self, order_id: str) -> bool:
        return self.database.execute("SELECT 1 FROM orders WHERE id = ?", (order_id,)).fetchone() is not None

    def was_saved(self, message: Message[dict[str, str]]) -> Tx:
        """Asked by a broker about a transaction that nobody ended. Maybe it is still running: then not yet."""
        return Tx.COMMIT if self.has(message.value["id"]) else Tx.UNKNOWN


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        shop = Shop(Path(directory) / "shop.db")
        async with Client(NAMESRV) as client, client.admin() as admin:
            await admin.create_topic(TOPIC, queues=4)
            async with client.transaction_producer("example-shop", check=shop.was_saved, codec=json_codec) as producer:
                for number, item in enumerate(["book", "unicorn", "lamp"]):
                    order = {"id": f"order-{number}", "item": item}
                    try:
                        async with producer.begin(TOPIC, order, keys=[order["id"]]):
                            shop.save(order["id"], order["item"])
                    except OutOfStock:
                        print(f"no {item}: neither order nor message")
            async with client.consumer("example-billing", TOPIC, codec=json_codec, start=StartFrom.FIRST) as consumer:
                billed = 0
                async for message in consumer.iter(timeout=30.0):
                    print(f"bill {message.value['id']} for a {message.value['item']}")
                    assert shop.has(message.value["id"]), "a message without its order"
                    billed += 1
                    if billed == 2:
                        break


if __name__ == "__main__":
    asyncio.run(main())
