"""Positions as text, and how ranges are cut and limited."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import ConfigError
from cometmq.spark.offsets import Positions, Queue, Range, cut, from_json, limited, to_json
from cometmq.spark.reading import DataLoss, _lost
from cometmq.spark.remote import Bounds

QUEUES = [Queue("orders", "b", 1), Queue("orders", "a", 10), Queue("orders", "a", 2), Queue("bills", "z", 0)]
POSITIONS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 10**12))


@given(POSITIONS)
def test_positions_come_back_and_the_text_has_one_form(positions: Positions) -> None:
    text = to_json(positions)
    assert from_json(text) == positions
    assert to_json(dict(reversed(positions.items()))) == text
    assert json.loads(text)["@v"] == 1


WRONG = ["[]", "1", '{"t": 1}', '{"t": {"b": {"x": 1}}}', '{"t": {"b": [1]}}', '{"@v": 2}', "{"]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        from_json(text, "startingOffsets")


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100_000)), min_size=1, max_size=6)


@settings(deadline=None)
@given(RANGES, st.integers(100, 50_000), st.none() | st.integers(1, 40))
def test_pieces_cover_each_range_once_and_keep_the_bounds(
    shapes: list[tuple[int, int]], rows_max: int, parts_min: int | None
) -> None:
    ranges = [Range(Queue("t", "b", number), first, first + size) for number, (first, size) in enumerate(shapes)]
    pieces = cut(ranges, rows_max, parts_min)
    assert all(0 < len(piece) <= rows_max for piece in pieces)
    for one in ranges:
        covered = [number for piece in pieces if piece.queue == one.queue for number in (piece.first, piece.last)]
        if len(one):
            assert covered[0] == one.first
            assert covered[-1] == one.last
            assert covered[1:-1:2] == covered[2::2]
        else:
            assert not covered
    if parts_min is not None:
        assert len(pieces) >= min(parts_min, sum(map(len, ranges)))


@given(POSITIONS, st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 1000)), st.integers(1, 2000))
def test_a_limit_holds_and_every_backlog_moves(start: Positions, backlog: dict[Queue, int], rows_max: int) -> None:
    end = {queue: start.get(queue, 0) + backlog.get(queue, 0) for queue in QUEUES}
    start = {queue: start.get(queue, 0) for queue in QUEUES}
    to = limited(start, end, rows_max)
    taken = {queue: to[queue] - start[queue] for queue in QUEUES}
    assert all(0 <= taken[queue] <= end[queue] - start[queue] for queue in QUEUES)
    assert all(taken[queue] > 0 for queue in QUEUES if end[queue] > start[queue])
    assert sum(taken.values()) <= max(rows_max, len(QUEUES))
    assert sum(taken.values()) >= min(rows_max, sum(backlog.values()))


def test_a_gap_that_is_met_in_the_middle_of_a_range_is_loss_or_left_out() -> None:
    one = Range(Queue("t", "broker-a", 0), 10, 100)
    with pytest.raises(DataLoss, match="offsets 40 to 100 were wanted, the queue has 60 to 200"):
        _lost(one, 40, Bounds(60, 200), fail=True)
    assert _lost(one, 40, Bounds(60, 200), fail=False) == 60
    assert _lost(one, 40, Bounds(0, 30), fail=False) == 100
