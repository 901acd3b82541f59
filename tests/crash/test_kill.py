"""kill -9 at any moment: no acked message is lost, none is there twice, no queue offset is missing.

A writer process puts messages of every kind into a store directory and reports each ack. It is killed, from outside at
a random moment (also while it recovers from the death before) or by its own hand at a random call to the disk. Then a
copy of the directory is opened and read back: through all queues, by key, by physical offset. The next writer goes on
in the directory itself, so one crash follows the other; now and then one stops cleanly. Whatever was found once must
stay, acked or not.

    COMETMQ_KILLS=5000        how many kills (20; 100 in make verify, 5,000 in make soak)
    COMETMQ_KILL_SEED=123     begin with this seed; moments differ, because the kernel is not seeded
"""

from __future__ import annotations

import os
import random
import select
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import kinds
from tests.support.length import count
from tests.support.readback import Found, by_key, open_directory, read_all
from tests.support.writer import Ack, Life, Nursery, Order, acks_of

KILLS = count("COMETMQ_KILLS", 20, 100, 5000)
FIRST_SEED = int(os.environ.get("COMETMQ_KILL_SEED", random.SystemRandom().randrange(1_000_000)))
KILLS_PER_STORE = 10
SERIALS_PER_LIFE = 100_000
OLD_CHECKED_BY_KEY = 100


class Figures:
    def __init__(self) -> None:
        self.stores = 0
        self.kills = 0
        self.kills_in_recovery = 0
        self.clean_stops = 0
        self.acked = 0
        self.unacked_found = 0
        self.modes: set[str] = set()


def missing_in(found: Found, ack: Ack) -> str:
    """What of an acked put is not in its queue; "" if all of it is."""
    plan = ack.plan
    if not plan.in_queue:
        return ""
    for at, (key, _) in enumerate(plan.members):
        place = (plan.topic, plan.queue_id, ack.queue_offset + at)
        if found.get(place) != key:
            return f"{plan.kind} {key} was acked at {place}, where {found.get(place)} is"
    return ""


class Directory:
    """One store through its lives and deaths."""

    def __init__(self, seed: int, where: Path, figures: Figures) -> None:
        self.chance = random.Random(seed)
        self.path = where / f"store-{seed}"
        self.copy = where / f"copy-{seed}"
        self.path.mkdir()
        self.figures = figures
        self.lives = 0
        self.acked: list[Ack] = []
        self.found: Found = {}
        self.options: dict[str, Any] = {
            "flush_disk_type": ("ASYNC_FLUSH", "SYNC_FLUSH")[seed % 2],
            "segment_bytes": self.chance.choice((16_384, 65_536, 262_144)),
            "queue_file_bytes": self.chance.choice((400, 2000)),
            "batch_queue_file_bytes": self.chance.choice((460, 4600)),
            "index_slots": 500,
            "index_entries": self.chance.choice((700, 2000)),
            # The index file that was not full is made again from so many segments, and these are small.
            "recover_segments_max": 1000,
            "lmq_enabled": True,
            "multi_dispatch_enabled": True,
            # Often, so that each of them is under way at some of the deaths.
            "flush_interval_ms": 3,
            "flush_pages_min": self.chance.choice((0, 4)),
            "flush_thorough_interval_ms": self.chance.choice((10, 500)),
            "queue_flush_interval_ms": self.chance.choice((5, 30)),
            "queue_flush_thorough_interval_ms": self.chance.choice((20, 200, 60_000)),
        }

    def live_and_die(self, nursery: Nursery) -> None:
        first_serial = self.lives * SERIALS_PER_LIFE
        self.lives += 1
        reports = self._live(nursery, first_serial)
        new = acks_of(reports)
        self.figures.acked += len(new)
        if "closed" in reports:
            self.figures.clean_stops += 1
            assert not (self.path / "abort").exists()
        else:
            self.figures.kills += 1
            self.figures.kills_in_recovery += "open" not in reports
        self._check(new)

    def _live(self, nursery: Nursery, first_serial: int) -> list[Any]:
        """One life, with a death chosen by chance. Returns what it reported."""
        chance = self.chance
        way = chance.choices(("acks", "opening", "call", "clean"), (50, 15, 25, 10))[0]
        order = Order(
            str(self.path),
            first_serial,
            seed=chance.randrange(1 << 30),
            stop_after=chance.randint(0, 200) if way == "clean" else -1,
            die_at_call=chance.choice((100, 500, 2000)) * chance.randint(1, 100) // 100 if way == "call" else 0,
            store_host=chance.choice((kinds.V4_HOST, kinds.V6_HOST)).hex(),
            options=self.options,
        )
        life = nursery.start(order)
        try:
            if way == "acks":
                return _kill_after_acks(life, chance.randint(0, 500), chance.random() * 0.02)
            if way == "opening":
                return _kill_after(life, chance.random() * chance.choice((0.005, 0.05)))
            return _read_to_end(life)
        finally:
            life.kill()
            status = life.end()
            assert status == (0 if way == "clean" else -9), f"died by {way} with status {status}"

    def _check(self, new: list[Ack]) -> None:
        """Read the store back. The writers go on with the original, as the crash left it."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.path, self.copy)
        store = open_directory(str(self.copy), **self.options)
        assert store.recovered.damages == [], f"a kill is no damage: {store.recovered.damages}"
        found = read_all(store)
        lost = [what for ack in self.acked + new if (what := missing_in(found, ack))]
        assert not lost, f"{len(lost)} acked messages lost, first: {lost[0]}"
        gone = [place for place, key in self.found.items() if found.get(place) != key]
        assert not gone, f"{len(gone)} messages were there before, first: {gone[0]} {self.found[gone[0]]}"
        old = self.chance.sample(self.acked, min(OLD_CHECKED_BY_KEY, len(self.acked)))
        for ack in new + old:
            for key, physical_offset in ack.records():
                message = store.message_at(physical_offset)
                assert message is not None, f"{key} is not at {physical_offset}"
                assert kinds.key_of(message) == key
                assert not ack.plan.difference(message), f"{key} {ack.plan.difference(message)}"
                if ack.plan.is_indexed:
                    assert physical_offset in by_key(store, ack.plan.topic, key), f"{key} is not in the index"
        store.close()
        acked_places = sum(ack.plan.queue_count for ack in new)
        own_places = sum(topic not in kinds.LIGHT_TOPICS for topic, _, _ in found)
        before = sum(topic not in kinds.LIGHT_TOPICS for topic, _, _ in self.found)
        self.figures.unacked_found += own_places - before - acked_places
        self.acked += new
        self.found = found


def _kill_after_acks(life: Life, count: int, delay_s: float) -> list[Any]:
    reports: list[Any] = []
    while len(reports) < count + 2 and (more := life.read()) is not None:
        reports += more
    return reports + _kill_after(life, delay_s)


def _kill_after(life: Life, delay_s: float) -> list[Any]:
    """Meanwhile its reports are read: a writer that waits for its reader is killed at the same place each time."""
    reports: list[Any] = []
    end_s = time.monotonic() + delay_s
    while (left_s := end_s - time.monotonic()) > 0 and select.select([life], [], [], left_s)[0]:
        more = life.read()
        if more is None:
            return reports
        reports += more
    life.kill()
    return reports + _read_to_end(life)


def _read_to_end(life: Life) -> list[Any]:
    reports: list[Any] = []
    while (more := life.read()) is not None:
        reports += more
    return reports


@pytest.mark.repeated
@pytest.mark.mission("MF-04")
def test_no_acked_message_is_lost_by_kill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures()
    seed = FIRST_SEED
    began_s = time.monotonic()
    with Nursery() as nursery:
        while figures.kills < KILLS:
            directory = Directory(seed, tmp_path, figures)
            target = min(KILLS, figures.kills + KILLS_PER_STORE)
            try:
                while figures.kills < target:
                    directory.live_and_die(nursery)
            except BaseException:
                replay = f"COMETMQ_KILL_SEED={seed} COMETMQ_KILLS={KILLS_PER_STORE} pytest tests/crash/test_kill.py"
                print(f"failed in life {directory.lives} with seed={seed}: {directory.path}\nreplay: {replay}")
                raise
            figures.stores += 1
            figures.modes.add(directory.options["flush_disk_type"])
            shutil.rmtree(directory.path)
            shutil.rmtree(directory.copy)
            seed += 1
    with capsys.disabled():
        print(
            f"\nkill -9: {figures.kills} kills of {figures.stores} stores, {figures.kills_in_recovery} while opening, "
            f"{figures.clean_stops} clean stops; 0 of {figures.acked} acked puts lost, "
            f"{figures.unacked_found} unacked messages found; {time.monotonic() - began_s:.0f} s, "
            f"seeds from {FIRST_SEED}"
        )
    assert figures.kills >= KILLS
    assert figures.acked > 20 * KILLS
    assert KILLS < 50 or figures.kills_in_recovery > 0, "no kill hit a recovery"
    assert KILLS < 20 or figures.modes == {"ASYNC_FLUSH", "SYNC_FLUSH"}
