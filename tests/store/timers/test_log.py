"""The timer log by its bytes: units, ends of files, chains, and what recovery makes of damage."""

import struct

import pytest

from cometmq.errors import StoreError
from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.timers.log import KIND_DEFAULT, KIND_DELETE, KIND_ROLL, UNIT_BYTES, TimerLog, TimerUnit
from tests.support.golden import StoreName, golden_store

DIRECTORY = "/store/timerlog"
FILE_BYTES = 300  # five units and a mark
EVERYTHING = 1 << 62


def unit(number: int, previous: int = -1, kind: int = KIND_DEFAULT) -> TimerUnit:
    return TimerUnit(previous, kind, 1000, 5000, number * 100, 100, -7)


def written(disk: FakeDisk, count: int) -> TimerLog:
    log = TimerLog(disk, DIRECTORY, FILE_BYTES)
    for number in range(count):
        log.append(unit(number))
    log.files.write()
    return log


def reopened(disk: FakeDisk, position: int = 0, log_end: int = EVERYTHING) -> tuple[TimerLog, list[tuple[int, int]]]:
    """The log after recovery, and (position, physical offset) of what recovery saw."""
    log = TimerLog(disk, DIRECTORY, FILE_BYTES)
    log.load()
    seen: list[tuple[int, int]] = []
    log.recover(position, log_end, lambda at, found: seen.append((at, found.physical_offset)))
    return log, seen


def test_a_unit_has_its_fields_at_their_places() -> None:
    disk = FakeDisk()
    log = TimerLog(disk, DIRECTORY, FILE_BYTES)
    assert log.append(TimerUnit(-1, KIND_DEFAULT | KIND_ROLL, 1 << 41, 86_400_000, 1 << 40, 357, -147100635)) == 0
    log.files.write()
    content = disk.read_bytes(f"{DIRECTORY}/00000000000000000000")
    expected = struct.pack(">iqiqiqiiq", 52, -1, 3, 1 << 41, 86_400_000, 1 << 40, 357, -147100635, 0)
    assert content == expected + bytes(FILE_BYTES - 52)


def test_a_file_without_room_for_a_unit_and_a_mark_ends_with_the_mark() -> None:
    disk = FakeDisk()
    log = written(disk, 6)
    first = disk.read_bytes(f"{DIRECTORY}/00000000000000000000")
    assert first[260:276] == struct.pack(">iqI", 40, 0, 0xCBD43194)
    assert first[276:] == bytes(24)
    assert log.unit(300) == unit(5)
    assert log.end == 352


@pytest.mark.parametrize("file_bytes", range(68, 68 + 2 * UNIT_BYTES))
def test_every_file_size_gives_back_what_was_written(file_bytes: int) -> None:
    disk = FakeDisk()
    log = TimerLog(disk, DIRECTORY, file_bytes)
    positions = [log.append(unit(number)) for number in range(9)]
    log.files.write()
    again = TimerLog(disk, DIRECTORY, file_bytes)
    again.load()
    seen: list[int] = []
    again.recover(0, EVERYTHING, lambda at, _: seen.append(at))
    assert seen == positions
    assert again.end == log.end
    assert again.last_position() == positions[-1]
    assert [again.unit(position) for position in positions] == [unit(number) for number in range(9)]
    assert again.append(unit(9)) == log.append(unit(9))


def test_units_are_read_whether_they_are_in_memory_or_in_the_file() -> None:
    log = TimerLog(FakeDisk(), DIRECTORY, 1 << 16)
    for number in range(200):
        log.append(unit(number))
        if number == 120:
            log.files.write()
    for number in (0, 119, 120, 121, 199, 64, 63, 5):
        assert log.unit(number * UNIT_BYTES) == unit(number)
    assert log.unit(200 * UNIT_BYTES) is None
    assert log.unit(-52) is None
    assert log.unit(26) is None, "not where a unit starts"


def test_recovery_cuts_behind_the_last_sound_unit() -> None:
    disk = FakeDisk()
    written(disk, 12)
    file = disk.open(f"{DIRECTORY}/00000000000000000300", -1, create=False, allocate=False)
    file.pwrite(2 * UNIT_BYTES, bytes(4))
    log, seen = reopened(disk)
    assert [at for at, _ in seen] == [0, 52, 104, 156, 208, 300, 352]
    assert log.end == 404
    assert disk.list_files(DIRECTORY) == ["00000000000000000000", "00000000000000000300"]
    assert log.append(unit(7)) == 404
    log.files.write()
    assert reopened(disk)[0].end == 456, "nothing behind the cut came back"


@pytest.mark.parametrize(
    "bad",
    [
        TimerUnit(-1, 16, 1000, 5000, 0, 100, 0),
        TimerUnit(-1, 0, 1000, 5000, 0, 100, 0),
        TimerUnit(104, 1, 1000, 5000, 0, 100, 0),
        TimerUnit(-2, 1, 1000, 5000, 0, 100, 0),
        TimerUnit(-1, 1, 1000, 5000, -1, 100, 0),
        TimerUnit(-1, 1, 1000, 5000, 0, 0, 0),
    ],
)
def test_what_is_no_sound_unit_ends_the_log(bad: TimerUnit) -> None:
    disk = FakeDisk()
    log = written(disk, 2)
    log.append(bad)
    log.files.write()
    assert reopened(disk)[0].end == 104


def test_units_of_messages_that_the_commit_log_lost_are_dropped() -> None:
    disk = FakeDisk()
    written(disk, 8)
    log, seen = reopened(disk, log_end=650)
    assert [offset for _, offset in seen] == [0, 100, 200, 300, 400, 500]
    assert log.last_position() == 300


def test_recovery_reads_from_the_file_of_the_position_it_is_given_and_always_the_last_one() -> None:
    disk = FakeDisk()
    written(disk, 12)
    assert [at for at, _ in reopened(disk, position=310)[1]] == [300, 352, 404, 456, 508, 600, 652]
    assert [at for at, _ in reopened(disk, position=EVERYTHING)[1]] == [600, 652]


def test_an_empty_log_and_an_empty_file() -> None:
    disk = FakeDisk()
    log, seen = reopened(disk)
    assert (log.end, log.last_position(), seen) == (0, -1, [])
    disk.open(f"{DIRECTORY}/00000000000000000000", FILE_BYTES, create=True, allocate=False)
    log, seen = reopened(disk)
    assert (log.end, log.last_position(), seen) == (0, -1, [])


@pytest.mark.parametrize(("log_min", "left"), [(0, 3), (400, 3), (401, 2), (900, 2), (901, 1), (EVERYTHING, 1)])
def test_files_go_when_all_their_messages_are_gone(log_min: int, left: int) -> None:
    disk = FakeDisk()
    log = written(disk, 12)
    assert log.delete_expired(log_min) == 3 - left
    assert len(disk.list_files(DIRECTORY)) == left
    assert log.unit(log.first) is not None


def test_what_kinds_mean() -> None:
    assert not unit(0).is_roll
    assert not unit(0).is_delete
    assert unit(0, kind=KIND_DEFAULT | KIND_ROLL).is_roll
    assert unit(0, kind=KIND_DEFAULT | KIND_DELETE).is_delete
    assert unit(0).time_ms == 6000


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_golden_log_is_read_and_written_again_byte_for_byte(name: StoreName) -> None:
    path = golden_store(name) / "timerlog"
    java = TimerLog(OsDisk(), str(path), 102_400)
    java.load()
    units: list[TimerUnit] = []
    # A cut would write to the golden files: the scan is enough.
    java._scan_file(0, EVERYTHING, lambda _, found: units.append(found))
    assert len(units) == 6
    disk = FakeDisk()
    own = TimerLog(disk, DIRECTORY, 102_400)
    for found in units:
        own.append(found)
    own.files.write()
    assert disk.read_bytes(f"{DIRECTORY}/00000000000000000000") == (path / "00000000000000000000").read_bytes()


def test_the_last_unit_is_found_when_the_next_file_has_none_yet() -> None:
    disk = FakeDisk()
    written(disk, 6)
    file = disk.open(f"{DIRECTORY}/00000000000000000300", -1, create=False, allocate=False)
    file.pwrite(0, bytes(UNIT_BYTES))
    log, _ = reopened(disk)
    assert (log.end, log.last_position()) == (300, 208)
    disk.remove(f"{DIRECTORY}/00000000000000000300")
    log, _ = reopened(disk)
    assert (log.end, log.last_position()) == (300, 208)


def test_a_log_goes_on_with_the_size_that_its_files_have(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeDisk()
    written(disk, 6)
    other = TimerLog(disk, DIRECTORY, 1000)
    other.load()
    other.recover(0, EVERYTHING, lambda _position, _unit: None)
    assert (other.end, other.unit(300)) == (352, unit(5))
    assert "kept size of timer log files" in caplog.text
    assert "file_bytes=300 instead_of mappedFileSizeTimerLog=1000" in caplog.text
    for number in range(6, 11):
        other.append(unit(number))
    other.files.write()
    assert reopened(disk)[0].unit(600) == unit(10)


def test_files_of_different_sizes_are_refused() -> None:
    disk = FakeDisk()
    written(disk, 6)
    disk.open(f"{DIRECTORY}/00000000000000000600", 1000, create=True, allocate=False).close()
    with pytest.raises(StoreError, match="1000 bytes, but the file size is set to 300"):
        TimerLog(disk, DIRECTORY, FILE_BYTES).load()
