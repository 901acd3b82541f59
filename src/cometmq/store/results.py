"""What the store answers: plain numbers for outcomes, plain objects for the rest.

A put is answered in two steps. `PutResult.status` is what the append said; where disk or replica still have to
speak, the final status comes later through a callback. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and
SLAVE_NOT_AVAILABLE mean: the message is in the log and will be delivered, only the promise was not kept in time.
"""

from __future__ import annotations

from typing import Final

from cometmq.store.disk import File
from cometmq.wire.record.batch import BatchMember


class PutStatus:
    OK: Final = 0
    FLUSH_DISK_TIMEOUT: Final = 1
    FLUSH_SLAVE_TIMEOUT: Final = 2
    SLAVE_NOT_AVAILABLE: Final = 3
    SERVICE_NOT_AVAILABLE: Final = 4
    CREATE_FILE_FAILED: Final = 5
    MESSAGE_ILLEGAL: Final = 6
    PROPERTIES_SIZE_EXCEEDED: Final = 7
    OS_PAGE_CACHE_BUSY: Final = 8
    UNKNOWN_ERROR: Final = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH: Final = 10
    LMQ_QUOTA_EXCEEDED: Final = 11
    WHEEL_TIMER_MESSAGE_ILLEGAL: Final = 12
    WHEEL_TIMER_FLOW_CONTROL: Final = 13
    WHEEL_TIMER_NOT_ENABLED: Final = 14


# The message is in the log.
STORED: Final = frozenset(
    (PutStatus.OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)
)

PUT_STATUS_NAMES: Final = (
    "OK",
    "FLUSH_DISK_TIMEOUT",
    "FLUSH_SLAVE_TIMEOUT",
    "SLAVE_NOT_AVAILABLE",
    "SERVICE_NOT_AVAILABLE",
    "CREATE_FILE_FAILED",
    "MESSAGE_ILLEGAL",
    "PROPERTIES_SIZE_EXCEEDED",
    "OS_PAGE_CACHE_BUSY",
    "UNKNOWN_ERROR",
    "IN_SYNC_REPLICAS_NOT_ENOUGH",
    "LMQ_QUOTA_EXCEEDED",
    "WHEEL_TIMER_MESSAGE_ILLEGAL",
    "WHEEL_TIMER_FLOW_CONTROL",
    "WHEEL_TIMER_NOT_ENABLED",
)


class PutResult:
    """Where the message is: its record takes `record_bytes` from `physical_offset` on, `end_offset` is behind it.

    Of a batch, the `count` records lie back to back; `queue_offset` is that of the first and `lengths` has the length
    of each (a single message has no `lengths`), which is what the message ids are made from.
    """

    __slots__ = (
        "status",
        "physical_offset",
        "record_bytes",
        "store_time_ms",
        "queue_offset",
        "count",
        "end_offset",
        "remark",
        "lengths",
        "members",
    )

    def __init__(
        self,
        status: int,
        physical_offset: int = -1,
        record_bytes: int = 0,
        store_time_ms: int = 0,
        queue_offset: int = -1,
        count: int = 0,
        end_offset: int = -1,
        remark: str = "",
        lengths: tuple[int, ...] = (),
    ) -> None:
        self.status = status
        self.physical_offset = physical_offset
        self.record_bytes = record_bytes
        self.store_time_ms = store_time_ms
        self.queue_offset = queue_offset
        self.count = count
        self.end_offset = end_offset
        self.remark = remark
        self.lengths = lengths
        # Of a batch, until it is dispatched.
        self.members: list[BatchMember] = []

    def __repr__(self) -> str:
        return (
            f"PutResult({PUT_STATUS_NAMES[self.status]} physical_offset={self.physical_offset} "
            f"queue_offset={self.queue_offset} count={self.count} remark={self.remark!r})"
        )


class GetStatus:
    FOUND: Final = 0
    NO_MATCHED_MESSAGE: Final = 1
    MESSAGE_WAS_REMOVING: Final = 2
    OFFSET_FOUND_NULL: Final = 3
    OFFSET_OVERFLOW_BADLY: Final = 4
    OFFSET_OVERFLOW_ONE: Final = 5
    OFFSET_TOO_SMALL: Final = 6
    NO_MATCHED_LOGIC_QUEUE: Final = 7
    NO_MESSAGE_IN_QUEUE: Final = 8
    OFFSET_RESET: Final = 9


class GetResult:
    """`slices` are stored records, ready to be sent as they are; records that adjoin in the log are in one slice.

    `queue_offsets` has the number of each message; of an inner batch that of its first, while `count` counts them all.
    `behind_bytes` is how far the last message examined lies behind the end of the log.

    `cold`: reading would wait for the device. Nothing else is decided yet: run `reading.load(result)` in another
    thread, then ask again with `loaded_units=result.cold_units`.
    """

    __slots__ = (
        "status",
        "next_offset",
        "min_offset",
        "max_offset",
        "slices",
        "queue_offsets",
        "count",
        "bytes",
        "suggest_slave",
        "behind_bytes",
        "cold",
        "cold_units",
        "cold_ranges",
    )

    def __init__(self, status: int, next_offset: int, min_offset: int, max_offset: int) -> None:
        self.status = status
        self.next_offset = next_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.slices: list[memoryview] = []
        self.queue_offsets: list[int] = []
        self.count = 0
        self.bytes = 0
        self.suggest_slave = False
        self.behind_bytes = 0
        self.cold = False
        self.cold_units = 0
        self.cold_ranges: list[tuple[File, int, int]] = []
