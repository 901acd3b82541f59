"""Promises of the store as clients of a broker see them: size limits, a failing disk, the pool that is not there."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.store.fakedisk import FakeDisk
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import request
from tests.broker.processes import READY, broker_process, small
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker, send_request, stored

LIMIT_BYTES = 4 << 20


@pytest.mark.mission("ST-06")
def test_a_body_of_4_mib_is_taken_and_one_byte_more_only_after_the_limit_was_raised(tmp_path: Path) -> None:
    async def main() -> None:
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

    run(main())


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

    acked = [run(main(nth)) for nth in range(1, 51)]
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


@pytest.mark.mission("MF-04")
def test_a_broker_that_is_asked_for_a_transient_pool_starts_and_says_that_there_is_no_need(tmp_path: Path) -> None:
    with broker_process(tmp_path, transientStorePoolEnable="true") as process:
        assert "transientStorePoolEnable" in process.log
        assert "not needed" in process.log
        assert process.stop() == 0
