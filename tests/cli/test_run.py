"""`cometmq run`: push consumers of a module, as processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq.testing import SyncCluster

PROGRAM = """
import os
from pathlib import Path
from cometmq import PushConsumer, StartFrom

app = PushConsumer("runners", start=StartFrom.FIRST, first_pull_delay=0.01)

@app.on("jobs")
async def handle(job: str) -> None:
    with open(Path({out!r}), "a") as file:
        file.write(f"VERSION {{job}} {{os.getpid()}}\\n")
"""
WAIT_S = 60.0


@pytest.fixture(scope="module")
def jobs() -> Iterator[SyncCluster]:
    with SyncCluster(topics=["jobs"], queues=4) as cluster:
        yield cluster


@contextmanager
def running(cluster: SyncCluster, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "cometmq.cli.main", "run", *arguments, "--namesrv", cluster.namesrv]
    log = folder / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(command, cwd=folder, stderr=file, stdout=file, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(WAIT_S)


def until(done: Callable[[], object], process: subprocess.Popen[str], log: Path) -> None:
    end_s = time.monotonic() + WAIT_S
    while not done():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end_s, log.read_text()
        time.sleep(0.05)


def lines(out: Path) -> list[list[str]]:
    return [line.split() for line in out.read_text().splitlines()] if out.exists() else []


def written(folder: Path, version: str = "1") -> Path:
    out = folder / "out"
    (folder / "shop.py").write_text(PROGRAM.format(out=str(out)).replace("VERSION", version))
    return out


@pytest.mark.mission("DU-06")
def test_two_workers_share_the_messages_and_end_in_order(jobs: SyncCluster, tmp_path: Path) -> None:
    out = written(tmp_path)
    with running(jobs, tmp_path, "shop:app", "--workers", "2") as process:

        def is_shared() -> bool:
            with jobs.client() as client, client.producer("pg") as producer:
                for queue in producer.queues("jobs"):
                    producer.send("jobs", b"x", queue=queue)
            return len({line[2] for line in lines(out)}) == 2

        until(is_shared, process, tmp_path / "log")
        pids = {int(line[2]) for line in lines(out)}
        killed = pids.pop()
        os.kill(killed, signal.SIGKILL)

        def is_replaced() -> bool:
            with jobs.client() as client, client.producer("pg") as producer:
                for queue in producer.queues("jobs"):
                    producer.send("jobs", b"again", queue=queue)
            return len({int(line[2]) for line in lines(out)} - {killed}) == 2

        until(is_replaced, process, tmp_path / "log")
        process.terminate()
        assert process.wait(WAIT_S) == 0, (tmp_path / "log").read_text()


def test_a_change_of_the_module_is_run(jobs: SyncCluster, tmp_path: Path) -> None:
    out = written(tmp_path, "old")
    with running(jobs, tmp_path, "shop", "--reload") as process:

        def has(version: str) -> bool:
            with jobs.client() as client, client.producer("pg") as producer:
                producer.send("jobs", b"x")
            return any(line[0] == version for line in lines(out))

        until(lambda: has("old"), process, tmp_path / "log")
        (tmp_path / "shop.py").write_text("def broken(")
        until(lambda: "SyntaxError" in (tmp_path / "log").read_text(), process, tmp_path / "log")
        written(tmp_path, "new")
        until(lambda: has("new"), process, tmp_path / "log")


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", "nowhere:app", "there is no module nowhere in"),
        ("", "shop", "shop:app is nothing, not a PushConsumer"),
        ("app = 3", "shop:app", "shop:app is a int, not a PushConsumer"),
    ],
)
def test_what_cannot_be_run_is_one_line(jobs: SyncCluster, tmp_path: Path, text: str, place: str, said: str) -> None:
    (tmp_path / "shop.py").write_text(text)
    for more in ((), ("--workers", "2")):
        with running(jobs, tmp_path, place, *more) as process:
            assert process.wait(WAIT_S) == 3
        log = (tmp_path / "log").read_text()
        assert said in log
        assert "Traceback" not in log
