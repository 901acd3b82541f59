"""The memories of a queue of halves are bounded, and forget their oldest entries first."""

from cometmq.broker.transactions.half_queue import FORGOTTEN_SHARE, bound
from cometmq.broker.transactions.ops import PAST_KEPT_MAX, OpQueue


def test_the_oldest_are_forgotten_and_the_newest_are_not() -> None:
    table: dict[int, int] = {}
    most = 0
    for number in range(1000):
        bound(table, 160)
        table[number] = number
        most = max(most, len(table))
        newest = range(max(0, number - 160 + 160 // FORGOTTEN_SHARE + 2), number + 1)
        assert all(kept in table for kept in newest)
    assert most == 160
    assert list(table) == sorted(table)


def test_a_small_table_is_bounded_too() -> None:
    table = {0: 0}
    bound(table, 1)
    assert table == {}


def test_ops_of_halves_that_are_passed_are_kept_for_a_while() -> None:
    ops = OpQueue(0, 0)
    for offset in range(PAST_KEPT_MAX * 2):
        ops._op_of[offset] = offset  # as read from a record of its own
        ops._left[offset] = 1
        ops.passed(offset)
    assert ops.names(PAST_KEPT_MAX * 2 - 1)
    assert ops.names(PAST_KEPT_MAX + PAST_KEPT_MAX // 10)
    assert not ops.names(0)
    assert len(ops._past) <= PAST_KEPT_MAX
