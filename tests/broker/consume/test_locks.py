"""Queue locks of ordered consumers."""

from cometmq.broker.consume.locks import LEFT_MAX, QueueLocks
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


def test_a_client_that_leaves_frees_its_queues_and_takes_none_by_a_late_request() -> None:
    locks = QueueLocks(live_ms=100)
    locks.lock("g", [Q0, Q1], "one", 0)
    locks.lock("h", [Q0], "one", 0)

    locks.leave("g", "one", 10)
    assert locks.lock("g", [Q0], "one", 20) == []
    assert locks.lock("g", [Q0, Q1], "two", 20) == [Q0, Q1]
    assert locks.lock("h", [Q0], "two", 20) == []

    locks.join("g", "one")
    locks.unlock("g", [Q0], "two")
    assert locks.lock("g", [Q0], "one", 30) == [Q0]


def test_clients_that_left_are_forgotten_and_bounded() -> None:
    locks = QueueLocks(live_ms=100)
    locks.leave("g", "one", 0)
    locks.expire(101)
    assert locks.lock("g", [Q0], "one", 102) == [Q0]

    for number in range(LEFT_MAX + 1):
        locks.leave("g", f"client-{number}", 200)
    assert locks.lock("g", [Q1], "client-0", 201) == [Q1]
    assert locks.lock("g", [Q1], f"client-{LEFT_MAX}", 201) == []
