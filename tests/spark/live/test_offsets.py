"""Positions as text, and how ranges are cut and limited."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import ConfigError
from cometmq.spark.live.offsets import Positions, Queue, Range, cut, from_json, limited, shares, to_json
from cometmq.spark.live.reading import DataLoss, _lost
from cometmq.spark.live.remote import Bounds

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


def ranges_of(shapes: list[tuple[int, int]]) -> list[Range]:
    return [Range(Queue("t", "b", number), first, first + size) for number, (first, size) in enumerate(shapes)]


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100_000)), min_size=1, max_size=6)


@settings(deadline=None)
@given(RANGES, st.integers(100, 50_000), st.none() | st.integers(1, 40))
def test_pieces_cover_each_range_once_and_keep_the_bounds(
    shapes: list[tuple[int, int]], rows_max: int, parts_min: int | None
) -> None:
    ranges = ranges_of(shapes)
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


@settings(deadline=None)
@given(RANGES, st.integers(100, 50_000), st.none() | st.integers(1, 40))
def test_shares_are_alike_and_their_ranges_are_the_whole_in_order(
    shapes: list[tuple[int, int]], rows_max: int, parts_min: int | None
) -> None:
    ranges = ranges_of(shapes)
    dealt = shares(ranges, rows_max, parts_min)
    sizes = [sum(map(len, share)) for share in dealt]
    assert all(0 < size <= rows_max for size in sizes)
    assert len(set(sizes)) <= 2
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(dealt) >= min(parts_min or 0, sum(map(len, ranges)))
    # Put together where they were cut they are what there was.
    joined: list[Range] = []
    for piece in [piece for share in dealt for piece in share]:
        if joined and joined[-1].queue == piece.queue:
            assert joined[-1].last == piece.first
            joined[-1] = Range(piece.queue, joined[-1].first, piece.last)
        else:
            joined.append(piece)
    assert joined == [one for one in ranges if len(one)]


def test_equal_queues_are_not_cut_where_shares_end_between_them() -> None:
    ranges = [Range(Queue("t", "b", number), 0, 250_000) for number in range(4)]
    assert shares(ranges, 1_000_000, 2) == [ranges[:2], ranges[2:]]


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
