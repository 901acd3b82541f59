"""Groups that read too far behind are stopped until an operator lets them go on."""

from pathlib import Path

import pytest

from cometmq.clock import ManualClock
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.codes import Request, Response
from tests.broker.running import Running, Session, running_broker

MIB = 1 << 20
THREE_MINUTES_S = 180.0


async def two_readers(running: Running, session: Session) -> None:
    """2 MiB in one queue, which `laggard` reads from the start and `quick` at the end; both make their groups."""
    for _ in range(21):
        assert (await session.send_message("T", b"x" * 100_000)).code == Response.SUCCESS
    assert (await session.pull("T", 0, group="laggard", count=1)).code == Response.SUCCESS
    assert (await session.pull("T", 20, group="quick", count=1)).code == Response.SUCCESS
    assert running.broker.rooms.shared.stats.bytes_behind()["laggard"] > 2 * MIB


# All of it in one file of the log: nothing here waits for a disk that others keep busy.
SETTINGS = {
    "consumerFallbehindThreshold": MIB,
    "mappedFileSizeCommitLog": 8 * MIB,
    "serverChannelMaxIdleTimeSeconds": 100_000,
}


@pytest.mark.mission("PR-03")
async def test_a_group_too_far_behind_is_stopped_after_three_minutes_and_stays_so(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, disableConsumeIfConsumerReadSlowly=True, **SETTINGS) as running:
        session = await running.connect()
        await two_readers(running, session)
        clock.advance(THREE_MINUTES_S - 1)
        assert (await session.pull("T", 1, group="laggard", count=1)).code == Response.SUCCESS
        clock.advance(1)
        refused = await session.pull("T", 2, group="laggard", count=1)
        assert refused.code == Response.NO_PERMISSION
        assert "laggard" in (refused.remark or "")
        assert (await session.pull("T", 20, group="quick", count=1)).code == Response.SUCCESS

    async with running_broker(tmp_path, clock, **SETTINGS) as running:
        session = await running.connect()
        assert (await session.pull("T", 2, group="laggard", count=1)).code == Response.NO_PERMISSION
        enabled = SubscriptionGroupConfig(group_name="laggard", consume_enable=True)
        answer = await session.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, enabled)
        assert answer.code == Response.SUCCESS
        assert (await session.pull("T", 2, group="laggard", count=1)).code == Response.SUCCESS


@pytest.mark.mission("PR-03")
async def test_no_group_is_stopped_unless_it_is_switched_on(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, **SETTINGS) as running:
        session = await running.connect()
        await two_readers(running, session)
        clock.advance(2 * THREE_MINUTES_S)
        assert (await session.pull("T", 1, group="laggard", count=1)).code == Response.SUCCESS
        await session.ask(Request.UPDATE_BROKER_CONFIG, b"disableConsumeIfConsumerReadSlowly=true")
        clock.advance(THREE_MINUTES_S)
        assert (await session.pull("T", 1, group="laggard", count=1)).code == Response.NO_PERMISSION
