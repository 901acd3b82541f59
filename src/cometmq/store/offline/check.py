"""Verifying a store directory: log, consume queues and index against each other. Reads only.

    log       records back to back, each whole, matching its CRC, lying where it says; no file missing
    queues    unit n of a queue points to the record with queue offset n, with its size and tag code;
              numbers without gaps; nothing behind the last unit; no unit for a record that is not there
    index     every key of every record has its entry, every entry has its record, chains and slots are linked

While a broker runs, and after a crash, the newest messages may not be in their queues or in the index yet, and the
last bytes of queue files may be torn: recovery makes that good, so it is a note and no problem.

How many slots an index file has is not written anywhere; a file has four times as many entries as slots unless the
caller knows better.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import Final

from cometmq.errors import StoreError
from cometmq.names import SCHEDULE_TOPIC
from cometmq.store.disk import Disk, File
from cometmq.store.log.resync import Damage
from cometmq.store.offline.log_files import FoundRecord, LogFiles
from cometmq.store.queues.consume_queue import BLANK_SIZE, UNIT, UNIT_BYTES
from cometmq.store.queues.extension import is_address
from cometmq.store.queues.index import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.properties import Property, find
from cometmq.wire.record.sysflag import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLBACK, enters_consume_queue

PROBLEMS_MAX: Final = 100
_HEADER: Final = Struct(">qqqqii")
_ENTRY: Final = Struct(">iqii")
_I32: Final = Struct(">i")
_BLOCK_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_BLOCK_BYTES)
_BYTES_PER_SLOT: Final = SLOT_BYTES + 4 * ENTRY_BYTES


class Report:
    """`problems` has the first PROBLEMS_MAX of `problem_count`; `notes` are what recovery makes good."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.queues = 0
        self.units = 0
        self.index_files = 0
        self.index_entries = 0
        self.problem_count = 0
        self.problems: list[str] = []
        self.notes: list[str] = []

    def problem(self, text: str) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)


def check(disk: Disk, root: str, log: LogFiles, index_slots: int = 0) -> Report:
    report = Report()
    may_lag = disk.exists(os.path.join(root, "abort"))
    queues = _Queues(disk, os.path.join(root, "consumequeue"), report, may_lag)
    index = _IndexFiles(disk, os.path.join(root, "index"), report, index_slots, may_lag)
    for gap in log.gaps:
        report.problem(f"commitlog: {gap.reason} from {gap.start} to {gap.end}")
    end = log.start
    for found in log.walk():
        if isinstance(found, Damage):
            report.problem(f"commitlog: no record at {found.start}, the next one is at {found.end}: {found.reason}")
            queues.damaged = True
            continue
        report.records += 1
        end = found.physical_offset + found.scan.size
        queues.check(found)
        index.check(found)
    report.bytes = end - log.start
    queues.finish(end)
    index.finish(end)
    return report


class _QueueState:
    """One queue directory while the log goes by: which number is expected next, and the unit file that is open."""

    __slots__ = ("directory", "file_bytes", "starts", "next_number", "missing", "file", "file_start")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.directory = directory
        names = [name for name in disk.list_files(directory) if name.isdecimal() and len(name) == 20]
        self.starts = [int(name) for name in names]
        self.file_bytes = disk.size(os.path.join(directory, names[0])) if names else 0
        self.next_number = -1
        self.missing = 0
        self.file: File | None = None
        self.file_start = -1

    def unit(self, disk: Disk, number: int) -> tuple[int, int, int] | None:
        """None: there is no such unit."""
        data = self.read(disk, number * UNIT_BYTES, UNIT_BYTES)
        if len(data) < UNIT_BYTES:
            return None
        unit: tuple[int, int, int] = UNIT.unpack(data)
        return unit if unit[1] > 0 else None

    def read(self, disk: Disk, position: int, count: int) -> bytes:
        if not self.file_bytes:
            return b""
        start = position - position % self.file_bytes
        if start != self.file_start:
            if start not in self.starts:
                return b""
            self.close()
            path = os.path.join(self.directory, f"{start:020d}")
            self.file = disk.open(path, -1, create=False, allocate=False, writable=False)
            self.file_start = start
        assert self.file is not None
        return self.file.pread(position - start, count)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
            self.file_start = -1


class _Queues:
    def __init__(self, disk: Disk, root: str, report: Report, may_lag: bool) -> None:
        self.damaged = False
        self._disk = disk
        self._root = root
        self._report = report
        self._may_lag = may_lag
        self._states: dict[tuple[str, int], _QueueState] = {}
        self._open: list[_QueueState] = []
        for topic in disk.list_dirs(root):
            for name in disk.list_dirs(os.path.join(root, topic)):
                if name.isdecimal():
                    self._states[topic, int(name)] = _QueueState(disk, os.path.join(root, topic, name))

    def check(self, found: FoundRecord) -> None:
        scan = found.scan
        if not enters_consume_queue(scan.sys_flag) or scan.sys_flag & INNER_BATCH:
            return
        state = self._states.get((scan.topic, scan.queue_id))
        if state is None:
            state = _QueueState(self._disk, os.path.join(self._root, scan.topic, str(scan.queue_id)))
            self._states[scan.topic, scan.queue_id] = state
        where = f"consumequeue/{scan.topic}/{scan.queue_id}"
        number = scan.queue_offset
        if number == 0:
            # A topic that was made again: what was before is not in its queue any more.
            state.missing = 0
        elif number != state.next_number and state.next_number >= 0 and not self.damaged:
            self._report.problem(f"{where}: number {state.next_number} is missing, {number} follows in the log")
        state.next_number = number + 1
        unit = state.unit(self._disk, number)
        self._keep_few_open(state)
        if unit is None:
            state.missing += 1
            return
        if state.missing:
            self._report.problem(f"{where}: {state.missing} units before number {number} are missing")
            state.missing = 0
        self._report.units += 1
        self._compare(where, number, unit, found)

    def _compare(self, where: str, number: int, unit: tuple[int, int, int], found: FoundRecord) -> None:
        scan = found.scan
        tag = find(scan.properties, Property.TAGS)
        code = 0 if tag is None else java_string_hash(tag)
        same_code = unit[2] == code or is_address(unit[2]) or scan.topic == SCHEDULE_TOPIC
        if unit[:2] != (found.physical_offset, scan.size) or not same_code:
            self._report.problem(
                f"{where}: unit {number} is {unit}, the record says {(found.physical_offset, scan.size, code)}"
            )

    def _keep_few_open(self, state: _QueueState) -> None:
        if state not in self._open:
            self._open.append(state)
            if len(self._open) > 64:
                self._open.pop(0).close()

    def finish(self, log_end: int) -> None:
        """What lies behind the units that were looked at."""
        lagging = 0
        for (topic, queue_id), state in self._states.items():
            where = f"consumequeue/{topic}/{queue_id}"
            self._report.queues += bool(state.starts)
            lagging += state.missing
            if state.missing and not self._may_lag:
                self._report.problem(f"{where}: the last {state.missing} units are missing")
            begin = state.next_number - state.missing if state.next_number >= 0 else 0
            self._check_rest(where, state, max(0, begin), log_end)
            state.close()
        if lagging and self._may_lag:
            self._report.notes.append(f"{lagging} messages are not in their queues yet: recovery puts them there")

    def _check_rest(self, where: str, state: _QueueState, number: int, log_end: int) -> None:
        position = number * UNIT_BYTES
        while True:
            data = state.read(self._disk, position, _BLOCK_BYTES // UNIT_BYTES * UNIT_BYTES)
            if not data:
                return
            if data == _ZEROS[: len(data)]:  # as most of a queue's file is, which may be a large one
                position += len(data)
                continue
            for at in range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES):
                offset, size, _ = UNIT.unpack_from(data, at)
                if (offset or size) and size != BLANK_SIZE and state.next_number >= 0:
                    self._behind_the_end(where, (position + at) // UNIT_BYTES, offset, log_end)
                    return
            position += len(data)

    def _behind_the_end(self, where: str, number: int, offset: int, log_end: int) -> None:
        text = (
            f"{where}: unit {number} points to {offset}, where no record of this queue is (the log ends at {log_end})"
        )
        if self._may_lag:
            self._report.notes.append(text)
        else:
            self._report.problem(text)


class _IndexFiles:
    """Entries are in log order, so they go by together with the records."""

    def __init__(self, disk: Disk, directory: str, report: Report, slots: int, may_lag: bool) -> None:
        self._report = report
        self._may_lag = may_lag
        self._files = [
            _IndexFile(disk, os.path.join(directory, name), slots)
            for name in disk.list_files(directory)
            if name.isdecimal() and len(name) == 17
        ]
        self.enabled = bool(self._files)
        report.index_files = len(self._files)
        self._entries = self._walk()
        self._next = next(self._entries, None)
        self._missing: list[tuple[int, str]] = []
        # Files that were deleted with old segments, or after a crash, knew what comes before this.
        self._begin = self._next[0] if self._next is not None else 1 << 62

    def _walk(self) -> Iterator[tuple[int, int]]:
        """(physical offset, key hash) of every entry, checking the links on the way."""
        for file in self._files:
            for offset, key_hash in file.entries(self._report, self._may_lag):
                self._report.index_entries += 1
                yield offset, key_hash

    def check(self, found: FoundRecord) -> None:
        scan, offset = found.scan, found.physical_offset
        hashes: set[int] = set()
        while self._next is not None and self._next[0] <= offset:
            if self._next[0] == offset:
                hashes.add(self._next[1])
            elif self._next[0] >= self._begin:
                self._report.problem(f"index: an entry points to {self._next[0]}, where no record is")
            self._next = next(self._entries, None)
        if scan.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK or offset < self._begin:
            return
        for text in index_texts(scan.topic, scan.properties):
            text_hash = java_string_hash(text)
            if (0 if text_hash == -0x80000000 else abs(text_hash)) not in hashes:
                self._missing.append((offset, text))

    def finish(self, log_end: int) -> None:
        for file in self._files:
            file.close()
        if not self.enabled:
            return
        newest = self._files[-1].newest
        lagging = 0
        for offset, text in self._missing:
            if offset > newest and self._may_lag:
                lagging += 1
            else:
                self._report.problem(f"index: key {text!r} of the record at {offset} is missing")
        if lagging:
            self._report.notes.append(f"{lagging} keys are not in the index yet: recovery puts them there")
        while self._next is not None:
            text = f"index: an entry points to {self._next[0]}, the log ends at {log_end}"
            if self._may_lag:
                self._report.notes.append(text)
                break
            self._report.problem(text)
            self._next = next(self._entries, None)


def index_texts(topic: str, properties: str) -> Iterator[str]:
    """What a message is indexed under."""
    unique_key = find(properties, Property.UNIQ_KEY)
    if unique_key:
        yield f"{topic}#{unique_key}"
    for key in (find(properties, Property.KEYS) or "").split(" "):
        if key:
            yield f"{topic}#{key}"
    tag = find(properties, Property.TAGS)
    if tag:
        yield f"{topic}#T#{tag}"


class _IndexFile:
    def __init__(self, disk: Disk, path: str, slots: int) -> None:
        self.path = path
        self._file = disk.open(path, -1, create=False, allocate=False, writable=False)
        if not slots and (self._file.size - HEADER_BYTES) % _BYTES_PER_SLOT:
            raise StoreError(f"{path} has {self._file.size} bytes: say how many slots it has (--index-slots)")
        self.slots = slots or (self._file.size - HEADER_BYTES) // _BYTES_PER_SLOT
        header = self._file.pread(0, HEADER_BYTES)
        fields = _HEADER.unpack(header) if len(header) == HEADER_BYTES else (0,) * 6
        self.newest: int = fields[3]
        self.count: int = max(1, fields[5])

    def entries(self, report: Report, may_lag: bool) -> Iterator[tuple[int, int]]:
        entries_at = HEADER_BYTES + SLOT_BYTES * self.slots
        heads: dict[int, int] = {}
        number = 1
        while number < self.count:
            count = min(self.count - number, _BLOCK_BYTES // ENTRY_BYTES)
            data = self._file.pread(entries_at + ENTRY_BYTES * number, count * ENTRY_BYTES)
            for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
                key_hash, offset, _, previous = _ENTRY.unpack_from(data, at)
                slot = key_hash % self.slots
                if previous != heads.get(slot, 0):
                    report.problem(f"{self.path}: entry {number} links to {previous}, not to {heads.get(slot, 0)}")
                heads[slot] = number
                yield offset, key_hash
                number += 1
            if len(data) < count * ENTRY_BYTES:
                report.problem(f"{self.path}: {self.count - number} entries are beyond the end of the file")
                break
        self._check_slots(report, heads, may_lag)

    def _check_slots(self, report: Report, heads: dict[int, int], may_lag: bool) -> None:
        for first in range(0, self.slots, _BLOCK_BYTES // SLOT_BYTES):
            count = min(self.slots - first, _BLOCK_BYTES // SLOT_BYTES)
            data = self._file.pread(HEADER_BYTES + SLOT_BYTES * first, SLOT_BYTES * count)
            for at, (value,) in enumerate(_I32.iter_unpack(data)):
                # A broker that is running may have added entries since the header was read.
                if value != heads.get(first + at, 0) and (value < self.count or not may_lag):
                    report.problem(f"{self.path}: slot {first + at} is {value}, not {heads.get(first + at, 0)}")

    def close(self) -> None:
        self._file.close()
