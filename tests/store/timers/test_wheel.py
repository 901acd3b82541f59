"""The timer wheel and timercheck by their bytes, and slots that are in memory, under way to disk, or on it."""

import errno
import random
import struct
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.timers.progress import TimerCheck, TimerProgress
from cometmq.store.timers.wheel import WHEEL_SLOTS, Slot, TimerWheel
from tests.support.golden import StoreName, golden_store

PATH = "/store/timerwheel"
SLOTS = 5000


def flush(wheel: TimerWheel) -> None:
    wheel.begin_flush().run()
    wheel.end_flush(is_written=True)


def test_a_wheel_has_javas_length_and_costs_no_blocks(tmp_path: Path) -> None:
    path = tmp_path / "timerwheel"
    wheel = TimerWheel(OsDisk(), str(path))
    assert path.stat().st_size == 38_707_200
    wheel.put(Slot(1_700_000_000, 0, 52, 2))
    flush(wheel)
    assert path.stat().st_blocks * 512 <= 1 << 16


def test_a_slot_has_its_fields_at_its_place() -> None:
    disk = FakeDisk()
    wheel = TimerWheel(disk, PATH, SLOTS)
    wheel.put(Slot(SLOTS * 7 + 3, 104, 5200, 9))
    flush(wheel)
    content = disk.crash(1).read_bytes(PATH)
    assert content == bytes(96) + struct.pack(">qqqii", SLOTS * 7 + 3, 104, 5200, 9, 0) + bytes(SLOTS * 32 - 128)


def test_a_slot_of_another_lap_is_empty() -> None:
    wheel = TimerWheel(FakeDisk(), PATH, SLOTS)
    wheel.put(Slot(SLOTS + 3, 0, 0, 1))
    for _ in range(2):
        assert wheel.get(SLOTS + 3) == Slot(SLOTS + 3, 0, 0, 1)
        assert wheel.get(3) is None
        assert wheel.get(2 * SLOTS + 3) is None
        assert wheel.in_the_way(2 * SLOTS + 3, SLOTS)
        assert not wheel.in_the_way(2 * SLOTS + 3, SLOTS + 4), "it was delivered"
        assert not wheel.in_the_way(SLOTS + 3, SLOTS)
        assert not wheel.in_the_way(2 * SLOTS + 4, SLOTS)
        flush(wheel)


def test_a_cleared_slot_is_empty() -> None:
    disk = FakeDisk()
    wheel = TimerWheel(disk, PATH, SLOTS)
    wheel.put(Slot(9000, 0, 0, 1))
    flush(wheel)
    wheel.clear(9000)
    for _ in range(2):
        assert wheel.get(9000) is None
        assert wheel.next_filled(8000, 9500) is None
        assert list(wheel.filled(8000)) == []
        flush(wheel)


def test_slots_can_be_read_and_changed_while_they_are_written() -> None:
    disk = FakeDisk()
    wheel = TimerWheel(disk, PATH, SLOTS)
    wheel.put(Slot(9000, 0, 0, 1))
    work = wheel.begin_flush()
    assert wheel.get(9000) == Slot(9000, 0, 0, 1)
    assert not wheel.is_changed
    wheel.put(Slot(9000, 0, 52, 2))
    work.run()
    wheel.end_flush(is_written=True)
    assert wheel.get(9000) == Slot(9000, 0, 52, 2)
    assert TimerWheel(disk, PATH, SLOTS).get(9000) == Slot(9000, 0, 0, 1)
    assert wheel.is_changed


def test_what_could_not_be_written_stays_in_memory_below_what_is_newer() -> None:
    disk = FakeDisk()
    wheel = TimerWheel(disk, PATH, SLOTS)
    wheel.put(Slot(9000, 0, 0, 1))
    wheel.put(Slot(9001, 0, 0, 1))
    disk.fail("pwrite", 1)
    work = wheel.begin_flush()
    with pytest.raises(OSError, match=f"Errno {errno.EIO}"):
        work.run()
    wheel.put(Slot(9001, 0, 52, 2))
    wheel.end_flush(is_written=False)
    flush(wheel)
    again = TimerWheel(disk, PATH, SLOTS)
    assert (again.get(9000), again.get(9001)) == (Slot(9000, 0, 0, 1), Slot(9001, 0, 52, 2))


@pytest.mark.parametrize("seed", range(20))
def test_slots_are_found_in_order_wherever_they_are(seed: int) -> None:
    """Against a plain list; some on disk, some changed since, around the end of the file and over a whole lap."""
    chance = random.Random(seed)
    wheel = TimerWheel(FakeDisk(), PATH, SLOTS)
    low = chance.randrange(SLOTS, 3 * SLOTS)
    steps = {low + chance.randrange(SLOTS) for _ in range(chance.choice((1, 20, 300)))}
    for step in sorted(steps, key=lambda _: chance.random()):
        wheel.put(Slot(step, 0, 0, 1))
        if chance.random() < 0.02:
            flush(wheel)
    for old in [low - SLOTS + number for number in range(SLOTS) if low + number not in steps][:1000]:
        wheel.put(Slot(old, 0, 0, 1))  # an old lap, delivered
    if chance.random() < 0.5:
        flush(wheel)
    assert {slot.step for slot in wheel.filled(low)} == steps
    for high in (low + 30, low + 700, low + SLOTS, low + 9 * SLOTS):
        found: list[int] = []
        at = low
        while (next_step := wheel.next_filled(at, high)) is not None:
            found.append(next_step)
            at = next_step + 1
        assert found == sorted(step for step in steps if step < high), f"seed={seed} high={high}"


def test_a_file_of_another_length_is_refused_and_an_empty_one_is_made_anew() -> None:
    disk = FakeDisk()
    disk.open(PATH, 100, create=True, allocate=False)
    with pytest.raises(StoreError, match="has 100 bytes, expected"):
        TimerWheel(disk, PATH, SLOTS)
    disk.remove(PATH)
    disk.open(PATH, 0, create=True, allocate=False)
    assert TimerWheel(disk, PATH, SLOTS).is_new
    assert disk.size(PATH) == SLOTS * 32
    assert not TimerWheel(disk, PATH, SLOTS).is_new


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_golden_wheel_is_read_and_written_again_byte_for_byte(name: StoreName, tmp_path: Path) -> None:
    java = TimerWheel(OsDisk(), str(golden_store(name) / "timerwheel"))
    slots = sorted(java.filled(1))
    expected = {
        "clean": [
            (1794725599, 0, 0, 1),
            (1794725600, 52, 104, 2),
            (1794725601, 156, 208, 2),
            (1794725602, 260, 260, 1),
        ],
        "crash": [(1794725659, 0, 52, 2), (1794725660, 104, 156, 2), (1794725661, 208, 260, 2)],
    }
    assert slots == [Slot(*fields) for fields in expected[name]]
    assert java.next_filled(slots[0].step - WHEEL_SLOTS // 2, slots[-1].step) == slots[0].step
    own = TimerWheel(OsDisk(), str(tmp_path / "timerwheel"))
    for slot in slots:
        own.put(slot)
    flush(own)
    assert (tmp_path / "timerwheel").read_bytes() == (golden_store(name) / "timerwheel").read_bytes()


# timercheck


def test_timercheck_has_seven_fields_and_zeros_behind_them() -> None:
    disk = FakeDisk()
    check = TimerCheck(disk, "/store/config/timercheck")
    assert check.saved == TimerProgress()
    check.write(TimerProgress(1, 2, 3, 4, 5, 6, 1 << 40))
    content = disk.crash(0).read_bytes("/store/config/timercheck")
    assert content == struct.pack(">7q", 1, 2, 3, 4, 5, 6, 1 << 40) + bytes(4096 - 56)
    assert TimerCheck(disk, "/store/config/timercheck").saved == TimerProgress(1, 2, 3, 4, 5, 6, 1 << 40)


def test_an_empty_timercheck_reads_as_zeros() -> None:
    disk = FakeDisk()
    disk.open("/timercheck", 0, create=True, allocate=False)
    assert TimerCheck(disk, "/timercheck").saved == TimerProgress()


def test_the_golden_timercheck_is_read_and_written_again_byte_for_byte() -> None:
    java = TimerCheck(OsDisk(), str(golden_store("clean") / "config/timercheck"))
    assert java.saved == TimerProgress(1_794_725_632_000, 312, 6, 6, 0, 1_794_725_632_090, 47)
    disk = FakeDisk()
    TimerCheck(disk, "/timercheck").write(java.saved)
    assert disk.read_bytes("/timercheck") == (golden_store("clean") / "config/timercheck").read_bytes()
