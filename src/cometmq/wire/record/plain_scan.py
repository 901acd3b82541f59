"""Plain records out of a copy of the log, for recovery, which reads all of it: 0.6 us for each less than `scan_record`.

Plain is a sound record of the first version between IPv4 hosts, which is neither delayed nor an inner batch, and whose
texts have no zeros where a torn page would leave them. What is not plain is not judged here: `scan_record` does that.

Of the properties of most plain records no text is made. Dispatch needs three of them, which one pass finds:

    UNIQ_KEY 0x01 7F00...01 0x02 KEYS 0x01 order-17 0x02 TAGS 0x01 paid 0x02 WAIT 0x01 true 0x02
                  ^unique_at^unique_end    ^keys_at ^keys_end      ^tag_at

Only where this is the same as reading the text: each of the three at most once and with a value, which is ASCII; one
key; no name that makes more of a message than one in its queue; no zeros. Else the text is made, as `properties.find`
needs it.

The gain is in the compiled form alone; interpreted, this is correct and slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.wire.hashing import crc31
from cometmq.wire.integers import i32_at, i64_at, u32_at
from cometmq.wire.record.layout import (
    BODY_AT,
    BODY_BYTES_AT,
    BODY_CRC_AT,
    MAGIC_AT,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    PREPARED_TRANSACTION_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    TOPIC_BYTES_MAX_V1,
)
from cometmq.wire.record.properties import PROPERTIES_BYTES_MAX
from cometmq.wire.record.scan import OK, SCHEDULE_TOPIC, RecordScan
from cometmq.wire.record.sysflag import HOSTS_V6, INNER_BATCH

if TYPE_CHECKING:
    from mypy_extensions import i64

_TOPICS_CACHED_MAX: Final = 4_000
# The names as numbers.
_TAGS: Final = 0x54414753
_KEYS: Final = 0x4B455953
_UNIQ_KEY: Final = 0x554E49515F4B4559
_AFTER_NAME: Final = 1
_AFTER_VALUE: Final = 2
_SPACE: Final = 0x20
# Of INNER_BASE, INNER_MULTI_DISPATCH and their like.
_INNER: Final = 0x49


class PlainScan:
    def __init__(self) -> None:
        # The record that was taken last: the same object each time.
        self.scan: RecordScan = RecordScan(OK, 0, "")
        # What of its properties dispatch needs, in the same bytes; if this is known, the text was not made.
        self.key_positions: KeyPositions = KeyPositions()
        self.has_key_positions: bool = False
        # The bytes of `scan.topic`, and all topics by theirs.
        self._field: bytes = b""
        self._topics: dict[bytes, str] = {}

    def take(self, data: bytes, position: int, check_crc: bool, wants_key_positions: bool = False) -> bool:
        """Fill `scan` with the record at `position`. False: there is no plain one, or not all of it.

        With `wants_key_positions` and where they can be had (`has_key_positions`), `key_positions` is filled and not
        `scan.properties`.
        """
        at: i64 = position
        left: i64 = len(data) - at
        if left < BODY_AT:
            return False
        size: i64 = i32_at(data, at)
        body_bytes: i64 = i32_at(data, at + BODY_BYTES_AT)
        sys_flag: i64 = i32_at(data, at + SYS_FLAG_AT)
        magic: i64 = i32_at(data, at + MAGIC_AT)
        if magic != MAGIC_V1 or sys_flag & HOSTS_V6 or size > left or body_bytes < 0:
            return False
        body_at: i64 = at + BODY_AT
        end: i64 = at + size
        tail_at: i64 = body_at + body_bytes
        wants_key_positions = wants_key_positions and not sys_flag & INNER_BATCH
        if tail_at + 3 > end or not self._take_tail(data, tail_at, end, wants_key_positions):
            return False
        if check_crc and body_bytes > 0 and crc31(data[body_at:tail_at]) != i32_at(data, at + BODY_CRC_AT):
            return False
        scan = self.scan
        scan.size = size
        scan.queue_id = i32_at(data, at + QUEUE_ID_AT)
        scan.queue_offset = scan.base_offset = i64_at(data, at + QUEUE_OFFSET_AT)
        scan.physical_offset = i64_at(data, at + PHYSICAL_OFFSET_AT)
        scan.sys_flag = sys_flag
        scan.store_timestamp_ms = i64_at(data, at + STORE_TIMESTAMP_AT)
        scan.prepared_transaction_offset = i64_at(data, at + PREPARED_TRANSACTION_OFFSET_AT)
        return True

    def _take_tail(self, data: bytes, tail_at: i64, end: i64, wants_key_positions: bool) -> bool:
        """Topic and properties, which end where the record does."""
        topic_bytes: i64 = data[tail_at]
        topic_end: i64 = tail_at + 1 + topic_bytes
        properties_at: i64 = topic_end + 2
        if topic_bytes > TOPIC_BYTES_MAX_V1 or properties_at > end or end - properties_at > PROPERTIES_BYTES_MAX:
            return False
        high: i64 = data[topic_end]
        low: i64 = data[topic_end + 1]
        if high << 8 | low != end - properties_at or data[end - 1] == 0:
            return False
        self.has_key_positions = wants_key_positions and self.key_positions.look(data, properties_at, end)
        properties = "" if self.has_key_positions else data[properties_at:end].decode("utf-8", "replace")
        if "INNER_BASE" in properties:
            return False
        self.scan.properties = properties
        return _lies_at(self._field, data, tail_at + 1, topic_end) or self._take_topic(data[tail_at + 1 : topic_end])

    def _take_topic(self, field: bytes) -> bool:
        """Another topic than that of the record before."""
        topic = self._topics.get(field)
        if topic is None:
            topic = field.decode("utf-8", "replace")
            if topic == SCHEDULE_TOPIC or "\0" in topic:
                return False
            self._keep(field, topic)
        self._field = field
        self.scan.topic = topic
        return True

    def _keep(self, field: bytes, topic: str) -> None:
        """The same text for the same topic: dictionaries find it by its identity."""
        if len(self._topics) >= _TOPICS_CACHED_MAX:
            self._topics.clear()
        self._topics[field] = topic


class KeyPositions:
    """Where three properties lie in the bytes of a record: 0.2 us for all of them, 0.6 us with their texts (compiled).

    Each value lies from `_at` to `_end`; a property that is not there has 0 and 0.
    """

    def __init__(self) -> None:
        self.unique_at: i64 = 0
        self.unique_end: i64 = 0
        self.keys_at: i64 = 0
        self.keys_end: i64 = 0
        self.tag_at: i64 = 0
        self.tag_end: i64 = 0

    def look(self, data: bytes, start: int, stop: int) -> bool:
        """Set all fields from the properties in `data[start:stop]`. False: they do not say what a reader would find."""
        at: i64 = start
        end: i64 = stop
        self.unique_at = self.unique_end = self.keys_at = self.keys_end = self.tag_at = self.tag_end = 0
        while at < end:
            name_at: i64 = at
            byte: i64 = data[at]
            if byte == _INNER:
                return False
            while byte != _AFTER_NAME:
                at += 1
                if byte == 0 or byte == _AFTER_VALUE or at == end:
                    return False
                byte = data[at]
            value_at: i64 = at + 1
            all_bits: i64 = 0
            at = value_at
            while at < end:
                byte = data[at]
                if byte == _AFTER_VALUE:
                    break
                if byte == 0:
                    return False
                all_bits |= byte
                at += 1
            name_bytes: i64 = value_at - 1 - name_at
            if (name_bytes == 4 or name_bytes == 8) and not self._take(
                data, name_at, name_bytes, value_at, at, all_bits
            ):
                return False
            at += 1
        return True

    def unique_hash(self, seed: int, data: bytes) -> int:
        """`hashing.hash_on` of the seed and the unique id."""
        return _hash_ascii_on(seed, data, self.unique_at, self.unique_end)

    def keys_hash(self, seed: int, data: bytes) -> int:
        return _hash_ascii_on(seed, data, self.keys_at, self.keys_end)

    def tag_hash(self, seed: int, data: bytes) -> int:
        return _hash_ascii_on(seed, data, self.tag_at, self.tag_end)

    def _take(self, data: bytes, name_at: i64, length: i64, value_at: i64, value_end: i64, all_bits: i64) -> bool:
        """False if this is one of the three, but not in the common form."""
        name: i64 = u32_at(data, name_at) if length == 4 else i64_at(data, name_at)
        if name != _TAGS and name != _KEYS and name != _UNIQ_KEY:
            return True
        if value_at == value_end or all_bits >= 0x80:
            return False
        if name == _UNIQ_KEY:
            is_first = self.unique_end == 0
            self.unique_at = value_at
            self.unique_end = value_end
        elif name == _KEYS:
            is_first = self.keys_end == 0 and not _has_space(data, value_at, value_end)
            self.keys_at = value_at
            self.keys_end = value_end
        else:
            is_first = self.tag_end == 0
            self.tag_at = value_at
            self.tag_end = value_end
        return is_first


def _lies_at(field: bytes, data: bytes, start: i64, end: i64) -> bool:
    """Whether `data[start:end]` is `field`."""
    count: i64 = len(field)
    if end - start != count:
        return False
    number: i64 = 0
    while number < count:
        if field[number] != data[start + number]:
            return False
        number += 1
    return True


def _has_space(data: bytes, at: i64, end: i64) -> bool:
    while at < end:
        byte: i64 = data[at]
        if byte == _SPACE:
            return True
        at += 1
    return False


def _hash_ascii_on(seed: int, data: bytes, at: i64, end: i64) -> int:
    """Java's hash of a text whose first part has the hash `seed` and whose rest is `data[at:end]`, which is ASCII."""
    value: i64 = seed & 0xFFFFFFFF
    while at < end:
        unit: i64 = data[at]
        value = (31 * value + unit) & 0xFFFFFFFF
        at += 1
    return value - ((value & 0x80000000) << 1)
