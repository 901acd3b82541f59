"""The cache of one queue: what may be committed."""

import random
import time

from cometmq.client.consume.process_queue import LOST, Held, ProcessQueue
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.record.message import StoredMessage

QUEUE = MessageQueue("broker-a", 0, "T")


def message(offset: int, body: bytes = b"x") -> StoredMessage:
    host = (b"\x7f\0\0\1", 10911)
    return StoredMessage(100, 1, 0, 0, 0, offset, offset * 100, 0, 1, host, 2, host, 0, 0, body, "T", b"")


def cache(*offsets: int) -> ProcessQueue:
    queue = ProcessQueue(QUEUE, 0.0)
    queue.put([message(offset) for offset in offsets])
    return queue


def test_nothing_is_committed_before_something_came() -> None:
    assert cache().commit_offset is None
    assert cache().remove([]) is None


def test_the_commit_offset_is_the_lowest_cached_or_one_past_the_highest() -> None:
    queue = cache()
    held = queue.put([message(offset) for offset in range(10)])
    assert queue.remove(held[4:]) == 0
    assert queue.remove(held[:3]) == 3  # 3 is stuck
    assert queue.span == 9 - 3
    assert queue.remove([held[3]]) == 10
    assert (queue.count, queue.size_bytes, queue.span) == (0, 0, 0)


def test_the_commit_offset_never_passes_what_is_not_finished() -> None:
    seed = time.time_ns()
    print(f"seed={seed}")
    dice = random.Random(seed)
    queue, offset = cache(), 0
    unfinished: dict[int, Held] = {}
    for _ in range(2000):
        if dice.random() < 0.5:
            fresh = []
            for _ in range(dice.randrange(5)):
                offset += dice.choice((1, 1, 1, 4))  # filters leave gaps
                fresh.append(message(offset))
            unfinished |= {one.offset: one for one in queue.put(fresh)}
        elif unfinished:
            key = dice.choice(list(unfinished))
            queue.remove([unfinished.pop(key)])
        expected = min(unfinished) if unfinished else (offset + 1 if offset else None)
        assert queue.commit_offset == expected
        assert queue.count == len(unfinished)


def test_what_is_pulled_again_is_cached_once() -> None:
    queue = cache(5, 6, 7)
    assert queue.put([message(6), message(7), message(8)])[0].offset == 8
    assert queue.count == 4


def test_a_message_that_was_removed_is_not_cached() -> None:
    queue = cache()
    first, second = queue.put([message(1), message(2)])
    queue.remove([first])
    assert first not in queue
    assert second in queue


def test_the_hand_is_committed_or_put_back_in_order() -> None:
    queue = cache(1, 2, 3, 4)
    assert [one.offset for one in queue.take(3)] == [1, 2, 3]
    queue.put_back()
    taken = queue.take(2)
    assert [one.offset for one in taken] == [1, 2]
    queue.put_back(taken[1:])
    assert (queue.in_hand, queue.lowest) == (1, 2)
    assert queue.commit() == 2
    assert queue.commit() is None
    assert [one.offset for one in queue.take(9)] == [2, 3, 4]
    assert queue.commit() == 5
    assert (queue.count, queue.size_bytes) == (0, 0)


def test_a_lost_queue_commits_nothing() -> None:
    queue = cache(1)
    queue.state = LOST
    assert not queue.may_commit
    assert not queue.is_owned


def test_tools_see_wall_times_and_both_parts_of_the_cache() -> None:
    queue = cache(3, 4, 5)
    queue.take(1)
    queue.lock_s = 9.0
    info = queue.info(3, 10.0, 1_000_000)
    assert (info.cached_msg_count, info.transaction_msg_count) == (2, 1)
    assert (info.cached_msg_min_offset, info.cached_msg_max_offset) == (3, 5)
    assert (info.last_lock_timestamp, info.locked, info.commit_offset) == (999_000, True, 3)
