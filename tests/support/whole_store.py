"""A whole store on a fake disk, with small files: opened, driven step by step, opened again after a crash."""

import os
from typing import Any

from cometmq.clock import Clock, ManualClock
from cometmq.store.disk import Disk
from cometmq.store.options import StoreOptions
from cometmq.store.results import GetStatus
from cometmq.store.store import Store
from cometmq.wire.record.message import StoredMessage, decode_records

ROOT = "/store"
SMALL_FILES = {
    "segment_bytes": 1 << 16,
    "queue_file_bytes": 2000,
    "index_slots": 100,
    "index_entries": 400,
}
# Other sizes for the same tests: see tests/store/test_sizes.py.
MEDIUM_FILES = {
    "segment_bytes": 10 << 20,
    "queue_file_bytes": 6_000_000,
    "index_slots": 10_000,
    "index_entries": 10_000,
}
SIZES = MEDIUM_FILES if os.environ.get("COMETMQ_STORE_SIZES") == "medium" else SMALL_FILES


def open_store(disk: Disk, clock: Clock | None = None, root: str = ROOT, **options: Any) -> Store:
    settings = StoreOptions(root_dir=root, **{**SIZES, **options})
    return Store(settings, disk, clock or ManualClock())


def read_queue(store: Store, topic: str, queue_id: int = 0, offset: int = 0) -> list[StoredMessage]:
    """Every message of a queue from `offset` on, as a consumer reads it."""
    messages: list[StoredMessage] = []
    while True:
        result = store.get(topic, queue_id, offset, 32)
        assert result is not None, "the store is closed or not readable"
        assert not result.cold, "a fake disk has nothing cold unless told so"
        for piece in result.slices:
            messages += decode_records(piece)
        if result.status != GetStatus.FOUND:
            return messages
        offset = result.next_offset


def queue_bodies(store: Store, topic: str, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in read_queue(store, topic, queue_id)]
