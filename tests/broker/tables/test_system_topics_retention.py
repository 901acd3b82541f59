"""What the broker keeps for itself goes with the log, like all messages; what still waits is written anew before."""

import asyncio
from pathlib import Path

from cometmq.broker.server import Broker
from cometmq.names import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRACE_TOPIC
from cometmq.store.fake_disk import FakeDisk
from tests.support.aio import run
from tests.support.brokers import Peer, running_broker, stored
from tests.support.timing import SteppingClock
from tests.support.transacting import ROLLBACK, end, send_half

START_MS = 1_700_000_000_000
HOUR_S = 3600
SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 2_000,
    "fileReservedTime": 50,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "messageDelayLevel": "1s 2s",
    "transactionOpBatchInterval": 100,
}


async def pass_hours(broker: Broker, clock: SteppingClock, hours: int) -> None:
    """An hour at a time, with what is due in it and what expires in it."""
    for _ in range(hours):
        clock.step_ms += HOUR_S * 1000
        for _ in range(10):
            clock.advance(0.1)
            await asyncio.sleep(0.001)  # threads report on the loop
        broker.store.retention.run_now()


async def fill(peer: Peer, clock: SteppingClock, count: int) -> None:
    body = bytes(1000)
    for _ in range(count):
        await peer.send("Plain", body)
        await peer.send("Later", body, properties={"DELAY": "1"})
        await peer.send("Later", body, properties={"TIMER_DELAY_SEC": "2"})
        await peer.send(TRACE_TOPIC, body)
        await end(peer, await send_half(peer, clock, body=body), ROLLBACK)
        clock.advance(0.2)


def first_places(broker: Broker) -> dict[str, tuple[int, int]]:
    """Of each queue that has messages: the first offset, and where its message is."""
    found = {}
    for topic in ("Plain", "Later", SCHEDULE_TOPIC, TIMER_TOPIC, TRACE_TOPIC, HALF_TOPIC, OP_TOPIC):
        low, high = broker.store.queue_bounds(topic, 0)
        entries = broker.store.queue_entries(topic, 0, low, 1)
        found[topic] = (low, entries[0][0] if entries and low < high else -1)
    return found


def test_queues_of_system_topics_expire_with_the_log_and_waiting_timers_do_not(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SteppingClock(START_MS)
        disk = FakeDisk(now_ms=clock.now_ms)
        async with running_broker(tmp_path, clock, disk, **SMALL) as broker, Peer.of(broker) as peer:
            await peer.send("Far", b"far", properties={"TIMER_DELAY_SEC": str(71 * HOUR_S)})
            await fill(peer, clock, 60)
            await pass_hours(broker, clock, 40)
            await fill(peer, clock, 60)
            await pass_hours(broker, clock, 20)
            log_min = broker.store.log.min_offset
            assert log_min > 200_000, "the first half of the log is gone"
            for topic, (low, place) in first_places(broker).items():
                assert low > 0, f"{topic} begins where it always did"
                assert place >= log_min, f"{topic} points to what is gone"
            assert stored(broker, "Far") == []
            await pass_hours(broker, clock, 12)
            assert [message.body for message in stored(broker, "Far")] == [b"far"]

    run(main(), timeout_s=60)
