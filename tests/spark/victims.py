"""What `kills` may kill: a driver with all that it started, a worker of Spark's, a broker. Each is a process.

Driver     takes jobs from its input, one JSON a line, and answers each with a line; a session of its own, so that
           nothing that it started is forgotten
Servers    a name server and two brokers, which keep directory and port through a kill
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from cometmq import Client
from cometmq.client.messages import Message
from tests.compat.harness.servers import CometBroker, CometNameServer, python_path

ROOT: Final = Path(__file__).parents[2]
BROKERS: Final = ("broker-a", "broker-b")
GONE_S: Final = 60.0


class Driver:
    """A driver in a process of its own, and what it answers."""

    def __init__(self, folder: Path) -> None:
        env = os.environ | {"COMETMQ_FAULTS": str(folder), "PYTHONPATH": f"{ROOT}:{python_path()}"}
        self._log = (folder / "driver.log").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.kills", "--driver"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=env, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        self.answers: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("ready", "done", "failed")):  # Spark says things there, too
                self.answers.put(line.strip())
        self.answers.put("dead")

    def ask(self, job: dict[str, str]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then it is dead, which is an answer
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()

    def workers(self) -> list[int]:
        """Python processes of the executor: those that have tasks or wait for one, and the one that forks them."""
        return [pid for pid in session_of(self.pid) if "pyspark.daemon" in command_of(pid)]

    def kill(self) -> None:
        """With all that it started: nothing of it may send after this."""
        give_up_s = time.monotonic() + GONE_S
        while pids := [self.pid, *session_of(self.pid)] if self.process.poll() is None else session_of(self.pid):
            for pid in pids:
                kill(pid)
            self.process.wait(GONE_S)
            assert time.monotonic() < give_up_s, f"processes {pids} of driver {self.pid} do not die"
        self._close()

    def stop(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.kill()

    def _close(self) -> None:
        self._reader.join(30)
        for file in (self.process.stdin, self.process.stdout, self._log):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()


class Servers:
    """A cluster of two brokers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nameserver = CometNameServer(folder)
        self.brokers: list[CometBroker] = []

    @property
    def namesrv(self) -> str:
        return self._nameserver.address

    def start(self) -> None:
        self._nameserver.start()
        # Under load a broker may stand still for seconds, which is not what is tested here.
        settings = {"brokerFastFailureEnable": False}
        self.brokers = [CometBroker(self._folder, self.namesrv, settings, name=name) for name in BROKERS]
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def stop(self) -> None:
        for server in (*self.brokers, self._nameserver):
            server.close()

    def create_topic(self, topic: str, queues: int) -> None:
        async def main() -> None:
            async with Client(self.namesrv) as client, client.admin() as admin:
                await admin.create_topic(topic, queues=queues)

        asyncio.run(main())

    def messages(self, topic: str) -> list[Message[bytes]]:
        async def main() -> list[Message[bytes]]:
            async with Client(self.namesrv) as client, client.admin() as admin:
                queues = await admin.topic_queues(topic)
                return [message for queue in queues async for message in admin.read(queue)]

        return asyncio.run(main())


def kill_broker(broker: CometBroker) -> str:
    """SIGKILL; what there is to see of it. It is not started again here."""
    pid = broker.pid
    broker.kill()
    assert broker.exit_status == -signal.SIGKILL
    assert (broker.store / "abort").read_text() == str(pid), "it had no time to tidy up"
    return f"{broker.broker_name} of port {broker.port}, process {pid}"


def kill_worker(pid: int) -> str:
    told = command_of(pid)
    assert "pyspark" in told, f"process {pid} is no worker of Spark's: {told}"
    kill(pid)
    give_up_s = time.monotonic() + GONE_S
    while is_alive(pid):
        assert time.monotonic() < give_up_s, f"worker {pid} does not die"
        time.sleep(0.01)
    return f"worker process {pid}"


def session_of(leader: int) -> list[int]:
    """The living processes of a session but for its leader."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != leader:
            state = _stat(int(entry))
            if state and state[0] != "Z" and int(state[3]) == leader:
                found.append(int(entry))
    return found


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and so on; nothing of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    state = _stat(pid)
    return bool(state) and state[0] != "Z"


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
