"""Hostile peers of replication: a fake replica at a real master, a fake master at a real replica.

A fake replica may get nothing acked that was not written to it, nor keep an honest one out. A fake master may not
bring a replica down, fill its memory, or get anything into its log that is no log.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from cometmq.wire.bodies import HaStatus
from cometmq.wire.codes import Request, Response
from tests.broker.processes import Process, broker_process
from tests.support.aio import run
from tests.support.brokers import Peer
from tests.support.length import SOAK

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")

LINKS = 640 if SOAK else 128
MIB = 1 << 20
GROWTH_MIB_MAX = 64
SYNC: dict[str, object] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 500}


def dial(port: int, receive_bytes: int = 0) -> socket.socket:
    link = socket.socket()
    if receive_bytes:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    link.settimeout(20)
    link.connect(("127.0.0.1", port))
    return link


def report(link: socket.socket, offset: int) -> None:
    with suppress(OSError):
        link.sendall(struct.pack(">q", offset))


async def log_end(peer: Peer) -> int:
    answer = await peer.call(Request.GET_BROKER_HA_STATUS)
    return HaStatus.decode(answer.body).master_commit_log_max_offset


def memory_mib(process: Process, name: str) -> float:
    found = re.search(rf"^{name}:\s*(\d+) kB", Path(f"/proc/{process.child.pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


# A fake replica


def test_what_was_not_written_to_a_replica_is_not_acked(tmp_path: Path) -> None:
    """It reads nothing and says again and again that it has the whole log."""

    async def main(process: Process) -> None:
        async with Peer.at(process.address) as peer:
            await peer.send("TopicA")
            with dial(process.port + 1, receive_bytes=4096) as liar:
                report(liar, 1)
                acked_bytes = 0
                for _ in range(40):
                    send = asyncio.create_task(peer.send("TopicA", bytes(MIB)))
                    while not send.done():
                        report(liar, await log_end(peer))
                        await asyncio.sleep(0.001)
                    if (await send).code == Response.SUCCESS:
                        acked_bytes += MIB
                # What the kernel has taken counts as written: nobody can know more.
                assert acked_bytes <= 10 * MIB, f"{acked_bytes // MIB} MiB were acked that nobody has read"
            answer = await peer.send("TopicA", bytes(MIB))
            assert answer.code == Response.SLAVE_NOT_AVAILABLE

    with broker_process(tmp_path, **SYNC, mappedFileSizeCommitLog=64 * MIB) as process:
        run(main(process), timeout_s=120)
        assert "nothing that it says is believed" in process.log


def test_saying_where_to_begin_acks_nothing(tmp_path: Path) -> None:
    """A new connection for each message, whose first report is the end of the log."""

    async def main(process: Process) -> None:
        async with Peer.at(process.address) as peer:
            await peer.send("TopicA")
            for _ in range(5):
                with dial(process.port + 1) as steady:
                    report(steady, 0)
                    await asyncio.sleep(0.05)
                    send = asyncio.create_task(peer.send("TopicA"))
                    while not send.done():
                        with dial(process.port + 1) as liar:
                            report(liar, await log_end(peer))
                            await asyncio.sleep(0.02)
                    assert (await send).code == Response.FLUSH_SLAVE_TIMEOUT

    with broker_process(tmp_path, **SYNC) as process:
        run(main(process), timeout_s=120)


@pytest.mark.parametrize("first", [b"", struct.pack(">q", 0), b"\0\0\0"], ids=["mute", "idle", "dripping"])
def test_idle_links_do_not_lock_a_replica_out(tmp_path: Path, first: bytes) -> None:
    async def main(master: Process) -> None:
        async with Peer.at(master.address) as peer:
            answer = await peer.send("TopicA")
            end_s = time.monotonic() + 30
            while answer.code != Response.SUCCESS:
                assert time.monotonic() < end_s, f"no ack with an honest replica: {answer.code}"
                await asyncio.sleep(0.1)
                answer = await peer.send("TopicA")

    with ExitStack() as stack:
        master = stack.enter_context(broker_process(tmp_path / "m", **SYNC))
        before_mib = memory_mib(master, "VmRSS")
        for _ in range(LINKS):
            stack.enter_context(dial(master.port + 1)).sendall(first)
        stack.enter_context(
            broker_process(
                tmp_path / "r", brokerRole="SLAVE", brokerId=1, haMasterAddress=f"127.0.0.1:{master.port + 1}"
            )
        )
        run(main(master), timeout_s=60)
        assert memory_mib(master, "VmHWM") - before_mib < GROWTH_MIB_MAX


# A fake master


def frame(offset: int, body: bytes, length: int | None = None) -> bytes:
    return struct.pack(">qi", offset, len(body) if length is None else length) + body


@contextmanager
def fake_master(say: Callable[[socket.socket, int], None]) -> Iterator[tuple[int, list[int]]]:
    """Its port, and the first reports of all that came. `say` gets each connection, and is over when that is closed."""
    reports: list[int] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                link, _ = listening.accept()
            except OSError:
                return
            with link, suppress(OSError):
                link.settimeout(30)
                reports.append(struct.unpack(">q", link.recv(8, socket.MSG_WAITALL))[0])
                say(link, reports[-1])
                while link.recv(4096):
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1], reports
    finally:
        listening.close()


def _drip(link: socket.socket, _: int) -> None:
    for byte in frame(0, b"", 1 << 20):
        link.sendall(bytes([byte]))
        time.sleep(0.01)


# A record that says to be longer than any log.
ENDLESS = struct.pack(">iI", 2**31 - 1, 0xDAA320A7) + bytes((1 << 16) - 8)
# These are taken as they are: a log may have damage in it, and keeps it.
TAKEN = ("garbage", "zeros", "endless record")

LIES: dict[str, Callable[[socket.socket, int], None]] = {
    "huge length": lambda link, begin: link.sendall(frame(begin, b"x" * 1000, 2**31 - 1)),
    "negative length": lambda link, begin: link.sendall(frame(begin, b"", -1)),
    "negative offset": lambda link, _: link.sendall(frame(-(2**62), b"x" * 100)),
    "huge offset": lambda link, _: link.sendall(frame(2**62, b"x" * 100)),
    "end of all offsets": lambda link, _: link.sendall(frame(2**63 - 1, b"x" * 100)),
    "offset within a segment": lambda link, _: link.sendall(frame(12_345, b"x" * 100)),
    "garbage": lambda link, begin: link.sendall(frame(begin, os.urandom(1 << 18)) * 4),
    "zeros": lambda link, begin: link.sendall(frame(begin, bytes(1 << 18))),
    "endless record": lambda link, begin: link.sendall(
        b"".join(frame(begin + at, ENDLESS) for at in range(0, 1 << 20, 1 << 16))
    ),
    "drip": _drip,
    "heartbeats": lambda link, begin: link.sendall(frame(begin, b"") * 100_000),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_replica_outlives_a_master_that_lies(tmp_path: Path, lie: str) -> None:
    async def look(process: Process) -> dict[str, str]:
        async with Peer.at(process.address) as peer:
            began_s = time.monotonic()
            answer = await peer.call(Request.GET_BROKER_RUNTIME_INFO)
            assert time.monotonic() - began_s < 5
            assert answer.code == 0
            return dict(re.findall(r'"(\w+)"\s*:\s*"([^"]*)"', answer.body.decode()))

    with fake_master(LIES[lie]) as (port, reports), broker_process(
        tmp_path, brokerRole="SLAVE", brokerId=1, haMasterAddress=f"127.0.0.1:{port}"
    ) as replica:
        before_mib = memory_mib(replica, "VmRSS")
        end_s = time.monotonic() + 20
        while not reports and time.monotonic() < end_s:
            time.sleep(0.01)
        assert reports, "the replica has never come"
        # The lie was sent on this connection or the replica has closed it: either way it has been looked at by then.
        for _ in range(20):
            found = run(look(replica))
        if lie not in TAKEN:
            assert found["commitLogMaxOffset"] == found["commitLogMinOffset"] == "0", f"this is in the log: {found}"
        assert memory_mib(replica, "VmHWM") - before_mib < GROWTH_MIB_MAX
        assert "Traceback" not in replica.log, replica.log[-3000:]
        assert replica.stop() == 0, replica.log[-3000:]
    with broker_process(tmp_path) as again:
        assert lie in TAKEN or run(look(again))["commitLogMaxOffset"] == "0"
