"""Reads a range of a live queue from the broker's files, where the executor sees them.

    readMode=remote (default)    pulls, from wherever the broker is
    readMode=store               files under `storePath`, a directory or {"broker": "directory"}; or it fails
    readMode=auto                files where they are there and are this broker's, pulls otherwise; without `storePath`
                                 the broker is asked for its directory

The broker has said how far the queue reaches, and a consume queue names only whole messages: a range that the files
cover is complete. Files of queues may be a second behind the broker: `store` waits for them, `auto` pulls. The same
path on another machine has other files: `auto` compares the first and the last message of a range with what the
broker gives for them, byte by byte, log position and store time included. The broker's own filter cannot be asked, so
`tags` is compared here and `sqlFilter` needs pulls.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cometmq.errors import CometError, ConfigError, StoreError
from cometmq.spark.columns import Column, chosen
from cometmq.spark.kill_points import at
from cometmq.spark.live.offsets import Queue, Range
from cometmq.spark.live.remote import READER_GROUP, Remote, remote
from cometmq.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

    from cometmq.spark.stores.partitions import StoreDirectory

logger = logging.getLogger(__name__)

NEARBY_OPTIONS: Final[dict[str, str | None]] = {"readMode": "remote", "storePath": None}
MODES: Final = ("remote", "store", "auto")
_PAUSE_S: Final = 0.1
_RECORD_BYTES_MAX: Final = 4 << 20


def near(options: Options, one: Range) -> StoreDirectory | None:
    """The directory from which to read this range; None to pull it. StoreError if it must be there and is not."""
    mode = options.choice("readMode", MODES)
    if mode == "remote" or one.first >= one.last:
        return None
    try:
        _check_filters(options)
        if mode == "store":
            return _told(options, one, options.number("retryMs") / 1000)
        store = _told(options, one, 0.0) if options.get("storePath") else _found(options, one)
        _compare(store, one, remote(options))
    except (CometError, OSError) as error:
        if mode == "store":
            raise
        logger.info("pull range of %s: %s", one.queue, error)
        return None
    return store


def _told(options: Options, one: Range, patience_s: float) -> StoreDirectory:
    return _covering(_directory(options, one.queue), None, one, patience_s)


def _found(options: Options, one: Range) -> StoreDirectory:
    """Where the broker says that it keeps its files."""
    return _covering(*remote(options).store_paths(one.queue), one, 0.0)


def _covering(root: str, log: str | None, one: Range, patience_s: float) -> StoreDirectory:
    from cometmq.spark.stores.partitions import StoreDirectory  # numpy, which processes that only plan do not need

    store = StoreDirectory.at(root, one.queue.broker, log)
    _await_cover(store, one, patience_s)
    return store


def _check_filters(options: Options) -> None:
    for name in ("sqlFilter", "namespace"):
        if options.get(name):
            raise ConfigError(f"readMode=store cannot have {name}: use readMode=remote")


def _compare(store: StoreDirectory, one: Range, cluster: Remote) -> None:
    """StoreError unless the ends of the range are in these files what they are at the broker."""
    for offset in {one.first, one.last - 1}:
        pulled = cluster.run(cluster.pull(one.queue, offset, 1, _RECORD_BYTES_MAX, READER_GROUP, ("TAG", "*")))
        if not pulled.body or pulled.body != store.record(one.queue.topic, one.queue.number, offset):
            raise StoreError(f"{one.queue}: message {offset} in {store.root} is not the one that the broker has")


def read_near(
    store: StoreDirectory, one: Range, columns: tuple[Column, ...], options: Options, tags: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from cometmq.spark.lake.body_views import filtered
    from cometmq.spark.stores.partitions import QueueRange
    from cometmq.spark.stores.source import Reading

    names = [column.name for column in columns]
    wanted = columns if tags is None or "tags" in names else (*columns, *chosen(["tags"]))
    rows, size = options.number("batchRows", 1), options.number("batchBytes", 1)
    reading = Reading(wanted, options.flag("decompress"), False, False, rows, size)
    part = QueueRange(one.queue.topic, one.queue.number, one.first, one.last)
    at("before read")
    for number, batch in enumerate(store.read(part, reading)):
        if number:
            at("in read")
        if tags is None:
            yield batch
            continue
        kept = filtered(batch, pc.is_in(batch.column("tags"), value_set=pa.array(sorted(tags), pa.string())))
        yield kept.select(names)


def _directory(options: Options, queue: Queue) -> str:
    stated = options.text("storePath", 'the directory of the broker\'s store, or {"broker": "directory"}')
    if not stated.lstrip().startswith("{"):
        return stated
    found = json.loads(stated).get(queue.broker)
    if found is None:
        raise ConfigError(f"option storePath has no directory of broker {queue.broker}")
    return str(found)


def _await_cover(store: StoreDirectory, one: Range, patience_s: float) -> None:
    give_up_s = time.monotonic() + patience_s
    while True:
        first, last = store.unit_bounds(one.queue.topic, one.queue.number)
        if first <= one.first <= one.last <= last:
            return
        if one.first < first < last or time.monotonic() >= give_up_s:
            raise StoreError(
                f"{one.queue}: {store.root} has offsets {first} to {last}, {one.first} to {one.last} are wanted: "
                "is it the store of this broker? readMode=auto pulls what is not there"
            )
        time.sleep(_PAUSE_S)
