"""An audit tells exactly the injuries that were planted in a store: no more, no less, and where each is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from cometmq.names import SCHEDULE_TOPIC
from cometmq.spark.pipelines import audit
from cometmq.wire.record.scan import OK, scan_record
from cometmq.wire.record.sysflag import enters_consume_queue
from tests.support.golden import copy_golden_store, golden_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = 4096


class Record(NamedTuple):
    place: int
    size: int
    topic: str
    queue: int
    offset: int
    body_bytes: int
    is_queued: bool
    tag: str | None


def records() -> list[Record]:
    (path,) = (golden_store("clean") / "commitlog").iterdir()
    data = path.read_bytes()
    found: list[Record] = []
    place = 0
    while (scan := scan_record(data, place, len(data), True)).kind == OK:
        body_bytes = int.from_bytes(data[place + 84 : place + 88], "big")
        queued = enters_consume_queue(scan.sys_flag)
        where = (place, scan.size, scan.topic, scan.queue_id, scan.queue_offset)
        found.append(Record(*where, body_bytes, queued, scan.property("TAGS")))
        place += scan.size
    return found


ALL = records()
Expected = set[tuple[Any, ...]]


def lost(gone: list[Record]) -> Expected:
    """Units of messages that are not there any more."""
    return {("unit without message", one.topic, one.queue, one.offset, None) for one in gone if one.is_queued}


def damaged(place: int) -> tuple[Any, ...]:
    return "damaged log", None, None, None, place


def flipped_bit(log: bytearray, units: dict[Path, bytearray]) -> Expected:
    one = next(one for one in ALL[40:] if one.body_bytes)
    log[one.place + 88 + one.body_bytes // 2] ^= 1
    return {damaged(one.place), *lost([one])}


def zeroed_pages(log: bytearray, units: dict[Path, bytearray]) -> Expected:
    first = ALL[len(ALL) // 2].place // PAGE * PAGE
    log[first : first + 2 * PAGE] = bytes(2 * PAGE)
    gone = [one for one in ALL if one.place < first + 2 * PAGE and one.place + one.size > first]
    # A record before which all is well begins the damage; it ends where the next whole one begins.
    return {damaged(gone[0].place), *lost(gone)}


def cut_tail(log: bytearray, units: dict[Path, bytearray]) -> Expected:
    cut = ALL[-6].place + ALL[-6].size // 2
    del log[cut:]
    return {damaged(ALL[-6].place), *lost(ALL[-6:])}


def wrong_units(log: bytearray, units: dict[Path, bytearray]) -> Expected:
    """One with another size, one that points elsewhere, one missing at the end of its queue, two with wrong codes."""
    queues = [
        [one for one in ALL if one.topic == topic and one.is_queued] for topic in sorted({one.topic for one in ALL})
    ]
    sized, moved, missing = [max(queue, key=lambda one: one.offset) for queue in queues if len(queue) > 8][:3]
    _unit(units, sized)[8:12] = (sized.size + 1).to_bytes(4, "big")
    _unit(units, moved)[0:8] = (moved.place + 8).to_bytes(8, "big")
    _unit(units, missing)[:] = bytes(20)
    return {
        ("unit with a wrong size", sized.topic, sized.queue, sized.offset, sized.place),
        ("unit points elsewhere", moved.topic, moved.queue, moved.offset, moved.place),
        ("missing unit", missing.topic, missing.queue, missing.offset, missing.place),
        *wrong_tag_codes(units, {sized.place, moved.place, missing.place}),
    }


def wrong_tag_codes(units: dict[Path, bytearray], others: set[int]) -> Expected:
    """Of a message with a tag and of one without; a delayed one has a time there, of which nothing is told."""
    queued = [one for one in ALL if one.is_queued and one.place not in others]
    changed = [
        next(one for one in queued if one.topic != SCHEDULE_TOPIC and bool(one.tag) is is_tagged)
        for is_tagged in (True, False)
    ]
    delayed = next(one for one in queued if one.topic == SCHEDULE_TOPIC)
    for one in (*changed, delayed):
        _unit(units, one)[19] ^= 1
    return {("unit with a wrong tag code", one.topic, one.queue, one.offset, one.place) for one in changed}


def _unit(units: dict[Path, bytearray], one: Record) -> memoryview:
    files = sorted(
        path for path in units if path.parent.name == str(one.queue) and path.parent.parent.name == one.topic
    )
    file = [path for path in files if int(path.name) <= one.offset * 20][-1]
    at = one.offset * 20 - int(file.name)
    return memoryview(units[file])[at : at + 20]


@pytest.mark.parametrize("injuries", [[flipped_bit, cut_tail], [zeroed_pages, wrong_units]])
def test_an_audit_finds_exactly_the_injuries_that_were_planted(
    spark: SparkSession, tmp_path: Path, injuries: list[Callable[..., Expected]]
) -> None:
    store = copy_golden_store("clean", tmp_path / "store")
    (path,) = (store / "commitlog").iterdir()
    log = bytearray(path.read_bytes())
    units = {file: bytearray(file.read_bytes()) for file in sorted((store / "consumequeue").glob("*/*/*"))}
    expected: Expected = set()
    for injure in injuries:
        expected |= injure(log, units)
    path.write_bytes(log)
    for file, content in units.items():
        file.write_bytes(content)
    _, findings = audit(spark, store=str(store))
    found = [(one.kind, one.topic, one.queue_id, one.queue_offset, one.commit_log_offset) for one in findings]
    assert set(found) == expected
    assert len(found) == len(expected)
