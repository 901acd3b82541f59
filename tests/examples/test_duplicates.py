"""Both recipes against duplicates, with consumers that are killed in the middle of their work."""

import os
import random
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cometmq import json_codec
from cometmq.sync import Client
from cometmq.testing import SyncCluster
from tests.support.length import by_length

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "effects_once.py"
TOPIC = "example-payments"
KILLS = by_length(8, 20, 100)
MESSAGES = 400
ACCOUNTS = 10


def start(database: Path, cluster: SyncCluster) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(database)],
        env={**os.environ, "COMETMQ_NAMESRV": cluster.namesrv},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )


def handled(program: "subprocess.Popen[str]", count: int, limit_s: float) -> int:
    """Lines that the program prints, up to so many; fewer if it has nothing more to do."""
    assert program.stdout is not None
    seen = 0
    deadline = time.monotonic() + limit_s
    while seen < count and time.monotonic() < deadline:
        if select.select([program.stdout], [], [], 0.05)[0]:
            if not program.stdout.readline():
                break
            seen += 1
    return seen


def send_all(cluster: SyncCluster) -> None:
    """Each message names its account, an amount and a version."""
    cluster.create_topic(TOPIC, queues=4)
    with Client(cluster.namesrv) as client, client.producer("example-payers", codec=json_codec) as producer:
        for number in range(MESSAGES):
            value = {"amount": number, "version": number}
            producer.send_soon(TOPIC, value, keys=[f"account-{number % ACCOUNTS}"])
        producer.flush()


def rows(database: Path, query: str) -> list[Any]:
    with sqlite3.connect(database) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.mission("AD-01")
@pytest.mark.repeated
def test_each_effect_happens_once_although_the_consumer_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    database = tmp_path / "effects.db"
    count = 0
    with SyncCluster() as cluster:
        send_all(cluster)
        for _ in range(KILLS):
            program = start(database, cluster)
            try:
                count += handled(program, chance.randrange(1, 60), 30)
            finally:
                program.send_signal(signal.SIGKILL)
                program.communicate()
        program = start(database, cluster)
        try:
            while rows(database, "SELECT count(*) FROM payments") != [(MESSAGES,)]:
                assert program.poll() is None
                count += handled(program, MESSAGES, 0.2)
        finally:
            program.kill()
            program.communicate()
    payments = rows(database, "SELECT account, amount FROM payments")
    wanted = [(f"account-{number % ACCOUNTS}", number) for number in range(MESSAGES)]
    assert sorted(payments, key=str) == sorted(wanted, key=str)
    last = {f"account-{account}": MESSAGES - ACCOUNTS + account for account in range(ACCOUNTS)}
    assert dict(rows(database, "SELECT account, amount FROM balances")) == last
    assert count > MESSAGES, "nothing came twice: the test shows nothing"


def test_the_page_shows_the_code_that_the_test_runs() -> None:
    page = (ROOT / "docs" / "duplicates.md").read_text()
    example = PROGRAM.read_text()
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        body = block.split("\n", 1)[1].strip("\n")
        assert body in example, f"docs/duplicates.md shows other code than {PROGRAM.name}"
