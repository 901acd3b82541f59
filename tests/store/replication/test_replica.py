"""Checks the replica's side as values: what it asks for, appends, reports and refuses."""

import random
import struct

import pytest

from cometmq.errors import WireError
from cometmq.store.replication.frames import HEADER
from cometmq.store.replication.replica import CHECKED_BYTES, Diverged, Replica
from cometmq.store.store import Store
from tests.store.replication.bench import SEGMENT_BYTES, fill, log_bytes, put, small_store
from tests.support.simulated_replication import feed

NOW_S = 100.0


def frame(offset: int, data: bytes = b"") -> memoryview:
    return memoryview(HEADER.pack(offset, len(data)) + data)


def offset_of(report: bytes) -> int:
    offset: int = struct.unpack(">q", report)[0]
    return offset


def replica_of(store: Store) -> Replica:
    return Replica(store.log, store.options, NOW_S)


def copy(store: Store, length: int) -> Store:
    """A store with the first bytes of another one, on disk."""
    other = small_store()
    other.log.append_raw(0, log_bytes(store)[:length])
    other.flush_now()
    return other


def test_an_empty_replica_asks_for_nothing_in_particular_and_begins_where_the_master_does() -> None:
    master = small_store()
    fill(master, SEGMENT_BYTES + 1000)
    store = small_store()
    replica = replica_of(store)
    assert offset_of(replica.connected(NOW_S)) == 0
    assert replica.received(frame(SEGMENT_BYTES, log_bytes(master)[SEGMENT_BYTES:]), NOW_S)
    assert (store.log.min_offset, store.log.max_offset) == (SEGMENT_BYTES, master.log.max_offset)


def test_what_is_reported_is_on_disk() -> None:
    master, store = small_store(), small_store()
    end = put(master)
    replica = replica_of(store)
    replica.connected(NOW_S)
    replica.received(frame(0, log_bytes(master)), NOW_S)
    assert replica.report(NOW_S) == b""
    store.flush_now()
    assert offset_of(replica.report(NOW_S)) == end
    assert replica.report(NOW_S) == b""


def test_a_report_is_due_every_five_seconds_and_silence_lasts_twenty() -> None:
    store = small_store()
    replica = replica_of(store)
    replica.connected(NOW_S)
    assert replica.report(NOW_S + 4.9) == b""
    assert replica.due_s() == NOW_S + 5
    assert offset_of(replica.report(NOW_S + 5)) == 0
    assert not replica.is_silent(NOW_S + 19.9)
    assert replica.is_silent(NOW_S + 20)
    replica.received(frame(0), NOW_S + 10)
    assert not replica.is_silent(NOW_S + 29.9)


def test_another_offset_than_the_next_one_is_refused_and_changes_nothing() -> None:
    master = small_store()
    fill(master, 2000)
    store = copy(master, master.log.max_offset)
    replica = replica_of(store)
    before = log_bytes(store)
    with pytest.raises(WireError, match="goes on at 1"):
        replica.received(frame(5, b"x" * 50), NOW_S)
    assert log_bytes(store) == before


@pytest.mark.parametrize("step", [1, 13, 4096])
def test_the_own_tail_is_compared_before_anything_is_appended(step: int) -> None:
    master = small_store()
    fill(master, 1000)
    known = master.log.max_offset
    fill(master, 9000)
    store = copy(master, known)
    replica = replica_of(store)
    assert offset_of(replica.connected(NOW_S)) == 1
    log = log_bytes(master)
    at = 1
    while at < len(log):
        end = min(at + step, len(log), at - at % SEGMENT_BYTES + SEGMENT_BYTES)
        replica.received(frame(at, log[at:end]), NOW_S)
        at = end
    store.flush_now()
    assert replica.is_checked
    assert log_bytes(store) == log
    assert offset_of(replica.report(NOW_S)) == len(log)


@pytest.mark.parametrize("known", [0, 1000])
@pytest.mark.parametrize("frame_bytes", [1, 90, 300, 5000])
def test_bytes_that_land_make_the_same_log_however_they_are_cut(frame_bytes: int, known: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    master = small_store()
    fill(master, 3 * SEGMENT_BYTES)
    log = log_bytes(master)
    record = log[: struct.unpack(">i", log[:4])[0]]
    store = copy(master, known // len(record) * len(record))
    replica = Replica(store.log, store.options, NOW_S, long_frame_bytes=80)
    at = offset_of(replica.connected(NOW_S))
    sent = b""
    while at < len(log):
        end = min(at + frame_bytes, len(log), at - at % SEGMENT_BYTES + SEGMENT_BYTES)
        sent += frame(at, log[at:end]).tobytes()
        if end > known and chance.random() < 0.1:
            sent += frame(end).tobytes()
        at = end
    while sent:
        count = chance.randint(1, 1500)
        feed(replica, memoryview(sent[:count]), NOW_S)
        sent = sent[count:]
    assert log_bytes(store) == log


def test_a_frame_that_lands_elsewhere_is_refused() -> None:
    master, store = small_store(), small_store()
    fill(master, 1000)
    log = log_bytes(master)
    replica = Replica(store.log, store.options, NOW_S, long_frame_bytes=80)
    replica.connected(NOW_S)
    feed(replica, frame(0, log[:500]), NOW_S)
    before = log_bytes(store)
    with pytest.raises(WireError, match="goes on at 500"):
        feed(replica, frame(501, log[501:]), NOW_S)
    assert log_bytes(store) == before


def test_a_long_log_is_asked_for_its_end_only() -> None:
    master = small_store()
    fill(master, CHECKED_BYTES + 9000)
    store = copy(master, master.log.max_offset)
    assert offset_of(replica_of(store).connected(NOW_S)) == store.log.max_offset - CHECKED_BYTES


def test_a_log_that_went_another_way_is_left_alone() -> None:
    master = small_store()
    fill(master, 1000)
    store = copy(master, master.log.max_offset)
    put(master, b"one way")
    put(store, b"another")
    store.flush_now()
    before = log_bytes(store)
    replica = replica_of(store)
    replica.connected(NOW_S)
    with pytest.raises(Diverged, match="differs from the master's"):
        replica.received(frame(1, log_bytes(master)[1:]), NOW_S)
    assert log_bytes(store) == before


def test_a_master_that_lost_its_tail_is_not_followed() -> None:
    master = small_store()
    fill(master, 1000)
    store = copy(master, master.log.max_offset)
    put(store, b"more than the master has")
    store.flush_now()
    replica = replica_of(store)
    replica.connected(NOW_S)
    replica.received(frame(1, log_bytes(master)[1:]), NOW_S)
    assert not replica.is_checked
    assert offset_of(replica.report(NOW_S)) == master.log.max_offset
    with pytest.raises(Diverged, match="the master lost its tail"):
        replica.received(frame(master.log.max_offset), NOW_S + 5)


def test_what_a_replica_flushed_is_noted_in_the_checkpoint() -> None:
    master, store = small_store(), small_store(broker_role="SLAVE")
    put(master)
    replica = replica_of(store)
    replica.connected(NOW_S)
    replica.received(frame(0, log_bytes(master)), NOW_S)
    store.dispatch_now()
    store.flush_now()
    # Or a crashed replica would read its whole log to find out where it ends.
    assert store.checkpoint.physic_time_ms == master.clock.now_ms()


def test_while_the_log_comes_first_a_flush_builds_no_queues() -> None:
    master, store = small_store(), small_store(broker_role="SLAVE")
    end = put(master)
    store.put_log_first(True)
    store.log.append_raw(0, log_bytes(master))
    store.flush_now()
    assert (store.log.flushed_offset, store.dispatcher.position) == (end, 0)
    store.put_log_first(False)
    store.dispatch_now()
    assert store.dispatcher.position == end
