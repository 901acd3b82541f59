"""Celery with a CometMQ cluster as its broker: a worker as a process, results by rpc://."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq.testing import SyncCluster

WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster() as running:
        yield running


@pytest.fixture(scope="module")
def program(cluster: SyncCluster) -> Iterator[Any]:
    os.environ["BROKER"] = f"cometmq://{cluster.namesrv}"
    from tests.kombu import celery_app

    yield celery_app
    celery_app.app.close()


@contextmanager
def worker(cluster: SyncCluster, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "-A", "tests.kombu.celery_app", "worker", "-c", "1", "-l", "info"]
    environment = {**os.environ, "BROKER": f"cometmq://{cluster.namesrv}"}
    with open(folder / "worker.log", "ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            assert process.wait(WAIT_S) in (0, -signal.SIGKILL), (folder / "worker.log").read_text()


@pytest.mark.mission("DU-07")
def test_tasks_run_are_tried_again_wait_for_their_time_and_answer(
    cluster: SyncCluster, program: Any, tmp_path: Path
) -> None:
    with worker(cluster, tmp_path):
        results = [program.add.delay(number, number) for number in range(20)]
        assert [result.get(timeout=WAIT_S) for result in results] == [2 * number for number in range(20)]
        assert program.third_time.delay().get(timeout=WAIT_S) == 2
        began_s = time.time()
        assert program.add.apply_async((1, 1), countdown=1).get(timeout=WAIT_S) == 2
        assert time.time() - began_s >= 1
        (answer,) = program.app.control.ping(timeout=WAIT_S, limit=1)
        assert list(answer.values()) == [{"ok": "pong"}]


@pytest.mark.mission("DU-07")
def test_a_task_of_a_killed_worker_is_run_by_the_next(cluster: SyncCluster, program: Any, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    result = program.slow_once.delay(str(flag))
    with worker(cluster, tmp_path) as first:
        end_s = time.monotonic() + WAIT_S
        while not (flag.exists() and flag.read_text()):
            assert time.monotonic() < end_s, (tmp_path / "worker.log").read_text()
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(WAIT_S)
    with worker(cluster, tmp_path):
        assert result.get(timeout=WAIT_S) == "second"
