"""Cleaning on demand, and requests for what is not built."""

import time
from pathlib import Path

import pytest

from cometmq.broker.admin.maintenance import NOT_BUILT
from cometmq.clock import ManualClock
from cometmq.store.log.append import AppendRequest
from cometmq.wire.bodies import HaStatus
from cometmq.wire.codes import TIER, Request, Response
from tests.broker.running import running_broker
from tests.support.served import CODES


async def test_queues_of_topics_that_are_gone_are_removed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        store = running.broker.store
        await session.send_message("kept")
        for topic in ("unused", "%LMQ%light", "SCHEDULE_TOPIC_XXXX"):
            store.put(AppendRequest(topic, 0, b"x"))
        store.write_queues()
        assert (await session.ask(Request.CLEAN_UNUSED_TOPIC)).code == Response.SUCCESS
        assert store.queues.topics.keys() == {"kept", "%LMQ%light", "SCHEDULE_TOPIC_XXXX"}
        assert not (tmp_path / "store" / "consumequeue" / "unused").exists()


async def test_expired_segments_and_then_their_queue_files_are_removed(tmp_path: Path) -> None:
    noon = time.mktime((*time.localtime()[:3], 12, 0, 0, 0, 0, -1))
    later = ManualClock(int(noon + 10 * 86_400) * 1000)
    async with running_broker(tmp_path, later, fileReservedTime=72, mappedFileSizeConsumeQueue=100) as running:
        session = await running.connect()
        store = running.broker.store
        for _ in range(40):
            await session.send_message("T", b"x" * 100_000)
        store.flush_now()
        store.write_queues()
        directory = tmp_path / "store" / "consumequeue" / "T" / "0"
        assert len(list(directory.iterdir())) == 8
        assert store.retention.round() == 0  # not the hour
        assert (await session.ask(Request.DELETE_EXPIRED_COMMITLOG)).code == Response.SUCCESS
        assert store.retention.round() == 3
        assert len(list(directory.iterdir())) == 8
        assert (await session.ask(Request.CLEAN_EXPIRED_CONSUMEQUEUE)).code == Response.SUCCESS
        assert len(list(directory.iterdir())) == 2
        low = int((await session.ask(Request.GET_MIN_OFFSET, topic="T", queueId=0)).ext["offset"])
        assert low > 0
        assert (await session.pull("T", low)).code == Response.SUCCESS


async def test_a_master_without_replicas_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        await session.send_message("T")
        status = HaStatus.decode((await session.ask(Request.GET_BROKER_HA_STATUS)).body)
        assert (status.master, status.in_sync_slave_nums, status.ha_connection_info) == (True, 0, [])
        assert status.master_commit_log_max_offset == running.broker.store.log.max_offset > 0


@pytest.mark.parametrize("code", sorted(NOT_BUILT))
async def test_what_is_not_built_is_refused_by_name(tmp_path: Path, code: int) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        answer = await session.ask(code)
        assert answer.code == Response.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark is not None
        assert str(code) in answer.remark
        assert "not built here" in answer.remark


def test_only_requests_of_the_last_tier_are_refused_by_name() -> None:
    assert {TIER[code] for code in NOT_BUILT} == {"C"}
    assert NOT_BUILT.keys() <= CODES
