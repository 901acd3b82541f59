"""Takes back what a log has and its set's master never had. It was not acked, but somebody may want to see it.

    promises      cutting=4096          from here on a start goes on with the cut before anything else
    diverged/     6-4096.log            what is cut, as it lies in the log: epoch and offset
    log           zeros from 4096 on, later segments removed, on disk
    queues, index without what lay there
    promises      cutting=-1

RocketMQ's cut only moves a pointer, so that a crash finds the old tail again, with good CRCs.
"""

from __future__ import annotations

import logging
from typing import Final

from cometmq.store.disk import DiskFull
from cometmq.store.replication.sets.promises import SetMemory
from cometmq.store.store import Store

log = logging.getLogger(__name__)

DIRECTORY: Final = "diverged"
KEPT_BYTES_MAX: Final = 64 << 20
FILES_MAX: Final = 16


def cut(store: Store, memory: SetMemory, offset: int) -> None:
    """All of it on disk when this returns. OSError: it is not, and the next start goes on with it."""
    end = store.log.max_offset
    if offset >= end and memory.kept.cutting < 0:
        return
    store.flush_now()  # what stays counts as flushed from now on
    if store.failure is not None:
        raise store.failure
    memory.begin_cut(offset)
    if offset < end:
        _keep(store, offset, end, memory.table.at(offset)[0])
        log.warning("cut log at=%d end_before=%d epochs=%s", offset, end, memory.table.entries[-3:])
        store.cut(offset)
    table = type(memory.table)(memory.table.entries)
    table.cut(min(offset, store.log.max_offset))
    memory.save_table(table)
    memory.end_cut()


def resume(store: Store, memory: SetMemory) -> None:
    """At a start, before anybody reads: a cut that a crash interrupted."""
    if memory.kept.cutting >= 0:
        cut(store, memory, memory.kept.cutting)
    memory.recovered(store.log.max_offset)


def _keep(store: Store, offset: int, end: int, epoch: int) -> None:
    """As much as is allowed, if there is room. A copy that cannot be made does not stop the set."""
    directory = store.options.path(DIRECTORY)
    try:
        store.disk.make_dirs(directory)
        if len(store.disk.list_files(directory)) >= FILES_MAX:
            log.warning("kept nothing of what is cut: %s has %d files, remove some", directory, FILES_MAX)
            return
        kept = b""
        at = offset
        while at < end and len(kept) < KEPT_BYTES_MAX:
            found = store.log.read_from(at)
            if found is None or not len(found[1]):
                break
            kept += bytes(found[1][: KEPT_BYTES_MAX - len(kept)])
            at = found[0] + len(found[1])
        store.disk.replace_atomically(store.options.path(DIRECTORY, f"{epoch}-{offset}.log"), kept)
    except (OSError, DiskFull) as error:
        log.error("kept nothing of what is cut from=%d to=%d cause=%s", offset, end, error)
