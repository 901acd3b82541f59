"""Transactions over a socket: what is stored, who may end it, who is asked, what a restart remembers."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.broker.server import Broker
from cometmq.clock import ManualClock, ManualTimer
from cometmq.names import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.wire.bodies import HeartbeatData, ProducerData
from cometmq.wire.codes import Request, Response
from cometmq.wire.record.message import StoredMessage, decode_records
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker, stored
from tests.support.golden import golden_store
from tests.support.net import until
from tests.support.transacting import (
    COMMIT,
    GROUP,
    ROLLBACK,
    UNKNOWN,
    HalfSent,
    end,
    end_request,
    halves,
    killed,
    properties_of,
    questions,
    round_of,
    send_half,
    unique_ids,
)


def op_bodies(messages: list[StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


# Halves


@pytest.mark.mission("TX-02")
async def test_a_half_is_kept_out_of_sight_with_its_real_place(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        add_topic(broker, "Pay", queues=4)
        half = await send_half(peer, clock, queue_id=2, KEYS="k1", REAL_TOPIC="Elsewhere", REAL_QID="9")
        assert await peer.pull_messages("Pay", queue_id=2) == []
        (message,) = halves(broker)
        assert (message.queue_id, message.queue_offset) == (0, half.queue_offset)
        assert (message.physical_offset, message.sys_flag) == (half.physical_offset, 0)
        properties = properties_of(message)
        assert properties["REAL_TOPIC"] == "Pay"
        assert properties["REAL_QID"] == "2"
        assert properties["__transactionId__"] == half.unique_id == properties["UNIQ_KEY"]
        assert broker.rooms.transactions.transactions.counts.table["Pay"].count == 1


@pytest.mark.mission("TX-02")
async def test_halves_are_refused_where_they_are_switched_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path, rejectTransactionMessage=True) as broker, Peer.of(broker) as peer:
        answer = await peer.send("Pay", properties={"TRAN_MSG": "true", "PGROUP": GROUP})
        assert answer.code == Response.NO_PERMISSION
        assert "rejectTransactionMessage" in (answer.remark or "")
        assert halves(broker) == stored(broker, "Pay") == []


async def test_a_delay_counts_from_the_commit(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        half = await send_half(peer, clock, DELAY="1")
        assert len(halves(broker)) == 1
        clock.advance(3)
        assert await end(peer, half, COMMIT) == 0
        assert stored(broker, "Pay") == []
        clock.advance(2)
        (message,) = stored(broker, "Pay")
        assert message.sys_flag == COMMIT
        assert message.prepared_transaction_offset == half.physical_offset


# Ends


@pytest.mark.mission("TX-04")
async def test_a_committed_message_reaches_its_consumer_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        half = await send_half(peer, clock, queue_id=1, TAGS="X")
        assert await end(peer, half, COMMIT) == 0
        (message,) = await peer.pull_messages("Pay", queue_id=1, tags="X")
        assert message.body == b"money"
        assert (message.sys_flag, message.prepared_transaction_offset) == (COMMIT, half.physical_offset)
        kept = properties_of(halves(broker)[0])
        assert properties_of(message) == {
            name: value for name, value in kept.items() if name not in ("REAL_TOPIC", "REAL_QID")
        }
        assert properties_of(message)["TRAN_MSG"] == "true"
        assert broker.rooms.transactions.transactions.counts.table["Pay"].count == 0
        for _ in range(3):
            assert await round_of(peer, clock) == []
        assert len(stored(broker, "Pay", 1)) == 1


@pytest.mark.mission("TX-05")
async def test_a_rollback_only_removes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        half = await send_half(peer, clock)
        assert await end(peer, half, ROLLBACK) == 0
        assert await round_of(peer, clock) == []
        assert stored(broker, "Pay") == []
        (op,) = stored(broker, OP_TOPIC)
        assert (op.body, properties_of(op)) == (b"0,", {"TAGS": "d", "WAIT": "true"})


@pytest.mark.mission("TX-03")
async def test_each_reason_not_to_end_a_transaction(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        half = await send_half(peer, clock)
        other = await send_half(peer, clock)
        own_time = await send_half(peer, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
        plain = await peer.send("Pay")
        before = broker.store.log.max_offset

        assert await end(peer, HalfSent(0, half.physical_offset + 1, ""), COMMIT) == 1
        assert await end(peer, HalfSent(0, 1 << 40, ""), COMMIT) == 1
        assert await end(peer, HalfSent(0, -1, ""), COMMIT) == 1
        assert plain.code == 0
        plain_offset = other.physical_offset  # a message that is there, but under another queue offset
        assert await end(peer, HalfSent(half.queue_offset, plain_offset, ""), COMMIT) == 1
        assert await end(peer, half, COMMIT, producer_group="strangers") == 1
        assert await end(peer, half, ROLLBACK, producer_group="strangers") == 1
        clock.advance(10)
        assert await end(peer, own_time, COMMIT) == 0, "its time is just not over"
        late = await send_half(peer, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
        soon = await send_half(peer, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        clock.advance(6)
        assert await end(peer, soon, COMMIT) == 0, "no time of its own is shorter than the broker's"
        clock.advance(4.001)
        assert await end(peer, late, COMMIT) == Response.ILLEGAL_OPERATION == 604
        assert await end(peer, late, COMMIT, from_check=True) == 0

        refused = await peer.ask(end_request(half, COMMIT, producer_group="strangers"))
        assert "strangers" in (refused.remark or "")
        assert before <= broker.store.log.max_offset
        assert await end(peer, half, COMMIT) == 0, "whatever was refused before has changed nothing"
        assert half.unique_id in unique_ids(broker, "Pay")


@pytest.mark.mission("TX-03")
async def test_an_unknown_state_is_not_answered_and_leaves_nothing_waiting(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        half = await send_half(peer, clock)
        before = broker.store.log.max_offset
        for state in (UNKNOWN, 4, 99):
            unanswered = asyncio.create_task(peer.ask(end_request(half, state)))
            await peer.heartbeat()
            assert not unanswered.done()
            unanswered.cancel()
        assert broker.rooms.families["transaction"].waiting == 0
        assert broker.store.log.max_offset == before
        assert await end(peer, half, COMMIT) == 0


@pytest.mark.mission("TX-03")
async def test_a_replica_ends_nothing(tmp_path: Path) -> None:
    settings = {"brokerRole": "SLAVE", "brokerId": 1}
    async with running_broker(tmp_path, ManualClock(), **settings) as broker, Peer.of(broker) as peer:
        for state in (COMMIT, ROLLBACK, UNKNOWN):
            assert await end(peer, HalfSent(0, 0, ""), state) == Response.SLAVE_NOT_AVAILABLE


async def test_a_message_that_is_no_half_cannot_be_ended(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        half = await send_half(peer, clock)
        assert await end(peer, half, COMMIT) == 0
        (committed,) = stored(broker, "Pay")
        same = HalfSent(committed.queue_offset, committed.physical_offset, half.unique_id)
        assert await end(peer, same, COMMIT, from_check=True) == 1
        assert len(stored(broker, "Pay")) == 1


async def test_of_two_words_of_a_producer_the_first_counts(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        committed, removed = await send_half(peer, clock), await send_half(peer, clock)
        for _ in range(2):
            assert await end(peer, committed, COMMIT) == 0
            assert await end(peer, removed, ROLLBACK) == 0
        assert await end(peer, committed, ROLLBACK) == 1
        answer = await peer.ask(end_request(removed, COMMIT))
        assert (answer.code, "rolled back" in (answer.remark or "")) == (1, True)
        assert unique_ids(broker, "Pay") == [committed.unique_id]


async def test_an_end_that_comes_late_ends_the_copy_that_was_asked_for(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        half = await send_half(peer, clock)
        (first_copy,) = await round_of(peer, clock)
        (second_copy,) = await round_of(peer, clock)
        assert await end(peer, half, COMMIT) == 0
        assert await end(peer, first_copy, COMMIT, from_check=True) == 0
        assert await end(peer, second_copy, COMMIT, from_check=True) == 0
        assert await end(peer, first_copy, ROLLBACK, from_check=True) == 1
        assert len(stored(broker, "Pay")) == 1
        for _ in range(2):
            assert await round_of(peer, clock) == []
        assert len(halves(broker)) == 3


@pytest.mark.mission("TX-04")
async def test_a_commit_waits_for_the_disk_as_its_sender_wished(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    goes_on = threading.Event()
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with running_broker(tmp_path, clock, disk, **settings) as broker, Peer.of(broker) as peer:
        patient, slow = await send_half(peer, clock), await send_half(peer, clock)
        hasty = await send_half(peer, clock, WAIT="false")
        disk.on_call = lambda operation, path: _hold(goes_on, operation, path)
        assert await end(peer, hasty, COMMIT) == 0
        waiting = asyncio.create_task(end(peer, slow, COMMIT))
        await until(lambda: broker.rooms.families["transaction"].waiting == 1)
        clock.advance(4.9)
        patiently = asyncio.create_task(end(peer, patient, COMMIT))
        await until(lambda: broker.rooms.families["transaction"].waiting == 2)
        assert not waiting.done()
        clock.advance(0.2)
        assert await waiting == 0, "not on disk in time is no reason to take it back"
        assert not patiently.done()
        goes_on.set()
        assert await patiently == 0
        assert len(stored(broker, "Pay")) == 3


def _hold(goes_on: threading.Event, operation: str, path: str) -> None:
    if operation == "sync" and "commitlog" in path:
        goes_on.wait(20)


async def test_a_half_that_is_long_out_of_memory_is_read_behind_the_loop(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, flushDiskType="SYNC_FLUSH") as broker, Peer.of(broker) as peer:
        half, removed = await send_half(peer, clock), await send_half(peer, clock)
        broker.store.reading.memory_bytes = 0
        assert await end(peer, half, COMMIT) == 0
        assert await end(peer, removed, ROLLBACK) == 0
        assert await end(peer, HalfSent(0, half.physical_offset + 1, ""), COMMIT) == 1
        assert unique_ids(broker, "Pay") == [half.unique_id]


# Ops


@pytest.mark.mission("TX-05")
async def test_ops_of_both_forms_are_read(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        sent = [await send_half(peer, clock) for _ in range(6)]
        for body in (b"0", b"1,3,", b"4", b"no number,9999999,"):
            broker.store.put(AppendRequest(OP_TOPIC, 0, body, "TAGS\x01d\x02"))
        broker.store.put(AppendRequest(OP_TOPIC, 0, b"5", "TAGS\x01other\x02"))
        asked = await round_of(peer, clock)
        assert [it.unique_id for it in asked] == [sent[2].unique_id, sent[5].unique_id]


@pytest.mark.mission("TX-05")
def test_ten_thousand_commits_make_few_ops(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        settings = {"mappedFileSizeCommitLog": 32 << 20}
        async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
            for _ in range(20):
                sent = await asyncio.gather(*(send_half(peer, clock) for _ in range(500)))
                assert set(await asyncio.gather(*(end(peer, half, COMMIT) for half in sent))) == {0}
            clock.advance(3)
            ops = stored(broker, OP_TOPIC)
            assert 10 <= len(ops) < 100
            assert max(len(op.body) for op in ops) <= 4096
            named = b"".join(op_bodies(ops)).rstrip(b",").split(b",")
            assert sorted(map(int, named)) == list(range(10_000))

    run(main(), timeout_s=120)


async def test_an_op_waits_three_seconds_at_most(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        sent = [await send_half(peer, clock) for _ in range(3)]
        clock.advance(3.1)
        for half in sent[:2]:
            await end(peer, half, COMMIT)
        clock.advance(2.8)
        assert stored(broker, OP_TOPIC) == []
        clock.advance(0.2)
        assert op_bodies(stored(broker, OP_TOPIC)) == [b"0,1,"]


# Being asked


@pytest.mark.mission("TX-09")
async def test_an_undecided_half_is_written_again_and_asked_for(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        half = await send_half(peer, clock, body=b"abc", queue_id=3, KEYS="k")
        clock.advance(30)
        await peer.heartbeat()
        (command,) = peer.asked
        original, copy = halves(broker)
        assert command.is_oneway
        assert command.ext == {
            "topic": HALF_TOPIC,
            "tranStateTableOffset": str(copy.queue_offset),
            "commitLogOffset": str(copy.physical_offset),
            "msgId": half.unique_id,
            "transactionId": half.unique_id,
            "offsetMsgId": broker.own.offset_id(copy.physical_offset),
            "bname": "broker-a",
        }
        assert properties_of(copy) == {**properties_of(original), "TRANSACTION_CHECK_TIMES": "1"}
        assert (copy.body, copy.born_timestamp_ms) == (original.body, original.born_timestamp_ms)
        (shown,) = decode_records(command.body)
        assert (shown.topic, shown.queue_id, shown.body) == ("Pay", 3, b"abc")
        assert (shown.queue_offset, shown.physical_offset) == (copy.queue_offset, copy.physical_offset)
        (asked,) = questions(peer)
        assert await end(peer, asked, COMMIT, from_check=True) == 0
        assert await round_of(peer, clock) == []
        (message,) = stored(broker, "Pay", 3)
        assert message.prepared_transaction_offset == copy.physical_offset


@pytest.mark.mission("TX-09")
async def test_another_member_of_the_group_is_asked_when_the_sender_has_gone(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as other:
        async with Peer.of(broker) as sender:
            await sender.heartbeat(client_id="sender")
            half = await send_half(sender, clock)
        await until(lambda: not broker.tables.producers.table.get(GROUP))
        assert await round_of(other, clock) == [], "a heartbeat after the round is too late for it"
        (asked,) = await round_of(other, clock)
        assert asked.unique_id == half.unique_id
        assert await end(other, asked, COMMIT, from_check=True) == 0
        assert unique_ids(broker, "Pay") == [half.unique_id]


@pytest.mark.mission("TX-08")
async def test_a_message_is_given_up_after_fifteen_questions(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        half = await send_half(peer, clock)
        asked: list[HalfSent] = []
        for _ in range(15):
            (question,) = await round_of(peer, clock)
            await peer.client.send_oneway(broker.address, end_request(question, UNKNOWN, from_check=True), 5)
            asked.append(question)
        assert [it.unique_id for it in asked] == [half.unique_id] * 15
        assert stored(broker, GIVEN_UP_TOPIC) == []
        for _ in range(3):
            assert await round_of(peer, clock) == []
        (message,) = stored(broker, GIVEN_UP_TOPIC)
        assert properties_of(message)["TRANSACTION_CHECK_TIMES"] == "15"
        assert properties_of(message)["REAL_TOPIC"] == "Pay"
        assert len(halves(broker)) == 16
        config = broker.tables.topics.get(GIVEN_UP_TOPIC)
        assert config is not None
        assert (config.read_queue_nums, config.perm) == (1, 6)
        assert broker.rooms.transactions.transactions.counts.table["Pay"].count == 0
        assert await end(peer, asked[-1], COMMIT, from_check=True) == 1, "it has met its fate"
        assert stored(broker, "Pay") == []


@pytest.mark.mission("TX-08")
async def test_a_half_older_than_the_log_keeps_messages_is_given_up_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        hour_ms = 3_600_000
        old = await send_half(peer, ManualClock(clock.now_ms() - 72 * hour_ms))
        not_so_old = await send_half(peer, ManualClock(clock.now_ms() - 71 * hour_ms))
        assert [it.unique_id for it in await round_of(peer, clock)] == [not_so_old.unique_id]
        assert unique_ids(broker, GIVEN_UP_TOPIC) == [old.unique_id]


async def test_a_given_up_message_can_be_resumed(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"transactionCheckMax": 1}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        half = await send_half(peer, clock)
        assert len(await round_of(peer, clock)) == 1
        assert await round_of(peer, clock) == []
        (message,) = stored(broker, GIVEN_UP_TOPIC)
        offset_id = broker.own.offset_id(message.physical_offset)
        assert (await peer.call(Request.RESUME_CHECK_HALF_MESSAGE, topic="Pay", msgId=offset_id)).code == 0
        assert broker.rooms.transactions.transactions.counts.table["Pay"].count == 1
        (asked,) = await round_of(peer, clock)
        assert asked.unique_id == half.unique_id
        assert await end(peer, asked, COMMIT, from_check=True) == 0
        assert unique_ids(broker, "Pay") == [half.unique_id]
        committed = stored(broker, "Pay")[0].physical_offset
        for bad in ("", "nonsense", broker.own.offset_id(committed), broker.own.offset_id(1 << 40)):
            assert (await peer.call(Request.RESUME_CHECK_HALF_MESSAGE, topic="Pay", msgId=bad)).code == 1


# Time to decide


@pytest.mark.mission("TX-07")
async def test_nobody_is_asked_before_six_seconds(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        clock.advance(24.001)
        await send_half(peer, clock)
        assert await round_of(peer, clock, 6) == []
        assert len(halves(broker)) == 1
        assert len(await round_of(peer, clock)) == 1
        clock.advance(23.9)
        await send_half(peer, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="-1")
        assert len(await round_of(peer, clock, 6.2)) == 2, "-1 stands for the broker's time"


@pytest.mark.mission("TX-07")
async def test_nobody_is_asked_before_the_messages_own_time(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"transactionCheckInterval": 5000}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        patient = await send_half(peer, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="20")
        for _ in range(3):
            assert await round_of(peer, clock, 5) == []
        *_, copy = halves(broker)
        assert properties_of(copy)["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
        assert "TRANSACTION_CHECK_TIMES" not in properties_of(copy)
        (asked,) = await round_of(peer, clock, 5)
        assert asked.unique_id == patient.unique_id


@pytest.mark.mission("TX-07")
async def test_a_commit_for_the_first_offset_ends_the_copy_of_a_message_with_its_own_time(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"transactionCheckInterval": 3000}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        half = await send_half(peer, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="20")
        clock.advance(10)
        copies = len(halves(broker))
        assert copies == 4
        assert await end(peer, half, COMMIT) == 0
        for _ in range(10):
            assert await round_of(peer, clock, 3) == []
        assert len(halves(broker)) == copies
        assert unique_ids(broker, "Pay") == [half.unique_id]


async def test_an_op_of_another_broker_for_the_first_offset_ends_the_copy(tmp_path: Path) -> None:
    """RocketMQ writes an op for the first offset only, and that after the walk has passed it."""
    clock = ManualClock()
    settings = {"transactionCheckInterval": 3000}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        await send_half(peer, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="20")
        clock.advance(6)
        broker.store.put(AppendRequest(OP_TOPIC, 0, b"0", "TAGS\x01d\x02"))
        for _ in range(10):
            assert await round_of(peer, clock, 3) == []


async def test_a_clock_that_is_ahead_postpones_no_question(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        ahead = ManualClock(clock.now_ms() + 3_600_000)
        await send_half(peer, ahead)
        await send_half(peer, ahead, CHECK_IMMUNITY_TIME_IN_SECONDS="20")
        assert len(await round_of(peer, clock)) == 2


# Rounds


@pytest.mark.mission("TX-06")
async def test_a_round_ends_before_halves_that_are_younger_than_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"transactionTimeOut": 0}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        for _ in range(250):
            await send_half(peer, clock)
        assert len(await round_of(peer, clock)) == 250, "each once, though each is put again behind the last"
        assert len(halves(broker)) == 500


class BusyClock(ManualClock):
    """What is to run as soon as others had their turn runs after half a minute."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualTimer:
        return super().call_later(delay_s or 35.0, callback)


@pytest.mark.mission("TX-06")
async def test_a_round_leaves_a_queue_after_a_minute_and_the_next_goes_on_there(tmp_path: Path) -> None:
    clock = BusyClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        assert await round_of(peer, clock) == []
        sent = [await send_half(peer, clock) for _ in range(300)]
        asked = [await round_of(peer, clock, seconds) for seconds in (30, 35, 35, 20)]
        assert [len(some) for some in asked] == [100, 100, 0, 100]
        assert [it.unique_id for some in asked for it in some] == [it.unique_id for it in sent]


@pytest.mark.mission("TX-06")
async def test_progress_goes_over_finished_ops_only_and_not_ahead_of_the_disk(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    goes_on = threading.Event()
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        sent = [await send_half(peer, clock) for _ in range(4)]
        await end(peer, sent[0], COMMIT)
        clock.advance(3)
        await end(peer, sent[2], COMMIT)
        clock.advance(24)
        young, younger = await send_half(peer, clock), await send_half(peer, clock)
        await end(peer, younger, ROLLBACK)
        disk.on_call = lambda operation, path: _hold(goes_on, operation, path)
        assert len(await round_of(peer, clock, 3)) == 2
        assert op_bodies(stored(broker, OP_TOPIC)) == [b"0,", b"2,", b"5,"]
        clock.advance(9)
        assert progress(broker)[0] < 4, "the copies are not on disk yet"
        goes_on.set()
        # The walk ends before a young half, so the last op is still needed.
        await until(lambda: soon(clock) and progress(broker) == (4, 2))
        assert await end(peer, young, COMMIT) == 0


def progress(broker: Broker) -> tuple[int, int]:
    """As saved: for halves and for ops."""
    return (
        broker.tables.offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0),
        broker.tables.offsets.query("CID_RMQ_SYS_TRANS", OP_TOPIC, 0),
    )


def soon(clock: ManualClock) -> bool:
    clock.advance(0.1)
    return True


# Restarts


@pytest.mark.mission("TX-04")
async def test_a_crash_between_commit_and_op_costs_one_duplicate_at_most(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path / "a", clock) as broker, Peer.of(broker) as peer:
        half = await send_half(peer, clock)
        assert await end(peer, half, COMMIT) == 0
        left = await killed(broker, tmp_path / "a", tmp_path / "b")
    async with running_broker(left, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        assert unique_ids(broker, "Pay") == [half.unique_id]
        (asked,) = await round_of(peer, clock)
        assert await end(peer, asked, COMMIT, from_check=True) == 0
        for _ in range(2):
            assert await round_of(peer, clock) == []
        assert unique_ids(broker, "Pay") == [half.unique_id] * 2


@pytest.mark.parametrize("violent", [False, True], ids=["stop", "kill"])
async def test_a_restart_in_every_state(tmp_path: Path, violent: bool) -> None:
    """open, committed, rolled back, asked for, ended as a copy, with its own time, given up"""
    clock = ManualClock()
    settings = {"transactionCheckMax": 2}
    async with running_broker(tmp_path / "a", clock, **settings) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        given_up = await send_half(peer, clock)
        await round_of(peer, clock)
        ended_copy, asked = await send_half(peer, clock), await send_half(peer, clock)
        asked_for = await round_of(peer, clock)
        assert [it.unique_id for it in asked_for] == [given_up.unique_id, ended_copy.unique_id, asked.unique_id]
        await end(peer, asked_for[1], COMMIT, from_check=True)
        patient = await send_half(peer, clock, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        await round_of(peer, clock)
        assert unique_ids(broker, GIVEN_UP_TOPIC) == [given_up.unique_id]
        committed, removed = await send_half(peer, clock), await send_half(peer, clock)
        await end(peer, committed, COMMIT)
        await end(peer, removed, ROLLBACK)
        clock.advance(3)
        still_open = await send_half(peer, clock)
        if violent:
            await killed(broker, tmp_path / "a", tmp_path / "b")
    directory = tmp_path / ("b" if violent else "a")
    async with running_broker(directory, clock, **settings) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        for half in (committed, removed):
            assert await end(peer, half, COMMIT) == 0, "nothing happens: an op says that they have ended"
        asked_for = await round_of(peer, clock)
        assert [it.unique_id for it in asked_for] == [still_open.unique_id]
        await end(peer, asked_for[0], COMMIT, from_check=True)
        assert await end(peer, patient, COMMIT) == 0
        for _ in range(4):
            assert await round_of(peer, clock) == []
        expected = [given_up.unique_id, asked.unique_id]
        assert sorted(unique_ids(broker, GIVEN_UP_TOPIC)) == sorted(expected)
        assert sorted(unique_ids(broker, "Pay")) == sorted(
            it.unique_id for it in (ended_copy, committed, still_open, patient)
        )


async def test_a_kill_right_after_giving_up_does_not_repeat_it(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"transactionCheckMax": 1, "transactionCheckInterval": 10_000}  # not when ops are written anyway
    async with running_broker(tmp_path / "a", clock, **settings) as broker, Peer.of(broker) as peer:
        half = await send_half(peer, clock)
        clock.advance(20)
        assert unique_ids(broker, GIVEN_UP_TOPIC) == [half.unique_id]
        left = await killed(broker, tmp_path / "a", tmp_path / "b")
    async with running_broker(left, clock, **settings) as broker, Peer.of(broker) as peer:
        clock.advance(60)
        assert unique_ids(broker, GIVEN_UP_TOPIC) == [half.unique_id]


async def test_a_copy_whose_half_was_ended_late_is_not_asked_for_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        half = await send_half(peer, clock)
        assert len(await round_of(peer, clock)) == 1
        assert await end(peer, half, COMMIT) == 0
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        assert await round_of(peer, clock) == []
        assert unique_ids(broker, "Pay") == [half.unique_id]


async def test_a_java_store_is_taken_over_with_its_open_transactions(tmp_path: Path) -> None:
    shutil.copytree(golden_store("clean"), tmp_path / "store")
    clock = ManualClock(1_794_725_640_000)
    settings = {
        "mappedFileSizeCommitLog": 262_144,
        "mappedFileSizeConsumeQueue": 2000,
        "transactionCheckMax": 4,
    }
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        await peer.call(Request.HEART_BEAT, _producer("golden_tx_A"))
        open_ones = ["tx-2", "tx-5", "tx-8"]
        asked = await round_of(peer, clock)
        assert len(asked) == 3
        copies = halves(broker)[-3:]
        assert [properties_of(it)["KEYS"] for it in copies] == open_ones
        assert {properties_of(it)["TRANSACTION_CHECK_TIMES"] for it in copies} == {"3"}
        for half, state in zip(asked, (COMMIT, ROLLBACK, UNKNOWN), strict=True):
            if state != UNKNOWN:
                assert await end(peer, half, state, from_check=True, producer_group="golden_tx_A") == 0
        assert len(await round_of(peer, clock)) == 1
        assert await round_of(peer, clock) == []
        assert [properties_of(it)["KEYS"] for it in stored(broker, GIVEN_UP_TOPIC)] == ["tx-8"]
        keys = [properties_of(it)["KEYS"] for queue_id in range(4) for it in stored(broker, "GoldenTxA", queue_id)]
        assert sorted(keys) == ["tx-0", "tx-2", "tx-3", "tx-6"]
        assert broker.rooms.transactions.transactions.counts.table["GoldenTxA"].count == 0


def _producer(group: str) -> bytes:
    return HeartbeatData(client_id="golden", producer_data_set=[ProducerData(group_name=group)]).encode()
