"""Plain records out of a copy of the log, for recovery, which reads all of it: 0.6 us for each less than `scan_record`.

     0  total size   4      20  queue offset      8      48  born host    8      76  prepared offset   8
     4  magic        4      28  physical offset   8      56  store time   8      84  body length       4
     8  body CRC     4      36  system flag       4      64  store host   8      88  body
    12  queue id     4      40  born time         8      72  tries        4          topic, properties, with lengths
    16  flag         4

Plain is a sound record of the first version between IPv4 hosts, which is neither delayed nor an inner batch, and whose
texts have no zeros where a torn page would leave them. What is not plain is not judged here: `scan_record` does that.

The gain is in the compiled form alone; interpreted, this is correct and slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.wire.hashing import crc31
from cometmq.wire.integers import i32_at, i64_at
from cometmq.wire.message import MAGIC_V1
from cometmq.wire.properties import PROPERTIES_BYTES_MAX
from cometmq.wire.scan import OK, SCHEDULE_TOPIC, RecordScan
from cometmq.wire.sysflag import HOSTS_V6

if TYPE_CHECKING:
    from mypy_extensions import i64

_HEAD_BYTES: Final = 88
_TOPIC_BYTES_MAX: Final = 127
_TOPICS_CACHED_MAX: Final = 4_000


class PlainScan:
    def __init__(self) -> None:
        # The record that was taken last: the same object each time.
        self.scan: RecordScan = RecordScan(OK, 0, "")
        self._topics: dict[bytes, str] = {}

    def take(self, data: bytes, position: int, check_crc: bool) -> bool:
        """Fill `scan` with the record at `position`. False: there is no plain one, or not all of it."""
        at: i64 = position
        left: i64 = len(data) - at
        if left < _HEAD_BYTES:
            return False
        size: i64 = i32_at(data, at)
        body_bytes: i64 = i32_at(data, at + 84)
        sys_flag: i64 = i32_at(data, at + 36)
        magic: i64 = i32_at(data, at + 4)
        if magic != MAGIC_V1 or sys_flag & HOSTS_V6 or size > left or body_bytes < 0:
            return False
        body_at: i64 = at + _HEAD_BYTES
        end: i64 = at + size
        tail_at: i64 = body_at + body_bytes
        if tail_at + 3 > end or not self._take_tail(data, tail_at, end):
            return False
        if check_crc and body_bytes > 0 and crc31(data[body_at:tail_at]) != i32_at(data, at + 8):
            return False
        scan = self.scan
        scan.size = size
        scan.queue_id = i32_at(data, at + 12)
        scan.queue_offset = scan.base_offset = i64_at(data, at + 20)
        scan.physical_offset = i64_at(data, at + 28)
        scan.sys_flag = sys_flag
        scan.store_timestamp_ms = i64_at(data, at + 56)
        scan.prepared_transaction_offset = i64_at(data, at + 76)
        return True

    def _take_tail(self, data: bytes, tail_at: i64, end: i64) -> bool:
        """Topic and properties, which end where the record does."""
        topic_bytes: i64 = data[tail_at]
        topic_end: i64 = tail_at + 1 + topic_bytes
        properties_at: i64 = topic_end + 2
        if topic_bytes > _TOPIC_BYTES_MAX or properties_at > end or end - properties_at > PROPERTIES_BYTES_MAX:
            return False
        high: i64 = data[topic_end]
        low: i64 = data[topic_end + 1]
        if high << 8 | low != end - properties_at or data[end - 1] == 0:
            return False
        properties = data[properties_at:end].decode("utf-8", "replace")
        if "INNER_BASE" in properties:
            return False
        field = data[tail_at + 1 : topic_end]
        topic = self._topics.get(field)
        if topic is None:
            topic = field.decode("utf-8", "replace")
            if topic == SCHEDULE_TOPIC or "\0" in topic:
                return False
            self._keep(field, topic)
        self.scan.topic = topic
        self.scan.properties = properties
        return True

    def _keep(self, field: bytes, topic: str) -> None:
        """The same text for the same topic: dictionaries find it by its identity."""
        if len(self._topics) >= _TOPICS_CACHED_MAX:
            self._topics.clear()
        self._topics[field] = topic
