"""Checks the master's side as values: links, waiters, quorum."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from cometmq.errors import WireError
from cometmq.store.replication.frames import HEADER, HEADER_BYTES
from cometmq.store.replication.links import BACKLOG_BYTES, BACKLOG_FRAME_BYTES, Link
from cometmq.store.replication.master import Master
from cometmq.store.results import PutStatus
from tests.store.replication.bench import SEGMENT_BYTES, fill, log_bytes, put, small_store

NOW_S = 100.0


class Bench:
    """A master with replicas that say what the test wants; `told` has the statuses of those who waited."""

    def __init__(self, **options: Any) -> None:
        self.store = small_store(**options)
        self.master = Master(self.store.log, self.store.options)
        self.told: dict[str, int] = {}

    def connect(self, offset: int | None = None, now_s: float = NOW_S) -> Link:
        link = self.master.connect("replica", now_s)
        if offset is not None:
            self.report(link, offset, now_s)
        return link

    def report(self, link: Link, offset: int, now_s: float = NOW_S) -> None:
        """Of an honest replica, which has got what there is."""
        if link.next_offset >= 0:
            sent(link, now_s)
        self.say(link, offset, now_s)

    def say(self, link: Link, offset: int, now_s: float = NOW_S) -> None:
        self.master.received(link, struct.pack(">q", offset), now_s)

    def put(self, name: str, now_s: float = NOW_S) -> int:
        end = put(self.store)
        self.wait(name, end, now_s)
        return end

    def wait(self, name: str, end: int, now_s: float = NOW_S) -> None:
        self.master.wait(end, self.teller(name), now_s)

    def teller(self, name: str) -> Callable[[int], object]:
        return lambda status: self.told.setdefault(name, status)


def sent(link: Link, now_s: float = NOW_S) -> list[tuple[int, bytes]]:
    """(offset, bytes) of the frames that are due now."""
    stream = bytearray()
    while buffers := link.output(1000, now_s):
        stream += b"".join(bytes(buffer) for buffer in buffers)
    frames: list[tuple[int, bytes]] = []
    at = 0
    while at < len(stream):
        offset, length = HEADER.unpack_from(stream, at)
        at += HEADER_BYTES + length
        frames.append((offset, bytes(stream[at - length : at])))
    return frames


# What is sent


def test_nothing_is_sent_before_the_first_report() -> None:
    bench = Bench()
    put(bench.store)
    link = bench.connect()
    assert sent(link, NOW_S + 19) == []


def test_frames_begin_where_the_replica_asks_and_stay_within_their_size_and_segment() -> None:
    bench = Bench(ha_frame_bytes=300)
    fill(bench.store, 3 * SEGMENT_BYTES)
    link = bench.connect(1000)
    frames = sent(link)
    assert frames[0][0] == 1000
    assert max(len(data) for _, data in frames) == 300
    assert all(at // SEGMENT_BYTES == (at + len(data) - 1) // SEGMENT_BYTES for at, data in frames)
    assert b"".join(data for _, data in frames) == log_bytes(bench.store)[1000:]
    assert sent(link) == []


def test_a_replica_far_behind_gets_long_frames_and_one_that_keeps_up_short_ones() -> None:
    bench = Bench(segment_bytes=16 << 20, message_bytes_max=1 << 20)
    while bench.store.log.max_offset < BACKLOG_BYTES + (1 << 20):
        put(bench.store, bytes(100_000))
    frames = sent(bench.connect(1))
    lengths = [len(data) for _, data in frames]
    assert set(lengths[:-1]) == {BACKLOG_FRAME_BYTES, bench.store.options.ha_frame_bytes}
    assert lengths == sorted(lengths, reverse=True)
    assert b"".join(data for _, data in frames) == log_bytes(bench.store)[1:]


def test_who_wants_shorter_frames_than_usual_gets_no_long_ones() -> None:
    bench = Bench(segment_bytes=16 << 20, message_bytes_max=1 << 20, ha_frame_bytes=16 << 10)
    while bench.store.log.max_offset < BACKLOG_BYTES + (1 << 20):
        put(bench.store, bytes(100_000))
    assert max(len(data) for _, data in sent(bench.connect(1))) == 16 << 10


def test_an_empty_replica_gets_the_last_segment() -> None:
    bench = Bench()
    fill(bench.store, 2 * SEGMENT_BYTES + 500)
    assert sent(bench.connect(0))[0][0] == 2 * SEGMENT_BYTES


def test_an_idle_link_gets_a_heartbeat_every_five_seconds() -> None:
    bench = Bench()
    end = put(bench.store)
    link = bench.connect(end)
    beats = []
    for tenth in range(1, 201):
        now_s = NOW_S + tenth / 10
        if frames := sent(link, now_s):
            assert frames == [(end, b"")]
            beats.append(round(now_s - NOW_S, 1))
    assert beats == [5.0, 10.0, 15.0, 20.0]
    assert link.due_s() == NOW_S + 20  # silence comes next


def test_the_pace_is_kept_second_by_second() -> None:
    bench = Bench(ha_pace_enabled=True, ha_pace_bytes=1000, ha_frame_bytes=300)
    fill(bench.store, 4000)
    link = bench.connect(1)
    assert sum(len(data) for _, data in sent(link)) == 1000
    assert sent(link, NOW_S + 0.9) == []
    assert link.due_s() == NOW_S + 1
    assert sum(len(data) for _, data in sent(link, NOW_S + 1)) == 1000


def test_under_sync_flush_only_what_is_on_disk_is_sent() -> None:
    bench = Bench(flush_disk_type="SYNC_FLUSH")
    put(bench.store)
    link = bench.connect(0)
    assert sent(link) == []
    bench.store.flush_now()
    assert len(sent(link)) == 1


def test_what_has_expired_cannot_be_asked_for() -> None:
    bench = Bench()
    fill(bench.store, 3 * SEGMENT_BYTES)
    bench.store.segments.remove(bench.store.segments.segments[0])
    with pytest.raises(WireError, match="begins at 4096"):
        bench.connect(100).output(1, NOW_S)


# What is believed


def test_a_report_beyond_the_end_counts_for_nothing() -> None:
    bench = Bench(in_sync_replicas=2)
    link = bench.connect(0)
    end = bench.put("a")
    with pytest.raises(WireError, match=f"reports offset {end + 1}, but this log ends at {end}"):
        bench.report(link, end + 1)
    assert bench.told == {}
    assert link.acked_offset == 0


def test_what_was_not_sent_on_this_connection_is_not_believed() -> None:
    bench = Bench(in_sync_replicas=2)
    honest, liar = bench.connect(0), bench.connect(0)
    end = bench.put("a")
    sent(honest)
    with pytest.raises(WireError, match=f"reports offset {end}, but on this connection it was sent the log up to 0"):
        bench.say(liar, end)
    assert bench.told == {}
    bench.report(honest, end)
    assert bench.told == {"a": PutStatus.OK}


def test_where_a_replica_wishes_to_begin_is_no_ack() -> None:
    bench = Bench(in_sync_replicas=2)
    bench.connect(0)
    end = bench.put("a")
    liar = bench.connect(end)
    bench.say(liar, end)
    assert bench.told == {}
    end = bench.put("b")
    bench.report(liar, end)
    assert bench.told == {"a": PutStatus.OK, "b": PutStatus.OK}, "it has taken what it was sent, so it has the log"


def test_a_replica_that_never_says_a_whole_offset_is_silent() -> None:
    bench = Bench()
    link = bench.connect()
    for second in range(1, 8):
        bench.master.received(link, b"\0", NOW_S + second * 2)
    assert not link.is_silent(NOW_S + 19)
    assert link.is_silent(NOW_S + 20)
    assert link.due_s() == NOW_S + 20


def test_an_ack_needs_the_report_of_a_replica() -> None:
    bench = Bench(in_sync_replicas=2)
    link = bench.connect(0)
    end = bench.put("a")
    bench.report(link, end - 1)
    assert bench.told == {}
    bench.report(link, end)
    assert bench.told == {"a": PutStatus.OK}


def test_three_copies_wait_for_the_slower_replica_and_two_do_not() -> None:
    bench = Bench(in_sync_replicas=3)
    quick, slow = bench.connect(0), bench.connect(0)
    end = bench.put("three")
    bench.store.options.in_sync_replicas = 2
    last = bench.put("two")
    bench.report(quick, last)
    assert bench.told == {"two": PutStatus.OK}, "a waiter must not delay one that is already covered"
    bench.report(slow, end)
    assert bench.told == {"two": PutStatus.OK, "three": PutStatus.OK}


def test_two_connections_of_one_replica_count_once() -> None:
    bench = Bench(in_sync_replicas=3)
    old, other = bench.connect(0), bench.connect(0)
    end = bench.put("a")
    bench.report(old, end)
    again = bench.connect(end)  # the replica of `old` was cut off and is back; nobody noticed the end of `old`
    assert bench.told == {}
    bench.report(other, end)
    assert bench.told == {"a": PutStatus.OK}
    end = bench.put("b")
    bench.report(again, end)
    assert "b" not in bench.told
    bench.report(other, end)
    assert bench.told["b"] == PutStatus.OK


def test_an_empty_replica_does_not_answer_for_what_it_never_gets() -> None:
    bench = Bench(in_sync_replicas=2)
    bench.connect(0)
    bench.put("a")
    fill(bench.store, SEGMENT_BYTES + 500)
    late = bench.connect(0)
    assert sent(late)[0][0] == SEGMENT_BYTES
    bench.report(late, bench.store.log.max_offset)
    assert bench.told == {}
    bench.master.expire(NOW_S + 3)
    assert bench.told == {"a": PutStatus.FLUSH_SLAVE_TIMEOUT}


# Who waits how long


def test_without_replicas_the_answer_comes_at_once_and_is_not_ok() -> None:
    bench = Bench()
    bench.put("none")
    assert bench.told == {"none": PutStatus.SLAVE_NOT_AVAILABLE}
    bench.connect()
    bench.put("one that has not reported")
    assert bench.told["one that has not reported"] == PutStatus.SLAVE_NOT_AVAILABLE


def test_a_replica_too_far_behind_is_not_waited_for() -> None:
    bench = Bench(ha_gap_bytes_max=1000)
    bench.connect(0)
    fill(bench.store, 2000)
    bench.put("a")
    assert bench.told == {"a": PutStatus.SLAVE_NOT_AVAILABLE}


def test_who_waits_too_long_is_told_so_after_three_seconds() -> None:
    bench = Bench()
    bench.connect(0)
    bench.put("a")
    bench.master.expire(NOW_S + 2.9)
    assert bench.told == {}
    assert bench.master.waiters.next_deadline_s() == NOW_S + 3
    bench.master.expire(NOW_S + 3)
    assert bench.told == {"a": PutStatus.FLUSH_SLAVE_TIMEOUT}
    assert len(bench.master.waiters) == 0


def test_one_copy_waits_for_nobody() -> None:
    bench = Bench(in_sync_replicas=1)
    bench.put("a")
    assert bench.told == {"a": PutStatus.OK}


def test_all_that_keep_up_must_have_it_if_that_is_asked_for() -> None:
    bench = Bench(in_sync_replicas=2, all_in_sync_replicas=True)
    first, second = bench.connect(0), bench.connect(0)
    end = bench.put("a")
    bench.report(first, end)
    assert bench.told == {}
    bench.report(second, end)
    assert bench.told == {"a": PutStatus.OK}


def test_a_bug_of_one_waiter_does_not_keep_the_others_waiting() -> None:
    bench = Bench()
    link = bench.connect(0)
    end = put(bench.store)

    def fail(_status: int) -> None:
        raise RuntimeError("a bug")

    bench.master.wait(end, fail, NOW_S)
    bench.wait("a", end)
    bench.report(link, end)
    assert bench.told == {"a": PutStatus.OK}


# Acting masters


def test_too_few_replicas_refuse_a_message_before_it_is_stored() -> None:
    bench = Bench(in_sync_replicas=2)
    bench.master.count_alive(lambda: 2)
    assert "2 copies are needed and 1 can be made" in bench.master.shortage()
    bench.connect(0)
    assert bench.master.shortage() == ""
    bench.master.count_alive(lambda: 1)
    assert bench.master.shortage() != ""


def test_automatic_reduction_takes_what_there_is_but_not_below_the_least() -> None:
    bench = Bench(in_sync_replicas=3, in_sync_replicas_auto=True)
    bench.master.count_alive(lambda: 3)
    assert bench.master.shortage() == ""
    bench.put("alone")
    assert bench.told == {"alone": PutStatus.OK}
    link = bench.connect(0)
    end = bench.put("two")
    assert "two" not in bench.told
    bench.report(link, end)
    assert bench.told["two"] == PutStatus.OK
    bench.store.options.in_sync_replicas_min = 3
    assert "3 copies are needed and 2 can be made" in bench.master.shortage()
