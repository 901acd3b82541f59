"""What the store does in a second, beside what the machine could do at most.

    python -m benchmarks.store [--dir DIR] [--messages N] [-o json]
    PYTHONPATH=build/compiled python -m benchmarks.store              the compiled build

Every figure stands beside a limit that is measured in the same run, on the same disk:

    append, batch, put    copying as many bytes into the same kind of map, without a record around them
    group commit          fdatasync after a write of one page, one after the other; `disk_busy` is the share of the time
                          in which the fdatasync of a group was under way
    read                  pread of the same bytes
    recovery              CRC over the same bytes, which recovery cannot do without

`append` is the log alone, `put` is what a broker calls: with consume queue and index. Rates are per second of wall
time, `cpu_us` is CPU of this process for each message; on a busy machine trust the latter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from typing import Any

from cometmq.clock import SystemClock
from cometmq.net.loop import run
from cometmq.store.background import Background
from cometmq.store.disk import OsDisk, OsFile
from cometmq.store.log import commit_log
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.results import GetStatus, PutStatus
from cometmq.store.store import Store
from cometmq.wire.record.batch import encode_batch

BODY = bytes(range(256)) * 4
BATCH = 32
WAITERS = 64
SEGMENT_BYTES = 256 << 20
TOPIC = "BenchmarkTest"
PROPERTIES = (
    "UNIQ_KEY\x017F0000010C2B18B4AAC200000000{:04X}\x02KEYS\x01key{}\x02TAGS\x01TagA\x02"
    "CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02"
)
# Figures that only some lines have.
EXTRA = ("acks_per_fdatasync", "disk_busy", "messages_per_s")

Figure = dict[str, Any]


class Timer:
    """Wall and CPU seconds of a block."""

    def __enter__(self) -> Timer:
        self._wall_s = time.perf_counter()
        self._cpu_s = time.process_time()
        return self

    def __exit__(self, *_error: object) -> None:
        self.wall_s = time.perf_counter() - self._wall_s
        self.cpu_s = time.process_time() - self._cpu_s


class TimedDisk(OsDisk):
    """Notes how long syncs of the log are under way, until the thread that asked for one goes on."""

    def __init__(self) -> None:
        self.syncing_s = 0.0

    def open(self, path: str, size: int, *, create: bool, allocate: bool, writable: bool = True) -> OsFile:
        file = super().open(path, size, create=create, allocate=allocate, writable=writable)
        sync = file.sync
        if "commitlog" not in path:
            return file

        def timed_sync() -> None:
            with Timer() as timer:
                sync()
            self.syncing_s += timer.wall_s

        file.sync = timed_sync  # type: ignore[method-assign]
        return file


def open_store(root: str, disk: OsDisk | None = None, **options: Any) -> Store:
    settings = StoreOptions(root_dir=root, segment_bytes=SEGMENT_BYTES, **options)
    return Store(settings, disk or OsDisk(), SystemClock())


def requests(count: int) -> list[AppendRequest]:
    made = [AppendRequest(TOPIC, n % 8, BODY, PROPERTIES.format(n, n), born_time_ms=n) for n in range(512)]
    return [made[number % 512] for number in range(count)]


def rate(name: str, count: int, timer: Timer, limit: float, limit_name: str, unit: str = "messages/s") -> Figure:
    per_second = count / timer.wall_s
    return {
        "name": name,
        "rate": round(per_second),
        "unit": unit,
        "cpu_us": round(timer.cpu_s / count * 1e6, 2),
        "limit": round(limit),
        "limit_name": limit_name,
        "of_limit": round(per_second / limit, 3),
    }


def measure_puts(root: str, count: int) -> list[Figure]:
    """Appends of single messages and of batches, and puts with all that follows."""
    record_bytes = 0
    figures: list[Figure] = []
    todo = requests(count)
    acts: list[tuple[str, Callable[[Store], Callable[[AppendRequest], Any]]]] = [
        ("append, 1 KiB", lambda store: store.log.append),
        ("put, 1 KiB", lambda store: store.put),
    ]
    copy_rate = 0.0
    for name, pick in acts:
        store = open_store(f"{root}/{name[:3]}")
        store.allocate_now()
        act = pick(store)
        record_bytes = act(todo[0]).record_bytes
        copy_rate = copy_rate or copies_per_second(root, record_bytes, count)
        with Timer() as timer:
            for request in todo:
                act(request)
        assert store.log.metrics.messages == count + 1
        figures.append(rate(name, count, timer, copy_rate, "memcpy into a map"))
        store.flush_now()
        store.close()
    store = open_store(f"{root}/batch")
    store.allocate_now()
    body = encode_batch([(0, BODY, PROPERTIES.format(n, n).encode()) for n in range(BATCH)])
    batches = count // BATCH
    with Timer() as timer:
        for number in range(batches):
            store.log.append_batch(AppendRequest(TOPIC, number % 8, body))
    figures.append(rate(f"append, batches of {BATCH}", batches * BATCH, timer, copy_rate, "memcpy into a map"))
    store.close()
    return figures


def copies_per_second(root: str, record_bytes: int, count: int) -> float:
    """The same bytes, the same fresh pages, nothing else."""
    size = SEGMENT_BYTES
    file = OsDisk().open(f"{root}/copy", size, create=True, allocate=True)
    view = memoryview(file.map())
    record = bytes(record_bytes)
    count = min(count, size // record_bytes)
    with Timer() as timer:
        position = 0
        for _ in range(count):
            view[position : position + record_bytes] = record
            position += record_bytes
    del view
    file.close()
    os.unlink(f"{root}/copy")
    return count / timer.wall_s


class Producers:
    """Clients that send one message after the other; who is told OK sends again in the loop's next turn.

    They cost next to nothing, so that what is measured is the store.
    """

    def __init__(self, store: Store, todo: list[AppendRequest]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._call_soon = asyncio.get_running_loop().call_soon
        self._store = store
        self._todo = todo
        self._unanswered = len(todo)
        self._ready = 0

    def start(self, count: int) -> None:
        self._ready = count
        self._send()

    def _send(self) -> None:
        store, todo, told = self._store, self._todo, self._told
        count, self._ready = min(self._ready, len(todo)), 0
        for _ in range(count):
            request = todo.pop()
            store.put_waiting(request, store.put(request), told)

    def _told(self, status: int) -> None:
        assert status == PutStatus.OK
        self._unanswered -= 1
        self._ready += 1
        if self._ready == 1:
            self._call_soon(self._send)
        if self._unanswered == 0:
            self.done.set_result(None)


def measure_group_commit(root: str, count: int) -> list[Figure]:
    """64 clients that send one message after the other under SYNC_FLUSH, on the loop that a broker has."""
    sync_rate = syncs_per_second(root)

    async def main() -> list[Figure]:
        disk = TimedDisk()
        store = open_store(f"{root}/sync", disk, flush_disk_type="SYNC_FLUSH")
        background = Background(store, asyncio.get_running_loop().call_soon_threadsafe)
        background.start()
        producers = Producers(store, requests(count))
        with Timer() as timer:
            producers.start(WAITERS)
            await producers.done
        flushes, syncing_s = store.flusher.flushes, disk.syncing_s
        background.stop()
        store.close()
        acks = rate(f"acks, {WAITERS} waiters", count, timer, sync_rate * WAITERS, "fdatasync/s * waiters", "acks/s")
        commits = rate("group commits", flushes, timer, sync_rate, "bare fdatasync", "fdatasync/s")
        commits["acks_per_fdatasync"] = round(count / flushes, 1)
        commits["disk_busy"] = f"{syncing_s / timer.wall_s:.0%}"
        return [acks, commits]

    return run(main())


def syncs_per_second(root: str) -> float:
    file = OsDisk().open(f"{root}/syncs", 16 << 20, create=True, allocate=True)
    view = memoryview(file.map())
    count = 0
    with Timer() as timer:
        while time.perf_counter() - timer._wall_s < 1.0 and count < 4000:
            view[count * 4096 : count * 4096 + 16] = bytes(range(16))
            file.sync()
            count += 1
    del view
    file.close()
    os.unlink(f"{root}/syncs")
    return count / timer.wall_s


def measure_reads(root: str, count: int) -> list[Figure]:
    store = open_store(f"{root}/read")
    for request in requests(count):
        store.put(request)
    found = 0
    read_bytes = 0
    with Timer() as timer:
        for queue_id in range(8):
            offset = 0
            while True:
                result = store.get(TOPIC, queue_id, offset, 32)
                assert result is not None
                if result.status != GetStatus.FOUND:
                    break
                found += result.count
                read_bytes += sum(len(piece) for piece in result.slices)
                offset = result.next_offset
    assert found == count
    per_message = read_bytes / found
    read_rate = preads_per_second(store.segments.segments[0].file.path, read_bytes) / per_message
    figure = rate("sequential get, 32 each", found, timer, read_rate, "pread of the same bytes")
    return [figure, measure_recovery(store, read_bytes)]


def preads_per_second(path: str, count: int) -> float:
    """Bytes a second."""
    descriptor = os.open(path, os.O_RDONLY)
    done = 0
    with Timer() as timer:
        while done < count:
            data = os.pread(descriptor, 65_536, done % (SEGMENT_BYTES - 65_536))
            done += len(data)
    os.close(descriptor)
    return done / timer.wall_s


def measure_recovery(store: Store, log_bytes: int) -> Figure:
    """Open the store as after a kill: everything is scanned, checked and dispatched again.

    The log is on disk, as all but its last seconds is in a broker. What is not has to be written first, at the speed
    of the disk, which is not measured here.
    """
    root = store.options.root_dir
    store.segments.flush(0)
    store._lock.release()
    with Timer() as timer:
        again = open_store(root)
    assert again.crashed
    assert again.log.max_offset == store.log.max_offset
    view = again.segments.segments[0].view()
    count = min(log_bytes, SEGMENT_BYTES)
    with Timer() as crc_timer:
        zlib.crc32(view[:count])
    again.close()
    figure = rate("recovery", log_bytes, timer, count / crc_timer.wall_s, "CRC of the same bytes", "MB/s")
    figure |= {
        "rate": round(log_bytes / timer.wall_s / 1e6, 1),
        "limit": round(count / crc_timer.wall_s / 1e6, 1),
        "messages_per_s": round(again.recovered.records / timer.wall_s),
        "cpu_us": round(timer.cpu_s / again.recovered.records * 1e6, 2),
    }
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--dir", default=None, help="where to write; the default is the temporary directory")
    parser.add_argument("--messages", type=int, default=150_000)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    root = tempfile.mkdtemp(prefix="cometmq-bench-", dir=arguments.dir)
    try:
        figures = measure_puts(root, arguments.messages)
        figures += measure_group_commit(root, min(arguments.messages, 30_000))
        figures += measure_reads(root, arguments.messages)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    compiled = not str(commit_log.__file__).endswith(".py")
    if arguments.output == "json":
        print(json.dumps({"compiled": compiled, "messages": arguments.messages, "figures": figures}))
        return
    print(f"{'compiled' if compiled else 'interpreted'}, {arguments.messages} messages of {len(BODY)} bytes")
    for figure in figures:
        extra = [f"{key} {figure[key]}" for key in EXTRA if key in figure]
        print(
            f"{figure['name']:26} {figure['rate']:>10} {figure['unit']:12} {figure['cpu_us']:>7} us cpu   "
            f"{figure['of_limit']:>6.1%} of {figure['limit']} ({figure['limit_name']}) {' '.join(extra)}"
        )


if __name__ == "__main__":
    main()
