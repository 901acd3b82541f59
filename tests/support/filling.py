"""Fill a small file system with a store, in a process that may mount one: python -m tests.support.filling DIRECTORY.

    fill      threads and timers run; messages of every kind until there is no room; all of them can be read; SIGKILL
    reopen    the crashed store is opened on the full disk: all acked messages are there, puts are refused
    resume    room is made: puts succeed again without a restart; a clean stop; all there

Prints one JSON object with the figures; the exit status tells of SIGBUS and everything else that went wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from cometmq.clock import SystemClock
from cometmq.store.background import Background
from cometmq.store.disk import OsDisk
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from tests.support import kinds
from tests.support.readback import Found, by_key, open_directory, read_all
from tests.support.writer import acks_of

FILLER_BYTES = 3 << 20
MESSAGES_BEFORE_THE_REST = 8000
REFUSALS = 200
KEYS_CHECKED = 500
RESUME_S = 30.0
OPTIONS: dict[str, Any] = {
    "segment_bytes": 1 << 20,
    "queue_file_bytes": 2000,
    "batch_queue_file_bytes": 4600,
    "index_slots": 500,
    "index_entries": 2000,
    "flush_interval_ms": 20,
    "queue_flush_interval_ms": 20,
    "lmq_enabled": True,
    "multi_dispatch_enabled": True,
    "recover_segments_max": 1000,
}


class Filling:
    def __init__(self, root: str) -> None:
        self.filler = Path(root, "filler")
        self.directory = os.path.join(root, "store")
        self.serial = 0
        # As in tests/support/writer.py.
        self.reports: list[Any] = []
        self.refused: dict[int, int] = {}

    def put(self, store: Store) -> bool:
        plan = kinds.plan(self.serial)
        result = plan.put(store, plan.request())
        if result.status == PutStatus.OK:
            self.reports.append([self.serial, result.queue_offset, result.physical_offset, result.lengths])
            self.serial += 1
            return True
        self.refused[result.status] = self.refused.get(result.status, 0) + 1
        assert result.remark
        return False

    async def fill(self) -> None:
        """Until it was refused again and again, although it waited in between.

        Somebody else takes the last block while the log still has room in its segment: queue units find none.
        """
        store, background = self._open()
        in_a_row = 0
        while in_a_row < REFUSALS:
            if self.serial == MESSAGES_BEFORE_THE_REST and not in_a_row:
                self.fill_the_rest()
            in_a_row = 0 if self.put(store) else in_a_row + 1
            if self.serial % 50 == 0 or in_a_row:
                await asyncio.sleep(0.005)
        assert store.failure is None, store.failure
        self.check(read_all(store))
        background.stop()

    def fill_the_rest(self) -> None:
        """To the last block, whatever the store left or gave back."""
        with self.filler.open("ab", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(4096))
                except OSError:
                    return

    async def resume(self) -> None:
        self.fill_the_rest()
        store, background = self._open()
        assert store.crashed
        self.check(read_all(store))
        before = self.serial
        for _ in range(REFUSALS):
            self.put(store)
        self.check(read_all(store))
        self.filler.unlink()
        async with asyncio.timeout(RESUME_S):
            while self.serial < before + 1000:
                if not self.put(store):
                    await asyncio.sleep(0.05)
        assert store.failure is None, store.failure
        background.stop()
        store.close()

    def check_at_last(self) -> None:
        store = open_directory(self.directory, **OPTIONS)
        assert not store.crashed
        self.check(read_all(store))
        for ack in acks_of(self.reports[:: len(self.reports) // KEYS_CHECKED]):
            key, physical_offset = ack.records()[0]
            assert not ack.plan.is_indexed or physical_offset in by_key(store, ack.plan.topic, key), f"{key} not found"
        store.close()

    def _open(self) -> tuple[Store, Background]:
        options = StoreOptions(root_dir=self.directory, **OPTIONS)
        store = Store(options, OsDisk(), SystemClock(), is_batch_topic=kinds.is_batch_topic)
        background = Background(store, asyncio.get_running_loop().call_soon_threadsafe)
        background.start()
        return store, background

    def check(self, found: Found) -> None:
        for ack in acks_of(self.reports):
            if ack.plan.in_queue:
                place = (ack.plan.topic, ack.plan.queue_id, ack.queue_offset)
                assert found.get(place) == ack.plan.members[0][0], f"{place} is {found.get(place)}"


def main(root: str) -> None:
    filling = Filling(root)
    filling.filler.write_bytes(bytes(FILLER_BYTES))
    reports, report_to = os.pipe()
    pid = os.fork()
    if pid == 0:
        asyncio.run(filling.fill())
        os.write(report_to, json.dumps([filling.reports, filling.refused]).encode())
        os.close(report_to)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(report_to)
    with os.fdopen(reports) as file:
        text = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, "the process that filled the disk died"
    filling.reports, refused = json.loads(text)
    filled = filling.serial = len(filling.reports)
    asyncio.run(filling.resume())
    filling.check_at_last()
    figures = {"filled": filled, "stored": filling.serial, "refused": refused, "refused_later": filling.refused}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
