"""Why a message failed, as its properties."""

from cometmq.wire.record import failure, properties
from cometmq.wire.record.failure import CAUSE_CHARS_MAX, FAILURE_NAMES


def test_a_marked_failure_is_read_back_and_keeps_the_time_of_the_first() -> None:
    marked: dict[str, str] = {"KEYS": "k"}
    failure.mark(marked, "no stock", "Reject", "10.0.0.1@7", 1_000)
    failure.mark(marked, "still none", "Reject", "10.0.0.2@8", 2_000)
    stored = properties.decode(properties.encode(marked))
    assert failure.read(stored) == ("still none", "Reject", "10.0.0.2@8", 1_000, 2_000)
    failure.unmark(stored)
    assert stored == {"KEYS": "k"}
    assert failure.read(stored) is None


def test_a_cause_of_any_text_can_be_stored() -> None:
    for cause in ("", " ", "\x01\x02", "a\nb\x02c", "\ud800", "x" * 10_000, "\u2028" * 3):
        marked: dict[str, str] = {}
        failure.mark(marked, cause, cause, cause, 1)
        found = failure.read(properties.decode(properties.encode(marked)))
        assert found is not None
        assert 1 <= len(found.cause) <= CAUSE_CHARS_MAX
        assert found.cause.isprintable()
        assert set(marked) == FAILURE_NAMES


def test_times_that_are_no_numbers_are_read_as_zero() -> None:
    found = failure.read({"FAILURE_TYPE": "x", "FAILURE_FIRST_MS": "٣", "FAILURE_LAST_MS": "9" * 40})
    assert found is not None
    assert (found.first_ms, found.last_ms) == (0, 0)
