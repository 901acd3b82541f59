"""The history checker finds each kind of fault, and none where there is none."""

import pytest

from tests.support.history import History, Place


def at(offset: int) -> Place:
    return ("T", "broker-a", 0, offset)


def sent(*bodies: str, lane: str | None = None) -> History:
    history = History()
    for body in bodies:
        history.send(body, lane)
        history.attempt(body)
        history.ack(body)
    return history


def test_everything_once_is_good() -> None:
    history = sent("1", "2", lane="x")
    history.receive("1", at(0))
    history.receive("2", at(1))
    history.check()


def test_what_was_not_acked_may_be_lost() -> None:
    history = History()
    history.send("1")
    history.check()


def test_a_lost_ack_is_found() -> None:
    history = sent("1", "2")
    history.receive("1", at(0))
    assert history.missing == ["2"]
    with pytest.raises(AssertionError, match="2: acked, never received"):
        history.check()


def test_an_invention_is_found() -> None:
    history = sent()
    history.receive("1", at(0))
    with pytest.raises(AssertionError, match="never sent"):
        history.check()


def test_a_copy_needs_a_second_attempt() -> None:
    history = sent("1")
    history.receive("1", at(0))
    history.receive("1", at(1))
    with pytest.raises(AssertionError, match="stored 2 times after 1 attempts"):
        history.check()
    history.attempt("1")
    history.check()


def test_a_second_delivery_needs_a_reason() -> None:
    history = sent("1", "2", "3")
    history.receive("1", at(0))
    history.disturb()
    history.receive("1", at(0))
    history.receive("2", at(1), failed=True)
    history.receive("2", at(1))
    history.receive("3", at(2))
    history.check()
    history.receive("3", at(2))
    with pytest.raises(AssertionError, match="3: delivered twice"):
        history.check()


def test_members_that_share_queues_may_both_have_a_message() -> None:
    history = sent("1", "2")
    history.share(True)
    history.receive("1", at(0))
    history.receive("1", at(0))
    history.share(False)
    history.receive("1", at(0))
    history.receive("2", at(1))
    history.check()
    history.receive("2", at(1))
    with pytest.raises(AssertionError, match="2: delivered twice"):
        history.check()


def test_a_failure_explains_one_more_copy() -> None:
    history = sent("1")
    history.receive("1", at(0), failed=True)
    history.receive("1", ("%RETRY%g", "broker-a", 0, 0))
    history.check()
    history.receive("1", ("%RETRY%g", "broker-a", 0, 1))
    with pytest.raises(AssertionError, match="stored 2 times"):
        history.check()


def test_order_is_that_of_first_deliveries_in_a_lane() -> None:
    history = sent("1", "2", "3", lane="x")
    history.receive("1", at(0))
    history.receive("2", at(1))
    history.disturb()
    history.receive("1", at(0))
    history.receive("3", at(2))
    history.check()
    other = sent("1", "2", lane="x")
    other.receive("2", at(1))
    other.receive("1", at(0))
    with pytest.raises(AssertionError, match="1: received after 2"):
        other.check()
