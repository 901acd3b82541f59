"""Stores on fake disks for tests of replication, without sockets and without time."""

from typing import Any

from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from tests.support.whole_store import open_store

SEGMENT_BYTES = 4096


def small_store(clock: ManualClock | None = None, **options: Any) -> Store:
    clock = clock or ManualClock()
    settings = {"segment_bytes": SEGMENT_BYTES, "index_enabled": False, **options}
    return open_store(FakeDisk(now_ms=clock.now_ms), clock, **settings)


def put(store: Store, body: bytes = b"hello", **fields: Any) -> int:
    """The end offset of the new message."""
    result = store.put(AppendRequest("T", 0, body, **fields))
    assert result.status == PutStatus.OK, result
    return result.end_offset


def fill(store: Store, bytes_min: int) -> None:
    while store.log.max_offset < bytes_min:
        put(store, bytes(200))


def log_bytes(store: Store) -> bytes:
    return b"".join(bytes(segment.view()[: segment.wrote]) for segment in store.segments.segments)
