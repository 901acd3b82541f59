"""Wheel, timer log and timercheck together: what recovery makes of files that do not fit each other."""

from typing import Any

from cometmq.store.fake_disk import FakeDisk
from cometmq.store.timers.wheel import Slot
from tests.support.timing import START_MS, Bench, SteppingClock

STEP = START_MS // 1000


def with_messages(*delays_s: int, **options: Any) -> Bench:
    bench = Bench(timer_log_file_bytes=1 << 12, **options)
    for number, delay_s in enumerate(delays_s):
        bench.keep(b"%d" % number, delay_s * 1000)
    bench.turns()
    return bench


def image_of(bench: Bench) -> FakeDisk:
    return bench.fake.kill()


def zero(disk: FakeDisk, path: str, position: int) -> None:
    file = disk.open(f"/store/{path}", -1, create=False, allocate=False)
    file.pwrite(position, bytes(file.size - position))


def test_a_slot_chains_its_units_from_the_newest_to_the_oldest() -> None:
    bench = with_messages(5, 9, 5, 5)
    assert bench.files.wheel.get(STEP + 4) == Slot(STEP + 4, 0, 156, 3)
    assert bench.files.wheel.get(STEP + 8) == Slot(STEP + 8, 52, 52, 1)
    chain = []
    position = bench.files.last_at(START_MS + 4000)
    while position >= 0:
        unit = bench.files.log.unit(position)
        assert unit is not None
        chain.append(position)
        position = unit.previous
    assert chain == [156, 104, 0]


def test_units_that_were_written_after_the_last_flush_of_the_wheel_are_linked() -> None:
    bench = with_messages(5)
    bench.save()
    bench.keep(b"1", 5000)
    bench.keep(b"2", 8000)
    bench.turns()
    bench.files.log.files.write()
    again = bench.reopened(image_of(bench))
    assert again.files.wheel.get(STEP + 4) == Slot(STEP + 4, 0, 52, 2)
    assert again.files.wheel.get(STEP + 7) == Slot(STEP + 7, 104, 104, 1)
    assert (again.files.pending, again.files.queue_offset) == (3, 3)
    again.run(10)
    assert again.bodies() == [b"0", b"1", b"2"]


def test_what_was_only_in_memory_is_taken_from_the_queue_again() -> None:
    bench = with_messages(5)
    bench.save()
    bench.keep(b"1", 5000)
    bench.turns()
    again = bench.reopened(image_of(bench))
    assert (again.files.pending, again.files.queue_offset) == (1, 1)
    again.run(7)
    assert again.bodies() == [b"0", b"1"]


def test_units_of_messages_that_a_power_cut_took_do_not_come_back_with_other_messages() -> None:
    bench = with_messages(5)
    bench.save()
    end = bench.store.log.max_offset
    bench.keep(b"1", 5000)
    bench.turns()
    bench.files.log.files.write()
    image = image_of(bench)
    zero(image, "commitlog/00000000000000000000", end)
    again = bench.reopened(image)
    assert (again.files.log.end, again.files.queue_offset) == (52, 1)
    assert again.keep(b"2", 9000).end_offset == bench.store.log.max_offset, "in the very place of the lost one"
    arrived = again.run(12)
    assert [body for _, body in arrived] == [b"0", b"2"]
    assert arrived[1][0] >= 9000


def test_slots_that_point_behind_the_end_of_the_log_are_made_anew() -> None:
    bench = with_messages(5, 5, 9, 5, 12)
    bench.save()
    image = image_of(bench)
    zero(image, "timerlog/00000000000000000000", 104)
    again = bench.reopened(image)
    assert again.files.log.end == 104
    assert again.files.wheel.get(STEP + 4) == Slot(STEP + 4, 0, 52, 2)
    assert again.files.wheel.get(STEP + 8) is None
    assert again.files.wheel.get(STEP + 11) is None
    assert (again.files.pending, again.files.queue_offset) == (2, 2)
    again.run(15)
    assert again.bodies() == [b"0", b"1", b"3", b"2", b"4"]


def test_a_wheel_that_is_gone_is_made_from_the_whole_log() -> None:
    bench = with_messages(*[5 + number % 7 for number in range(300)])
    bench.close()
    before = {slot.step: slot for slot in bench.reopened().files.wheel.filled(1)}
    bench.disk.remove("/store/timerwheel")
    again = Bench(image_of(bench), SteppingClock(START_MS), timer_log_file_bytes=1 << 12)
    assert {slot.step: slot for slot in again.files.wheel.filled(1)} == before
    assert again.files.pending == 300


def test_progress_beyond_the_queue_is_corrected() -> None:
    bench = with_messages(5, 6, 7)
    bench.save()
    bench.files.queue_offset = 99
    bench.keep(b"3", 2000)
    bench.run(9)
    assert bench.files.queue_offset == 4
    progress = bench.files.check.saved._replace(queue_offset=99, master_queue_offset=99)
    bench.close()
    bench.files.check.write(progress)
    assert bench.reopened().files.queue_offset == 4


def test_a_store_that_is_new_begins_now() -> None:
    bench = Bench()
    assert bench.files.pending == 0
    bench.turns()
    assert bench.files.read_ms == START_MS
