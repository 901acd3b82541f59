"""The key index: from a key, a unique id or a tag to the messages that carry it.

    index/<time of creation, yyyyMMddHHmmssSSS, local time>        40 + 4 * slots + 20 * entries bytes

     0  begin time, ms    8      24  end offset     8        slot:   number of its newest entry, 0 for none    4
     8  end time, ms      8      32  slots in use   4        entry:  key hash                                  4
    16  begin offset      8      36  next entry     4                physical offset                           8
    40  slots, then entries                                          seconds since begin time                  4
                                                                     previous entry of the slot, 0 for none    4

Entry 0 is never used, so a full file holds one less than it has room for. Hashed are `topic#key` for the unique id
and every key, and `topic#T#tag` for the tag. Two keys may have the same hash: who asks must compare the real keys.

A file is mapped for writing, so its blocks are owned before they are touched: header and slots when it is made, entries
ahead of need in pieces; a full disk shows as DiskFull and not as SIGBUS. Queries read with pread(): they may run in
another thread.

A file that became full is synced. Its end time goes to the checkpoint when the log is flushed as far as the file knows
it: after a crash a file that ends later, or is not full, is deleted and made again from the log. The keys of one
message may lie in two files; if the second is lost, those keys are put again.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from struct import Struct
from typing import TYPE_CHECKING, Final, SupportsIndex

from cometmq.clock import Clock
from cometmq.errors import StoreError
from cometmq.store.disk import Disk, File
from cometmq.store.options import StoreOptions
from cometmq.wire.hashing import hash_on
from cometmq.wire.record.plain_scan import KeyPositions

if TYPE_CHECKING:
    from mypy_extensions import i64

log = logging.getLogger(__name__)

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
_HEADER: Final = Struct(">qqqqii")
_ENTRY: Final = Struct(">iqii")
_THREE_ENTRIES: Final = Struct(">iqiiiqiiiqii")
_I32: Final = Struct(">i")
_I32_MAX: Final = 0x7FFFFFFF
# Compiled code turns the bytes of a slot round itself: 0.07 us for reading and writing it, 0.15 us with a Struct.
# Interpreted, the Struct is faster: 0.12 us against 0.39 us.
_TURNS_BYTES: Final = sys.byteorder == "little" and not __file__.endswith(".py")
_AHEAD_BYTES: Final = 4 << 20
# 150 bytes for a topic with a tag. Too small for the topics in use, the table would be emptied again and again.
_TOPICS_CACHED_MAX: Final = 16_000
_TAGS_CACHED_MAX: Final = 50
_TAGS_CACHED_TOTAL_MAX: Final = 100_000
_NAME_DIGITS: Final = 17

KEY: Final = "K"
TAG: Final = "T"


class IndexFile:
    __slots__ = (
        "file",
        "slots",
        "entries",
        "begin_time_ms",
        "end_time_ms",
        "begin_offset",
        "end_offset",
        "slots_used",
        "count",
        "synced",
        "_map",
        "_slot_words",
        "_reserved_bytes",
    )

    def __init__(self, file: File, slots: int, entries: int) -> None:
        self.file: File = file
        self.slots: int = slots
        self.entries: int = entries
        self.synced: bool = False
        self._map: memoryview | None = None
        self._slot_words: memoryview | None = None
        self._reserved_bytes: int = 0
        fields: tuple[int, int, int, int, int, int] = _HEADER.unpack(file.pread(0, HEADER_BYTES))
        self.begin_time_ms: int = fields[0]
        self.end_time_ms: int = fields[1]
        self.begin_offset: int = fields[2]
        self.end_offset: int = fields[3]
        self.slots_used: int = fields[4]
        self.count: int = max(1, fields[5])

    @property
    def is_full(self) -> bool:
        return self.count >= self.entries

    @property
    def room(self) -> int:
        return self.entries - self.count

    @property
    def takes_three(self) -> bool:
        """Room for three entries, none of which is the first, which is special."""
        return self.count > 1 and self.entries - self.count >= 3

    def continue_from(self, end_offset: int, end_time_ms: int) -> None:
        """A new file starts where the one before it ended."""
        self._reserve(HEADER_BYTES + SLOT_BYTES * self.slots)
        self.begin_offset = self.end_offset = end_offset
        self.begin_time_ms = self.end_time_ms = end_time_ms
        self._write_header(0)

    def put(self, key_hashes: list[int], physical_offset: int, store_time_ms: int) -> None:
        """Add entries; the file must have `room` for them. DiskFull if there are no blocks for more entries.

        The header still has to be written.
        """
        number = self.count
        entry_at = HEADER_BYTES + SLOT_BYTES * self.slots + ENTRY_BYTES * number
        if entry_at + ENTRY_BYTES * len(key_hashes) > self._reserved_bytes:
            self.make_room(len(key_hashes))
        view = self._map
        assert view is not None
        seconds = 0
        if 0 < self.begin_time_ms < store_time_ms:
            seconds = min((store_time_ms - self.begin_time_ms) // 1000, _I32_MAX)
        for key_hash in key_hashes:
            previous = self._swap_slot(view, key_hash % self.slots, number)
            _ENTRY.pack_into(view, entry_at, key_hash, physical_offset, seconds, previous)
            if number <= 1:
                # The first entry alone still counts from the end of the file before, as in RocketMQ.
                self.begin_offset = physical_offset
                self.begin_time_ms = store_time_ms
                seconds = 0
            number += 1
            entry_at += ENTRY_BYTES
        self.count = number
        self.end_offset = physical_offset
        self.end_time_ms = store_time_ms

    def put_three(self, first: int, second: int, third: int, physical_offset: int, store_time_ms: int) -> None:
        """The same for the common message, in a file that `takes_three`: 0.4 us less (compiled)."""
        number = self.count
        entry_at = HEADER_BYTES + SLOT_BYTES * self.slots + ENTRY_BYTES * number
        if entry_at + 3 * ENTRY_BYTES > self._reserved_bytes:
            self.make_room(3)
        view = self._map
        assert view is not None
        seconds = 0
        if 0 < self.begin_time_ms < store_time_ms:
            seconds = min((store_time_ms - self.begin_time_ms) // 1000, _I32_MAX)
        # One object for the three of them: compiled, each use of a number would make its own.
        offset: object = physical_offset
        _THREE_ENTRIES.pack_into(
            view, entry_at,
            first, offset, seconds, self._swap_slot(view, first % self.slots, number),
            second, offset, seconds, self._swap_slot(view, second % self.slots, number + 1),
            third, offset, seconds, self._swap_slot(view, third % self.slots, number + 2),
        )  # fmt: skip
        self.count = number + 3
        self.end_offset = physical_offset
        self.end_time_ms = store_time_ms

    def _swap_slot(self, view: memoryview, slot: int, number: int) -> int:
        """Make `number` the newest entry of the slot. Returns the one before it, 0 if there is none."""
        previous: int
        if _TURNS_BYTES:
            words = self._slot_words
            assert words is not None
            # One object for both, as above.
            word: SupportsIndex = slot
            previous = _turned(words[word])
            words[word] = _turned(number)
        else:
            slot_at = HEADER_BYTES + SLOT_BYTES * slot
            previous = _I32.unpack_from(view, slot_at)[0]
            _I32.pack_into(view, slot_at, number)
        if previous <= 0 or previous > number:
            self.slots_used += 1
            return 0
        return previous

    def make_room(self, entries: int = 1) -> None:
        """Own the blocks of so many more entries. DiskFull if there are none."""
        needed_bytes = HEADER_BYTES + SLOT_BYTES * self.slots + ENTRY_BYTES * (self.count + entries)
        if needed_bytes > self._reserved_bytes:
            self._reserve(needed_bytes)

    def write_header(self) -> None:
        """After the last put of a message: a third of the work of a put, and nobody needs it in between."""
        if self._map is not None:
            self._write_header(self.count)

    def _write_header(self, count: int) -> None:
        assert self._map is not None
        _HEADER.pack_into(
            self._map,
            0,
            self.begin_time_ms,
            self.end_time_ms,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            count,
        )

    def _reserve(self, needed_bytes: int) -> None:
        """Own the blocks up to here and some more, then map the file."""
        if self._reserved_bytes == 0:
            needed_bytes = max(needed_bytes, HEADER_BYTES + SLOT_BYTES * self.slots)
        target = min(self.file.size, needed_bytes + _AHEAD_BYTES)
        self.file.allocate(self._reserved_bytes, target - self._reserved_bytes)
        self._reserved_bytes = target
        if self._map is None:
            self._map = memoryview(self.file.map())
            self._slot_words = self._map[HEADER_BYTES : HEADER_BYTES + SLOT_BYTES * self.slots].cast("I")

    def find(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int, found: list[int]) -> None:
        """Add the offsets of matching entries, newest first, until there are `count_max`."""
        count = self.count
        slot_at = HEADER_BYTES + SLOT_BYTES * (key_hash % self.slots)
        number: int = _I32.unpack(self.file.pread(slot_at, SLOT_BYTES))[0]
        if number > count or count <= 1:
            return
        entries_at = HEADER_BYTES + SLOT_BYTES * self.slots
        while number > 0 and len(found) < count_max:
            entry_hash, physical_offset, seconds, previous = _ENTRY.unpack(
                self.file.pread(entries_at + ENTRY_BYTES * number, ENTRY_BYTES)
            )
            if seconds < 0:
                return
            entry_ms = self.begin_time_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= entry_ms <= end_ms:
                found.append(physical_offset)
            # Links only lead back; one that does not would never end.
            if previous >= number or entry_ms < begin_ms:
                return
            number = previous

    def has(self, key_hash: int, physical_offset: int) -> bool:
        """Whether a message, one of the newest, has this hash: chains lead from new to old."""
        number: int = _I32.unpack(self.file.pread(HEADER_BYTES + SLOT_BYTES * (key_hash % self.slots), SLOT_BYTES))[0]
        entries_at = HEADER_BYTES + SLOT_BYTES * self.slots
        while 0 < number < self.count:
            entry_hash, entry_offset, _, previous = _ENTRY.unpack(
                self.file.pread(entries_at + ENTRY_BYTES * number, ENTRY_BYTES)
            )
            if entry_offset < physical_offset or previous >= number:
                return bool(entry_hash == key_hash and entry_offset == physical_offset)
            if entry_hash == key_hash and entry_offset == physical_offset:
                return True
            number = previous
        return False

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return begin_ms <= self.end_time_ms and end_ms >= self.begin_time_ms

    def sync(self) -> None:
        self.file.sync()

    def close(self) -> None:
        self._map = self._slot_words = None
        self._reserved_bytes = 0
        self.file.close()


class TopicHashes:
    """What the hashes of a topic's keys and tags begin with, and the whole hash of its first tag; then of others."""

    __slots__ = ("seed", "tag_seed", "tag", "tag_hash", "others")

    def __init__(self, topic: str) -> None:
        self.seed: int = hash_on(0, f"{topic}#")
        self.tag_seed: int = hash_on(0, f"{topic}#T#")
        self.tag: str = ""
        self.tag_hash: int = 0
        self.others: dict[str, int] | None = None


class Index:
    def __init__(self, disk: Disk, options: StoreOptions, clock: Clock) -> None:
        self.files: list[IndexFile] = []
        # The newest message that is indexed; -1: none is.
        self.newest_offset: int = -1
        # On while recovery puts many messages: the header waits for write_headers(). A crash in between costs nothing,
        # because a file that is not full is made anew.
        self.headers_later: bool = False
        self._disk: Disk = disk
        self._clock: Clock = clock
        self._directory: str = options.path("index")
        self._slots: int = options.index_slots
        self._entries: int = options.index_entries
        self._file_bytes: int = HEADER_BYTES + SLOT_BYTES * self._slots + ENTRY_BYTES * self._entries
        self._topic_hashes: dict[str, TopicHashes] = {}
        # Tags that were added to them since they were last emptied.
        self._tags_cached: int = 0

    # Building

    def put(self, topic: str, physical_offset: int, store_time_ms: int, unique_key: str, keys: str, tag: str) -> None:
        """Index one message under all its keys; "" where it has none. One that is already there is left out.

        StoreError or OSError: no file could be had, nothing or only some keys are there; put the message again.
        """
        if physical_offset <= self.newest_offset:
            return
        if self.files and self.files[-1].end_offset == physical_offset:
            self._put_missing(topic, physical_offset, store_time_ms, unique_key, keys, tag)
            return
        hashes = self._topic_hashes.get(topic)
        if hashes is None:
            hashes = self._add_topic(topic)
        seed = hashes.seed
        tag_hash = -1
        if tag:
            tag_hash = hashes.tag_hash if tag == hashes.tag else self._hash_of_tag(hashes, tag)
        if tag and keys and unique_key and " " not in keys and self.files and self.files[-1].takes_three:
            unique_hash = _positive(hash_on(seed, unique_key))
            self._put_three(unique_hash, _positive(hash_on(seed, keys)), tag_hash, physical_offset, store_time_ms)
            return
        key_hashes: list[int] = []
        if unique_key:
            key_hashes.append(_positive(hash_on(seed, unique_key)))
        if keys:
            key_hashes += [_positive(hash_on(seed, key)) for key in keys.split(" ") if key]
        if tag:
            key_hashes.append(tag_hash)
        if key_hashes:
            self._put_hashes(key_hashes, physical_offset, store_time_ms)
            self.newest_offset = physical_offset

    def put_by_key_positions(
        self, topic: str, physical_offset: int, store_time_ms: int, data: bytes, positions: KeyPositions
    ) -> None:
        """`put()` of a message whose keys still lie in its record: 0.4 us less for the common one (compiled)."""
        file = self.files[-1] if self.files else None
        hashes = self._topic_hashes.get(topic)
        if (
            positions.unique_end > 0
            and positions.keys_end > 0
            and positions.tag_end > 0
            and hashes is not None
            and file is not None
            and file.takes_three
            and physical_offset > self.newest_offset
            and physical_offset != file.end_offset
        ):
            self._put_three(
                _positive(positions.unique_hash(hashes.seed, data)),
                _positive(positions.keys_hash(hashes.seed, data)),
                _positive(positions.tag_hash(hashes.tag_seed, data)),
                physical_offset,
                store_time_ms,
            )
            return
        unique_key = data[positions.unique_at : positions.unique_end].decode()
        keys = data[positions.keys_at : positions.keys_end].decode()
        tag = data[positions.tag_at : positions.tag_end].decode()
        self.put(topic, physical_offset, store_time_ms, unique_key, keys, tag)

    def _put_three(
        self, unique_hash: int, key_hash: int, tag_hash: int, physical_offset: int, store_time_ms: int
    ) -> None:
        file = self.files[-1]
        file.put_three(unique_hash, key_hash, tag_hash, physical_offset, store_time_ms)
        self.newest_offset = physical_offset
        if not self.headers_later:
            file.write_header()

    def _put_missing(
        self, topic: str, physical_offset: int, store_time_ms: int, unique_key: str, keys: str, tag: str
    ) -> None:
        """Complete a message whose first keys are there: the others lie in a file that is gone, or could not be put."""
        texts = [f"{topic}#{key}" for key in (unique_key, *keys.split(" ")) if key]
        if tag:
            texts.append(f"{topic}#T#{tag}")
        for text in texts:
            key_hash = _positive(hash_on(0, text))
            if not any(file.has(key_hash, physical_offset) for file in self.files[-2:]):
                self._put_hashes([key_hash], physical_offset, store_time_ms)
        self.newest_offset = physical_offset

    def _add_topic(self, topic: str) -> TopicHashes:
        if len(self._topic_hashes) >= _TOPICS_CACHED_MAX:
            self._topic_hashes.clear()
        hashes = self._topic_hashes[sys.intern(topic)] = TopicHashes(topic)
        return hashes

    def _hash_of_tag(self, hashes: TopicHashes, tag: str) -> int:
        """Of one that is not the topic's first."""
        known = None if hashes.others is None else hashes.others.get(tag)
        if known is not None:
            return known
        tag_hash = _positive(hash_on(hashes.tag_seed, tag))
        self._tags_cached += 1
        if self._tags_cached >= _TAGS_CACHED_TOTAL_MAX:
            self._topic_hashes.clear()
            self._tags_cached = 0
        if not hashes.tag:
            hashes.tag = sys.intern(tag)
            hashes.tag_hash = tag_hash
            return tag_hash
        if hashes.others is None or len(hashes.others) >= _TAGS_CACHED_MAX:
            hashes.others = {}
        hashes.others[tag] = tag_hash
        return tag_hash

    def _put_hashes(self, key_hashes: list[int], physical_offset: int, store_time_ms: int) -> None:
        file = self.files[-1] if self.files else self._add_file()
        while file.room < len(key_hashes):
            head, key_hashes = key_hashes[: file.room], key_hashes[file.room :]
            if head:
                file.put(head, physical_offset, store_time_ms)
            file.write_header()
            file = self._add_file()
        file.put(key_hashes, physical_offset, store_time_ms)
        if not self.headers_later:
            file.write_header()

    def write_headers(self) -> None:
        if self.files:
            self.files[-1].write_header()

    def _add_file(self) -> IndexFile:
        now_ms = self._clock.now_ms()
        path = self._path(now_ms)
        while self._disk.exists(path):
            now_ms += 1
            path = self._path(now_ms)
        file = IndexFile(
            self._disk.open(path, self._file_bytes, create=True, allocate=False), self._slots, self._entries
        )
        try:
            if self.files:
                file.continue_from(self.files[-1].end_offset, self.files[-1].end_time_ms)
            else:
                file.continue_from(0, 0)
        except (StoreError, OSError):
            file.close()
            self._disk.remove(path)
            raise
        self._disk.sync_dir(self._directory)
        self.files.append(file)
        return file

    def make_room(self) -> None:
        """See that one more entry can be put. StoreError or OSError if it cannot."""
        if self.files and not self.files[-1].is_full:
            self.files[-1].make_room()
        else:
            self._add_file()

    def _path(self, now_ms: int) -> str:
        seconds, milliseconds = divmod(now_ms, 1000)
        return os.path.join(
            self._directory, time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{milliseconds:03d}"
        )

    # Finding

    def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, kind: str = KEY) -> list[int]:
        """Physical offsets of messages that may carry the key, newest first. `kind` TAG: `key` is a tag."""
        text = f"{topic}#T#{key}" if kind == TAG else f"{topic}#{key}"
        key_hash = _positive(hash_on(0, text))
        found: list[int] = []
        for file in reversed(self.files.copy()):
            if file.overlaps(begin_ms, end_ms):
                file.find(key_hash, count_max, begin_ms, end_ms, found)
            if file.begin_time_ms < begin_ms or len(found) >= count_max:
                break
        return found

    # Loading, cutting, expiring

    def load(self, crashed: bool, safe_time_ms: int) -> None:
        """Take what is in the directory; after a crash only the files that end at or before `safe_time_ms`."""
        removed = False
        for name in self._disk.list_files(self._directory):
            path = os.path.join(self._directory, name)
            if len(name) != _NAME_DIGITS or not name.isdecimal():
                raise StoreError(f"{path} is no index file (17 digits): move it elsewhere")
            length = self._disk.size(path)
            if length != self._file_bytes and length != 0:
                raise StoreError(
                    f"{path} has {length} bytes, but maxHashSlotNum {self._slots} and maxIndexNum {self._entries} make "
                    f"{self._file_bytes}: set them to what this store was made with, or move the file away"
                )
            file = None if length == 0 else self._open(path)
            if file is None or (crashed and not _is_safe(file, safe_time_ms)) or not self._follows(file):
                log.warning("removed index file path=%s crashed=%s", path, crashed)
                self._disk.remove(path)
                removed = True
                continue
            # What a crash could spoil is gone, and a full file was synced before its time went to the checkpoint.
            file.synced = file.is_full
            self.files.append(file)
        if removed:
            # For good: one that came back later would be taken for the file that was made in its place.
            self._disk.sync_dir(self._directory)
        self._set_newest()

    def _open(self, path: str) -> IndexFile:
        file = self._disk.open(path, self._file_bytes, create=False, allocate=False)
        return IndexFile(file, self._slots, self._entries)

    def _follows(self, file: IndexFile) -> bool:
        """A header that makes sense after the files before it."""
        if file.count > file.entries or file.end_offset < file.begin_offset or file.slots_used > file.count:
            return False
        return not self.files or file.begin_offset >= self.files[-1].end_offset

    def _set_newest(self) -> None:
        self.newest_offset = -1
        if self.files and (self.files[-1].count > 1 or len(self.files) > 1):
            last = self.files[-1]
            # A message whose keys go on in the next file is put again when that file is gone.
            goes_on = last.is_full or last.count <= 1
            self.newest_offset = last.end_offset - 1 if goes_on else last.end_offset

    @property
    def last_message(self) -> int:
        """Where the newest message that it knows lies, whether or not all keys of it are there; -1: it knows none.
        Unlike `newest_offset` always the start of a record."""
        return self.files[-1].end_offset if self.files and self.newest_offset >= 0 else -1

    def cut(self, log_end: int) -> bool:
        """Remove the files that know messages at `log_end` or behind it. True if there were any."""
        before = len(self.files)
        while self.files and self.newest_offset >= log_end:
            self._remove(len(self.files) - 1)
            self._set_newest()
        if len(self.files) == before:
            return False
        self._disk.sync_dir(self._directory)
        return True

    def delete_expired(self, log_min: int) -> int:
        """Remove files that only know messages before `log_min`, never the last one. Returns how many."""
        removed = 0
        while len(self.files) > 1 and self.files[0].end_offset < log_min:
            self._remove(0)
            removed += 1
        return removed

    def destroy_all(self) -> None:
        while self.files:
            self._remove(0)
        self._set_newest()

    def _remove(self, number: int) -> None:
        file = self.files.pop(number)
        file.close()
        self._disk.remove(file.file.path)

    # Flushing

    def to_sync(self) -> list[IndexFile]:
        """Full files that are not on disk yet: sync() each, in any thread, then set `synced`."""
        return [file for file in self.files if file.is_full and not file.synced]

    def safe_time_ms(self, log_flushed_offset: int) -> int:
        """The end time of the newest full file that a crash cannot spoil; 0 if there is none."""
        safe_ms = 0
        for file in self.files:
            if not file.synced or file.end_offset >= log_flushed_offset:
                break
            safe_ms = file.end_time_ms
        return safe_ms

    def flush_now(self) -> None:
        """Sync all files, as before a stop."""
        for file in self.files:
            if not file.synced:
                file.sync()
                file.synced = file.is_full

    def close(self) -> None:
        for file in self.files:
            file.close()


def _is_safe(file: IndexFile, safe_time_ms: int) -> bool:
    """Whether a crash cannot have spoilt it. Times alone do not say: a new file may begin in the ms of the full one."""
    return file.is_full and file.end_time_ms <= safe_time_ms


def _positive(text_hash: int) -> int:
    """abs() of the smallest number is not a 32-bit number; RocketMQ takes 0."""
    return 0 if text_hash == -0x80000000 else abs(text_hash)


def _turned(word: i64) -> i64:
    """A 32-bit word with its bytes in the other order."""
    return (word & 0xFF) << 24 | (word & 0xFF00) << 8 | (word >> 8 & 0xFF00) | word >> 24
