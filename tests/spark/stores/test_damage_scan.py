"""Scans of a log in pieces: they find what one scan of all finds, wherever the log is cut and whatever is broken."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cometmq.spark.stores import damage_scan, partitions
from cometmq.spark.stores.damage_scan import Damaged, Edges, Sound, join, scan_log
from cometmq.spark.stores.partitions import LogRange, StoreDirectory
from cometmq.store.disk import OsDisk
from cometmq.store.log.segments import Segment
from cometmq.wire.record.scan import OK, scan_record
from tests.support.golden import copy_golden_store, golden_messages, golden_store

WHOLE = 1 << 30


def scanned(store: StoreDirectory, piece_bytes: int) -> tuple[list[int], list[Damaged]]:
    """Places of the sound records, and the damages."""
    return collected(store, (found for part in store.log_ranges(piece_bytes) for found in scan_log(store, part)))


def collected(store: StoreDirectory, all_found: Iterable[object]) -> tuple[list[int], list[Damaged]]:
    places: list[int] = []
    edges: list[Edges] = []
    damages: list[Damaged] = []
    for found in all_found:
        if isinstance(found, Sound):
            places += found.place.tolist()
        elif isinstance(found, Damaged):
            damages.append(found)
        else:
            assert isinstance(found, Edges)
            edges.append(found)
    return places, join(store, edges, damages)


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_every_record_is_found_once_in_pieces_of_any_size(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StoreDirectory.at(str(golden_store(name)), "b")
    places, damages = scanned(store, WHOLE)
    assert damages == []
    assert len(places) >= 300
    for bytes_at_once in (1, 3000, 1 << 20):
        monkeypatch.setattr(damage_scan, "BYTES_AT_ONCE", bytes_at_once)
        assert scanned(store, 7001) == (places, [])
        assert scanned(store, 100_003) == (places, [])


def test_columns_say_what_a_scan_of_each_record_says() -> None:
    store = StoreDirectory.at(str(golden_store("clean")), "b")
    for start, path, size in store.log_files():
        segment = Segment(OsDisk().open(path, -1, create=False, allocate=False, writable=False), start)
        for found in scan_log(store, LogRange(start, start + size)):
            if not isinstance(found, Sound):
                continue
            for row, place in enumerate(found.place.tolist()):
                scan = scan_record(segment.view(), place - start, size, True)
                assert scan.kind == OK
                told = (found.topics[found.topic[row]], found.queue_id[row], found.queue_offset[row], found.size[row])
                assert told == (scan.topic, scan.queue_id, scan.queue_offset, scan.size)
        segment.close()


@pytest.mark.parametrize("seed", range(8))
def test_damage_is_told_once_wherever_the_log_is_cut(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    root = copy_golden_store("clean", tmp_path / "store")
    store = StoreDirectory.at(str(root), "b")
    good, _ = scanned(store, WHOLE)
    hit = sorted(chance.sample(range(2, len(good) - 2), 6))
    for number in hit:
        _injure(store, good[number], good[number + 1] - good[number], chance)
    places, damages = scanned(store, WHOLE)
    assert set(places) == set(good) - {good[number] for number in hit}
    assert {one.first for one in damages} >= {good[number] for number in hit if number - 1 not in hit}
    # Cut right before, inside and behind what is broken, too.
    around = {good[number] - store.log_files()[0][0] for number in hit}
    for piece_bytes in (4096, 7001, *(place for place in around if place > 4096)):
        assert scanned(store, piece_bytes) == (places, damages), piece_bytes


def _injure(store: StoreDirectory, place: int, size: int, chance: random.Random) -> None:
    """The whole record, its head, or one bit of its body."""
    start, path, _ = next(one for one in reversed(store.log_files()) if one[0] <= place)
    kind = chance.choice(["zeros", "head", "bit"])
    with open(path, "r+b") as file:
        file.seek(place - start)
        content = bytearray(file.read(size))
        if kind == "zeros":
            content[:] = bytes(size)
        elif kind == "head" or int.from_bytes(content[84:88], "big") == 0:
            content[:40] = bytes(40)
        else:
            content[88] ^= 0x10
        file.seek(place - start)
        file.write(content)


def test_units_are_read_across_files_and_end_where_the_files_end() -> None:
    store = StoreDirectory.at(str(golden_store("clean")), "b")
    one = max(golden_messages("clean"), key=lambda message: message["queueOffset"])
    first, units = store.units(one["topic"], one["queueId"])
    last = first + len(units)
    assert (store.unit_slice(one["topic"], one["queueId"], first, last) == units).all()
    assert (store.unit_slice(one["topic"], one["queueId"], first + 1, last - 1) == units[1:-1]).all()
    assert len(store.unit_slice("nothing", 0, 0, 10)) == 0


@pytest.mark.parametrize("block_units", [1, 7, 1 << 14])
def test_bounds_are_those_of_all_units(block_units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_BLOCK_UNITS", block_units)
    store = StoreDirectory.at(str(golden_store("clean")), "b")
    names = list(store.queues(lambda topic: True))
    for name in names:
        first, units = store.units(*name)
        assert store.unit_bounds(*name) == (first, first + len(units)), name
    assert any(len(store.units(*name)[1]) > 8 for name in names)
    assert store.unit_bounds("nothing", 0) == (0, 0)


def test_bounds_leave_out_units_of_messages_that_are_gone(tmp_path: Path) -> None:
    store = StoreDirectory.at(str(copy_golden_store("clean", tmp_path / "store")), "b")
    os.unlink(store.log_files()[0][1])
    for name in store.queues(lambda topic: True):
        first, units = store.units(*name)
        assert store.unit_bounds(*name) == (first, first + len(units)), name
