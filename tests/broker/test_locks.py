"""Queue locks of ordered consumers."""

from cometmq.broker.locks import QueueLocks
from cometmq.wire.bodies import MessageQueue

Q0 = MessageQueue("broker-a", 0, "T")
Q1 = MessageQueue("broker-a", 1, "T")


def test_a_queue_has_one_holder_per_group() -> None:
    locks = QueueLocks()

    assert locks.lock("g", [Q0, Q1], "one", 0) == [Q0, Q1]
    assert locks.lock("g", [Q0, Q1], "two", 10) == []
    assert locks.lock("h", [Q0], "two", 10) == [Q0]


def test_the_answer_is_the_part_that_is_held() -> None:
    locks = QueueLocks()
    locks.lock("g", [Q0], "one", 0)

    assert locks.lock("g", [Q0, Q1], "two", 0) == [Q1]


def test_a_lock_lives_sixty_seconds_after_its_last_renewal() -> None:
    locks = QueueLocks()
    locks.lock("g", [Q0], "one", 0)
    assert locks.lock("g", [Q0], "one", 50_000) == [Q0]
    assert locks.lock("g", [Q0], "two", 110_000) == []

    assert locks.lock("g", [Q0], "two", 110_001) == [Q0]
    assert locks.lock("g", [Q0], "one", 110_001) == []


def test_only_the_holder_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", [Q0], "one", 0)

    locks.unlock("g", [Q0, Q1], "two")
    locks.unlock("nobody", [Q0], "one")
    assert locks.lock("g", [Q0], "two", 0) == []

    locks.unlock("g", [Q0], "one")
    assert locks.lock("g", [Q0], "two", 0) == [Q0]


def test_a_group_consumes_in_order_while_any_of_its_locks_lives() -> None:
    locks = QueueLocks()
    assert not locks.any_lock_alive("g", 0)

    locks.lock("g", [Q0], "one", 0)
    locks.lock("g", [Q1], "one", 30_000)
    assert locks.any_lock_alive("g", 90_000)
    assert not locks.any_lock_alive("g", 90_001)
    assert not locks.any_lock_alive("h", 0)


def test_what_nobody_renews_is_forgotten() -> None:
    locks = QueueLocks(live_ms=100)
    locks.lock("g", [Q0], "one", 0)
    locks.lock("g", [Q1], "one", 50)
    locks.lock("h", [Q0], "one", 0)

    locks.expire(120)
    assert locks.held() == 1
    locks.expire(1000)
    assert locks.held() == 0


def test_a_refused_request_leaves_nothing_behind() -> None:
    locks = QueueLocks()
    locks.lock("g", [], "one", 0)

    assert locks.held() == 0
