"""What a commit adds, and what it refuses."""

from __future__ import annotations

import pytest

from cometmq.errors import StoreError
from cometmq.spark.lake.archive import LakeFile, Manifest
from cometmq.spark.live.offsets import Queue
from cometmq.spark.tables import commits
from cometmq.spark.tables.commits import addition, committed, covered, done_batches


def batch(number: int, first: int, last: int, *, query: str = "q", topic: str = "t", queue: int = 0) -> Manifest:
    name = f"data/topic={topic}/day=2026-01-01/{query}-{number}-{queue}.parquet"
    file = LakeFile(name, topic, "2026-01-01", last - first, 1, "b", queue, first, last, 1, 2)
    return Manifest(query, number, ("body",), (file,))


def test_batches_are_added_in_order_and_noted_with_their_end() -> None:
    found = addition("t", {}, [batch(1, 10, 20), batch(0, 0, 10)])
    assert found is not None
    assert [file.first for file in found.files] == [0, 10]
    assert found.batches == (("q", 0), ("q", 1))
    assert committed(found.properties) == {Queue("t", "b", 0): 20}
    assert done_batches(found.properties) == {"q": 1}
    assert addition("t", found.properties, [batch(1, 10, 20), batch(0, 0, 10)]) is None


def test_a_batch_without_files_of_the_topic_adds_nothing() -> None:
    assert addition("t", {}, [batch(0, 0, 10, topic="u")]) is None


@pytest.mark.parametrize(("first", "what"), [(5, "would be there twice"), (15, "would be missing")])
def test_a_batch_that_does_not_continue_the_table_is_refused(first: int, what: str) -> None:
    known = addition("t", {}, [batch(0, 0, 10)])
    assert known is not None
    text = rf"batch 1 of query other begins at {first} of t queue 0 at b, the table ends at 10: rows {what}"
    with pytest.raises(StoreError, match=text):
        addition("t", known.properties, [batch(1, first, 20, query="other")])


def test_lost_messages_leave_a_gap_where_that_was_allowed() -> None:
    known = addition("t", {}, [batch(0, 0, 10)])
    assert known is not None
    assert addition("t", known.properties, [batch(1, 15, 20)], gaps=True) is not None
    with pytest.raises(StoreError, match="would be there twice"):
        addition("t", known.properties, [batch(1, 5, 20)], gaps=True)


def test_one_commit_has_a_bound_and_never_a_part_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "FILES_MAX", 2)
    found = addition("t", {}, [batch(number, number, number + 1) for number in range(5)])
    assert found is not None
    assert found.batches == (("q", 0), ("q", 1))


def test_a_batch_is_covered_when_every_table_of_it_has_it() -> None:
    both = Manifest("q", 3, (), (*batch(3, 0, 1).files, *batch(3, 0, 1, topic="u").files))
    assert not covered(both, {"t": {"cometmq.q.batch": "3"}, "u": {"cometmq.q.batch": "2"}})
    assert covered(both, {"t": {"cometmq.q.batch": "3"}, "u": {"cometmq.q.batch": "3"}})
    assert covered(both, {"t": {"cometmq.q.batch": "3"}}), "a table that was dropped asks for nothing"
