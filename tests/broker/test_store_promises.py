"""Promises of the store as clients of a broker see them: size limits, a failing disk, the pool that is not there."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.store.fake_disk import FakeDisk
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import request
from tests.broker.processes import READY, broker_process, small
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker, send_request, stored
from tests.support.length import by_length

LIMIT_BYTES = 4 << 20


@pytest.mark.mission("ST-06")
async def test_a_body_of_4_mib_is_taken_and_one_byte_more_only_after_the_limit_was_raised(tmp_path: Path) -> None:
    async with running_broker(tmp_path, mappedFileSizeCommitLog=16 << 20) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        largest, too_large = bytes(LIMIT_BYTES), bytes(LIMIT_BYTES + 1)
        assert (await peer.ask(send_request("TopicA", largest))).code == Response.SUCCESS
        end = broker.store.log.max_offset
        refused = await peer.ask(send_request("TopicA", too_large))
        assert refused.code == Response.MESSAGE_ILLEGAL
        assert "maxMessageSize=4194304" in (refused.remark or "")
        assert broker.store.log.max_offset == end
        change = request(Request.UPDATE_BROKER_CONFIG, {}, b"maxMessageSize=5000000\n")
        assert (await peer.ask(change)).code == Response.SUCCESS
        assert (await peer.ask(send_request("TopicA", too_large))).code == Response.SUCCESS
        assert [len(message.body) for message in stored(broker, "TopicA")] == [LIMIT_BYTES, LIMIT_BYTES + 1]


@pytest.mark.repeated
@pytest.mark.mission("FL-06")
def test_after_a_failed_flush_no_send_is_acked_and_reads_go_on(tmp_path: Path) -> None:
    async def main(nth: int) -> int:
        disk = FakeDisk()
        async with (
            running_broker(tmp_path / str(nth), None, disk, flushDiskType="SYNC_FLUSH") as broker,
            Peer.of(broker) as peer,
        ):
            add_topic(broker, "TopicA")
            disk.fail("sync", nth)
            codes = [(await peer.ask(send_request("TopicA", b"%d" % number))).code for number in range(60)]
            assert broker.store.failure is not None, f"flush {nth} did not fail in 60 sends"
            acked = codes.index(Response.SERVICE_NOT_AVAILABLE)
            assert set(codes[:acked]) <= {Response.SUCCESS}
            assert set(codes[acked:]) == {Response.SERVICE_NOT_AVAILABLE}
            readable = [message.body for message in await peer.pull_messages("TopicA")] if acked else []
            assert readable == [b"%d" % number for number in range(min(acked, 32))]
            return acked

    acked = [run(main(nth)) for nth in range(1, 51, by_length(5, 1, 1))]
    assert max(acked) > 10, "the failures came at different moments"


FAILING = """
import errno, os, sys
from cometmq.cli.main import main
from cometmq.store.disk import OsFile

calls = 0
def sync(file):
    global calls
    calls += 1
    if calls > 3:
        raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)

OsFile.sync = sync
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.mission("FL-06")
def test_a_broker_whose_disk_failed_says_so_in_its_log_and_by_its_exit_code(tmp_path: Path) -> None:
    arguments = ["broker", *small(tmp_path, flushDiskType="SYNC_FLUSH")]
    with (tmp_path / "stderr").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", FAILING, *arguments], stdout=subprocess.PIPE, stderr=log, text=True,
            env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
    try:
        assert child.stdout is not None
        ready = READY.fullmatch(child.stdout.readline())
        assert ready, (tmp_path / "stderr").read_text()

        async def send() -> set[int]:
            async with Peer.at(ready[2]) as peer:
                return {(await peer.ask(send_request("TopicA", b"x"))).code for _ in range(20)}

        assert Response.SERVICE_NOT_AVAILABLE in run(send())
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 5
    finally:
        child.kill()
        child.communicate()
    text = (tmp_path / "stderr").read_text()
    assert os.strerror(errno.EIO) in text
    assert "read-only" in text
    assert "check the device" in text


# From the moment on at which `<store>.broken` is there, no call that reaches the device of the store succeeds.
DEAD = """
import builtins, errno, io, os, sys
from cometmq.cli.main import main

store = sys.argv.pop(1)
def is_dead():
    return os.access(store + ".broken", os.F_OK)
calls = [name for name in sys.argv.pop(1).split(",") if hasattr(os, name)]

def dying(name):
    real = getattr(os, name)
    def call(first, *rest, **more):
        about = first if isinstance(first, (str, bytes, os.PathLike)) else ""
        if (not about or str(about).startswith(store)) and is_dead():
            raise OSError(errno.EIO, os.strerror(errno.EIO), about or None)
        return real(first, *rest, **more)
    setattr(os, name, call)

for name in calls:
    dying(name)

real_open = builtins.open
def open_file(path, *rest, **more):
    if isinstance(path, (str, os.PathLike)) and str(path).startswith(store) and is_dead():
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
    return real_open(path, *rest, **more)
builtins.open = io.open = open_file
sys.exit(main(sys.argv[1:]))
"""
WRITING = "fdatasync,fsync,pwrite,ftruncate,posix_fallocate,unlink,replace,rename,mkdir,rmdir,open"
ALL = f"{WRITING},pread,statvfs,scandir,listdir,stat"


@pytest.mark.mission("FL-06")
@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("calls", ["fdatasync,fsync", WRITING, ALL], ids=["syncs", "writes", "everything"])
def test_a_broker_whose_disk_is_dead_stops_with_one_line_and_its_code(tmp_path: Path, mode: str, calls: str) -> None:
    store = tmp_path / "store"
    arguments = ["broker", *small(tmp_path, flushDiskType=mode, flushIntervalCommitLog=20, flushDelayOffsetInterval=100,
                                  flushConsumerOffsetInterval=100, timerFlushIntervalMs=100,
                                  flushCommitLogThoroughInterval=50)]  # fmt: skip
    with (tmp_path / "stderr").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", DEAD, str(store), calls, *arguments], stdout=subprocess.PIPE, stderr=log, text=True,
            env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
    try:
        assert child.stdout is not None
        ready = READY.fullmatch(child.stdout.readline())
        assert ready, (tmp_path / "stderr").read_text()

        async def use() -> list[str | None]:
            async with Peer.at(ready[2]) as peer:
                for number in range(20):
                    assert (await peer.send("TopicA", b"%d" % number)).code == 0
                await peer.send("TopicA", b"later", properties={"TIMER_DELAY_MS": "60000"})
                await peer.heartbeat("Group", topics={"TopicA": "*"})
                (tmp_path / "store.broken").touch()
                refusals: list[str | None] = []
                async with asyncio.timeout(30):
                    while not refusals:
                        answers = [await peer.send("TopicA", b"x") for _ in range(20)]
                        refusals = [it.remark for it in answers if it.code == Response.SERVICE_NOT_AVAILABLE]
                return refusals

        refusals = run(use())
        child.send_signal(signal.SIGTERM)
        code = child.wait(30)
    finally:
        child.kill()
        child.communicate()
    text = (tmp_path / "stderr").read_text()
    assert code == 5, text[-6000:]
    assert "Traceback" not in text, text[-6000:]
    last = text.splitlines()[-1]
    assert last.startswith("cometmq broker: the disk failed while running: "), last
    for remark in refusals:
        assert os.strerror(errno.EIO) in (remark or ""), f"a refusal names its cause: {refusals[:3]}"


@pytest.mark.mission("MF-04")
def test_a_broker_that_is_asked_for_a_transient_pool_starts_and_says_that_there_is_no_need(tmp_path: Path) -> None:
    with broker_process(tmp_path, transientStorePoolEnable="true") as process:
        assert "transientStorePoolEnable" in process.log
        assert "not needed" in process.log
        assert process.stop() == 0
