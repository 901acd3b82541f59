"""Power cuts under SYNC_FLUSH: no acked message is lost, none comes back twice or changed.

A seed makes one run: puts of all kinds, flushes that overlap with puts, queue flushes, rolls, expiry. While it runs,
crash images are taken at random moments, also inside disk operations: every 4 KiB page that was not synced is kept,
dropped or torn, names that were not synced are there or not. Each image is opened like after a power cut and read
back. Some are written to again and crash a second time, because a torn tail left behind the end of the log could come
back to life then.

    COMETMQ_CRASH_IMAGES=20000    how many images (200; 600 in make verify, 20,000 in make soak)
    COMETMQ_CRASH_SEED=123        begin with this seed
"""

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.store import Store
from cometmq.wire.record.batch import encode_batch
from tests.support.length import count
from tests.support.whole_store import ROOT, open_store, read_queue

IMAGES = count("COMETMQ_CRASH_IMAGES", 200, 600, 20000)
FIRST_SEED = int(os.environ.get("COMETMQ_CRASH_SEED", "1"))
IMAGES_PER_RUN_MAX = 6
STEPS = 80

# (topic, queue, queue offset) to body
Messages = dict[tuple[str, int, int], bytes]


class Figures:
    def __init__(self) -> None:
        self.runs = 0
        self.images = 0
        self.second_crashes = 0
        self.acked = 0
        self.survived_unacked = 0


class Run:
    """One store on one disk: what was appended to it, and what of that was promised."""

    def __init__(self, store: Store, clock: ManualClock, chance: random.Random, options: dict[str, Any]) -> None:
        self.store = store
        self.clock = clock
        self.chance = chance
        self.options = options
        self.appended: Messages = {}
        self.acked: Messages = {}

    def step(self) -> None:
        act = self.chance.choices(
            (self._put, self._put_batch, self._flush, self._flush_while_putting, self._upkeep),
            (50, 8, 12, 20, 10),
        )[0]
        act()
        self.clock.advance(self.chance.choice((0, 0, 0.001, 0.02, 1.1)))

    def _put(self) -> None:
        topic = self.chance.choice(("Alpha", "Beta", "%RETRY%group"))
        queue_id = self.chance.randrange(2)
        body = self.chance.randbytes(self.chance.choice((0, 1, 30, 400, 3000, 9000)))
        properties = f"KEYS\x01key{self.chance.randrange(50)}\x02TAGS\x01T{self.chance.randrange(3)}\x02"
        request = AppendRequest(topic, queue_id, body, properties * self.chance.choice((0, 1, 1, 40)))
        self._note(request, self.store.put(request), [body])

    def _put_batch(self) -> None:
        bodies = [self.chance.randbytes(self.chance.randrange(500)) for _ in range(self.chance.randint(1, 12))]
        request = AppendRequest("Alpha", 0, encode_batch([(0, body, b"KEYS\x01b\x02") for body in bodies]))
        self._note(request, self.store.put_batch(request), bodies)

    def _note(self, request: AppendRequest, result: PutResult, bodies: list[bytes]) -> None:
        assert result.status == PutStatus.OK, result
        messages = {
            (request.topic, request.queue_id, result.queue_offset + number): body for number, body in enumerate(bodies)
        }
        self.appended |= messages

        def told(status: int) -> None:
            if status == PutStatus.OK:
                self.acked.update(messages)

        assert self.store.put_waiting(request, result, told)

    def _flush(self) -> None:
        self.store.flush_now()

    def _flush_while_putting(self) -> None:
        work = self.store.flusher.begin()
        for _ in range(self.chance.randrange(4)):
            self._put()
        if work is not None:
            work.run()
            self.store.flusher.finish(work)

    def _upkeep(self) -> None:
        acts = (self.store.write_queues, self._write_some_queues, self.store.flush_queues_now, self.store.allocate_now)
        self.chance.choice(acts)()

    def _write_some_queues(self) -> None:
        self.store.queues.round_queues_min = 1
        self.store.write_queues(thorough=False)


def contents(store: Store) -> Messages:
    found: Messages = {}
    for queue in store.queues.all():
        for number, message in enumerate(read_queue(store, queue.topic, queue.queue_id)):
            assert message.queue_offset == number, f"{queue.topic}-{queue.queue_id}: hole or repeat at {number}"
            found[queue.topic, queue.queue_id, number] = message.body
    return found


def check(image: FakeDisk, run: Run, figures: Figures) -> Run:
    """Open an image and compare it with what was promised when it was taken. Returns its second life."""
    clock = ManualClock(run.clock.now_ms())
    store = open_store(image, clock, flush_disk_type="SYNC_FLUSH", **run.options)
    assert store.recovered.damages == [], f"a power cut is no damage: {store.recovered.damages}"
    found = contents(store)
    lost = sorted(place for place in run.acked if place not in found)
    assert not lost, f"{len(lost)} acked messages lost, first {lost[0]}"
    foreign = sorted(place for place, body in found.items() if run.appended.get(place) != body)
    assert not foreign, f"{len(foreign)} messages that were not put like this, first {foreign[0]}"
    for topic, queue_id, next_offset in store.queues.next_offsets():
        assert store.log.counters.next_offset(topic, queue_id) == next_offset
    figures.images += 1
    figures.acked += len(run.acked)
    figures.survived_unacked += len(found) - len(run.acked)
    life = Run(store, clock, run.chance, run.options)
    # What was in doubt is decided: it was read, so it must stay.
    life.appended, life.acked = dict(found), dict(found)
    return life


def one_run(seed: int, figures: Figures) -> None:
    chance = random.Random(seed)
    clock = ManualClock()
    disk = FakeDisk(lazy_names=True, now_ms=clock.now_ms)
    segment_bytes = chance.choice((16_384, 32_768))
    options: dict[str, Any] = {"segment_bytes": segment_bytes, "queue_file_bytes": chance.choice((200, 2000))}
    run = Run(open_store(disk, clock, flush_disk_type="SYNC_FLUSH", **options), clock, chance, options)
    images_left = IMAGES_PER_RUN_MAX

    def maybe_cut(_operation: str = "", _path: str = "") -> None:
        nonlocal images_left
        if images_left and chance.random() < 0.04:
            images_left -= 1
            _cut(disk, run, chance.randrange(1 << 30), figures)

    disk.on_call = maybe_cut
    for _ in range(STEPS):
        run.step()
        maybe_cut()
    figures.runs += 1


def _cut(disk: FakeDisk, run: Run, seed: int, figures: Figures) -> None:
    """A power cut here and now, and for some a second one after some more work."""
    image = disk.crash(seed)
    life = check(image, run, figures)
    life.chance = random.Random(seed)
    if life.chance.random() < 0.5:
        for _ in range(life.chance.randint(1, 25)):
            life.step()
        check(image.crash(seed + 1), life, figures)
        figures.second_crashes += 1


def seeds() -> Iterator[int]:
    seed = FIRST_SEED
    while True:
        yield seed
        seed += 1


@pytest.mark.repeated
def test_no_acked_message_is_lost_in_a_power_cut(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures()
    for seed in seeds():
        if figures.images >= IMAGES:
            break
        try:
            one_run(seed, figures)
        except BaseException:
            replay = f"COMETMQ_CRASH_SEED={seed} COMETMQ_CRASH_IMAGES=1 pytest {os.path.relpath(__file__)}"
            print(f"failed with seed={seed}; replay: {replay}")
            raise
    with capsys.disabled():
        print(
            f"\npower cut: {figures.images} images of {figures.runs} runs, {figures.second_crashes} crashed twice; "
            f"0 of {figures.acked} acked messages lost, {figures.survived_unacked} unacked survived; "
            f"seeds from {FIRST_SEED}"
        )
    assert figures.images >= IMAGES
    assert figures.acked > figures.images
    assert figures.survived_unacked > 0, "images in which nothing unflushed survived test little"


@pytest.mark.parametrize("nth", range(1, 51))
def test_after_a_failed_flush_there_is_no_ack(nth: int, caplog: pytest.LogCaptureFixture) -> None:
    """EIO at the nth flush of the log: 0 acks from then on, sends get 14, reads go on, the log says why."""
    disk = FakeDisk()
    store = open_store(disk, segment_bytes=16_384, flush_disk_type="SYNC_FLUSH")
    syncs = 0
    failed = False

    def fail_nth(operation: str, path: str) -> None:
        nonlocal syncs, failed
        if operation == "sync" and "/commitlog/" in path:
            syncs += 1
            if syncs == nth:
                failed = True
                raise OSError(5, "Input/output error")

    disk.on_call = fail_nth
    acks_after, statuses_after, put_before = 0, set(), 0
    for number in range(70):
        was_failed = failed
        request = AppendRequest("Alpha", 0, b"%d" % number * 300)
        result = store.put(request)
        told: list[int] = []
        if result.status == PutStatus.OK:
            put_before += 1
            store.put_waiting(request, result, told.append)
            store.flush_now()
        final = told[0] if told else result.status
        if failed:
            acks_after += final == PutStatus.OK
            statuses_after.add(final)
        else:
            assert final == PutStatus.OK
        assert not (was_failed and result.status == PutStatus.OK)
    assert failed
    assert (acks_after, statuses_after) == (0, {PutStatus.SERVICE_NOT_AVAILABLE})
    assert len(read_queue(store, "Alpha")) == put_before - 1, "what was flushed can still be read"
    assert "lost trust in disk" in caplog.text
    assert f"{ROOT}/commitlog/" in caplog.text
    assert store.failure is not None
    store.close()
    assert syncs == nth, "never synced again"
    assert disk.exists(f"{ROOT}/abort")
