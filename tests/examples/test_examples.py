"""Every example is run as a user runs it, against an embedded cluster."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.testing import SyncCluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster() as cluster:
        yield cluster


def run_example(name: str, cluster: SyncCluster) -> str:
    environment = {**os.environ, "COMETMQ_NAMESRV": cluster.namesrv}
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_orders_with_transactions(cluster: SyncCluster) -> None:
    out = run_example("orders_with_transactions.py", cluster)
    assert "no unicorn: neither order nor message" in out
    assert sorted(line for line in out.splitlines() if line.startswith("bill")) == [
        "bill order-0 for a book",
        "bill order-2 for a lamp",
    ]


@pytest.mark.mission("AD-08")
def test_the_order_of_every_key_is_kept_through_two_rebalances(cluster: SyncCluster) -> None:
    out = run_example("ordered_ledger.py", cluster).splitlines()
    assert len(out) == 8
    assert all("40 bookings in order" in line for line in out)
    assert any("'one', 'two'" in line for line in out), "no queue changed hands"


def test_work_queue(cluster: SyncCluster) -> None:
    out = run_example("work_queue.py", cluster)
    for line in ("a, try 1", "b, try 2", "c, try 3", "d, try 1", "dead letters: ['c', 'd']"):
        assert line in out
    assert "c, try 4" not in out
    assert "d, try 2" not in out
    assert out.count("c, try 1") == 2, "the replayed one is a new message"


def test_request_reply(cluster: SyncCluster) -> None:
    out = run_example("request_reply.py", cluster)
    assert "[1, 2, 3] -> 6" in out
    assert "[40, 2] -> 42" in out
    assert "nobody is there any more" in out


def test_replay_by_time(cluster: SyncCluster) -> None:
    assert "10 messages since" in run_example("replay_by_time.py", cluster)


def test_plain_script(cluster: SyncCluster) -> None:
    out = run_example("plain_script.py", cluster)
    assert sorted(line.split(",")[0] for line in out.splitlines() if line.startswith("got")) == [
        "got 0",
        "got 2",
        "got 4",
    ]


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"[{path.name}]({path.name})" in listed for path in EXAMPLES.glob("*.py"))
