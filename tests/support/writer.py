"""A process that puts messages of every kind into a store until it is killed, and says which were acked.

    test ──> nursery (imports everything once) ──fork──> writer ──pipe──> test

The nursery makes a life cheap: a few milliseconds instead of a Python start. It collects a dead writer only when told
to, so the test may send its signals without fear of a process id that was given to somebody else.

A writer reports one JSON value a line on its pipe: "opening", "open", [serial, queue offset, physical offset, record
lengths] for each acked put, "closed". What it reported before it died can still be read. An ack is what a producer
would get: status OK, under SYNC_FLUSH told by the callback (unless the message does not want to wait for it).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from cometmq.clock import SystemClock
from cometmq.store.background import Background
from cometmq.store.disk import Disk, OsDisk
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.store import Store
from tests.support import kinds

REPO = Path(__file__).parents[2]
OUTSTANDING_MAX = 200
MESSAGES_MAX = 3000
LIFE_S_MAX = 60


@dataclass(frozen=True, slots=True)
class Order:
    """What a writer shall do. `die_at_call`: end by its own hand at this call to the disk, 0: live on."""

    directory: str
    first_serial: int
    seed: int = 0
    # Close the store after so many messages; -1: go on until killed.
    stop_after: int = -1
    die_at_call: int = 0
    store_host: str = kinds.V4_HOST.hex()
    options: dict[str, Any] = field(default_factory=dict)


# In the writer


class _Mortal:
    """An object whose n-th call, counted over all that were opened through it, kills the process: before or after."""

    def __init__(self, inner: object, countdown: list[int], before: bool) -> None:
        self._inner = inner
        self._countdown = countdown
        self._before = before

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **named: Any) -> Any:
            self._countdown[0] -= 1
            if self._countdown[0] <= 0 and self._before:
                _die()
            result = value(*args, **named)
            if self._countdown[0] <= 0:
                _die()
            return _Mortal(result, self._countdown, self._before) if name == "open" else result

        return call


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _disk(order: Order) -> Disk:
    if not order.die_at_call:
        return OsDisk()
    return cast(Disk, _Mortal(OsDisk(), [order.die_at_call], order.seed % 2 == 0))


class _Writer:
    def __init__(self, order: Order, report_to: int) -> None:
        self._order = order
        self._report_to = report_to
        self._chance = random.Random(order.seed)
        self._room = asyncio.Semaphore(OUTSTANDING_MAX)

    def report(self, value: object) -> None:
        os.write(self._report_to, json.dumps(value).encode() + b"\n")

    async def run(self) -> None:
        order = self._order
        self.report("opening")
        store = Store(
            StoreOptions(root_dir=order.directory, **order.options),
            _disk(order),
            SystemClock(),
            store_host=bytes.fromhex(order.store_host),
            is_batch_topic=kinds.is_batch_topic,
        )
        background = Background(store, asyncio.get_running_loop().call_soon_threadsafe)
        background.start()
        self.report("open")
        async with asyncio.timeout(LIFE_S_MAX):
            await self._write(store)
        background.stop()
        store.close()
        self.report("closed")

    async def _write(self, store: Store) -> None:
        serial = self._order.first_serial
        while serial - self._order.first_serial != self._order.stop_after:
            if serial - self._order.first_serial == MESSAGES_MAX:
                _die()
            if self._chance.random() < 0.1:
                await asyncio.sleep(self._chance.choice((0, 0, 0, 0.001, 0.004)))
            await self._room.acquire()
            plan = kinds.plan(serial)
            request = plan.request(wait=self._chance.random() < 0.95)
            result = plan.put(store, request)
            if result.status != PutStatus.OK:
                # The next segment is not ready yet, or an append took too long.
                self._room.release()
                await asyncio.sleep(0.002)
                continue
            told = self._teller(serial, result)
            if not store.put_waiting(request, result, told):
                told(PutStatus.OK)
            serial += 1
        for _ in range(OUTSTANDING_MAX):
            await self._room.acquire()

    def _teller(self, serial: int, result: PutResult) -> Callable[[int], None]:
        def told(status: int) -> None:
            self._room.release()
            if status == PutStatus.OK:
                self.report([serial, result.queue_offset, result.physical_offset, result.lengths])

        return told


def _live(order: Order, report_to: int) -> None:
    try:
        asyncio.run(_Writer(order, report_to).run())
    except BaseException:
        os.write(report_to, json.dumps({"error": traceback.format_exc()}).encode() + b"\n")
        os._exit(1)
    os._exit(0)


# In the nursery


def _serve(channel: socket.socket) -> None:
    pid = 0
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 65_536, 1)
        if not data:
            return
        if descriptors:
            pid = os.fork()
            if pid == 0:
                channel.close()
                _live(Order(**json.loads(data)), descriptors[0])
            os.close(descriptors[0])
            channel.send(str(pid).encode())
        else:
            _, status = os.waitpid(pid, 0)
            channel.send(str(os.waitstatus_to_exitcode(status)).encode())


# In the test


class Ack:
    """What a producer was told about one put."""

    def __init__(self, report: list[Any]) -> None:
        self.plan = kinds.plan(report[0])
        self.queue_offset: int = report[1]
        self.physical_offsets: list[int] = [report[2]]
        lengths: list[int] = report[3]
        for length in lengths[:-1]:
            self.physical_offsets.append(self.physical_offsets[-1] + length)

    def records(self) -> list[tuple[str, int]]:
        """Key and physical offset of each record."""
        keys = [key for key, _ in self.plan.members] if self.plan.is_batch else [f"K{self.plan.serial}"]
        return list(zip(keys, self.physical_offsets, strict=True))


def acks_of(reports: list[Any]) -> list[Ack]:
    return [Ack(report) for report in reports if isinstance(report, list)]


class Nursery:
    """Starts writers, one at a time. Use it as a context manager."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        source = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPO / "src"), str(REPO)]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.writer", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": source},
        )
        theirs.close()

    def start(self, order: Order) -> Life:
        reports, report_to = os.pipe()
        socket.send_fds(self._channel, [json.dumps(asdict(order)).encode()], [report_to])
        os.close(report_to)
        return Life(int(self._channel.recv(100)), reports, self._channel)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_error: object) -> None:
        self._channel.close()
        self._process.wait(10)


class Life:
    """One writer, from its start to its end."""

    def __init__(self, pid: int, reports: int, channel: socket.socket) -> None:
        self.pid = pid
        self.status: int | None = None
        self._reports = reports
        self._channel = channel
        self._rest = b""

    def fileno(self) -> int:
        return self._reports

    def read(self) -> list[Any] | None:
        """The next reports, at least one; None: there are no more, it is dead."""
        lines: list[bytes] = []
        while not lines:
            data = os.read(self._reports, 65_536)
            if not data:
                return None
            *lines, self._rest = (self._rest + data).split(b"\n")
        values = [json.loads(line) for line in lines]
        for value in values:
            if isinstance(value, dict):
                raise AssertionError(f"the writer failed:\n{value['error']}")
        return values

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait for it; its exit status, negative for a signal. All reports must have been read."""
        if self.status is None:
            os.close(self._reports)
            self._channel.send(b"end")
            self.status = int(self._channel.recv(100))
        return self.status


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
