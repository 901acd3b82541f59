"""`cometmq store rebuild`: consume queues and index made anew from the log, which alone holds the messages.

    DIR/consumequeue, batchconsumequeue, consumequeue_ext, index   ->   DIR/replaced-20261115T123000/
    then the store is opened, which reads the whole log, and closed

What is replaced stays beside it until the operator deletes it. File sizes are those of the files that are there;
`-c broker.conf` says them where there are none left. The store's lock is held while directories are moved, so a broker
that is using them keeps them.
"""

import argparse
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cometmq.cli.shared import output, serving
from cometmq.cli.shared.failures import EXIT_NO
from cometmq.cli.shared.progress import WatchedLog
from cometmq.clock import SystemClock
from cometmq.errors import StoreError
from cometmq.settings import read
from cometmq.store.disk import OsDisk
from cometmq.store.offline.check import check
from cometmq.store.offline.log_files import LogFiles, commitlog_directories
from cometmq.store.options import StoreOptions
from cometmq.store.queues.index import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from cometmq.store.store import Store

DERIVED: Final = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")
# As RocketMQ's: a larger file was not made by a broker.
FILE_BYTES_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Plan:
    options: StoreOptions
    moved: list[str]
    aside: str


def rebuild(options: argparse.Namespace) -> int:
    plan = _plan(options)
    output.note(f"the log has {_log_bytes(plan.options)} bytes and stays as it is")
    for name in plan.moved:
        output.note(f"move   {plan.options.path(name)}  ->  {os.path.join(plan.aside, name)}")
    output.note(f"make   queues in files of {plan.options.queue_file_bytes} bytes, and the index, from the log")
    if not options.yes:
        output.note("nothing was changed: add --yes to do it")
        return 0
    batch_topics = _batch_topics(plan.options)  # before anything is moved: it may be that they cannot be read
    _move(plan)
    Store(plan.options, OsDisk(), SystemClock(), is_batch_topic=batch_topics.__contains__).close()
    disk = OsDisk()
    log = WatchedLog(disk, plan.options.commitlog_dirs() + plan.options.commitlog_read_only_dirs())
    report = check(disk, options.directory, log, plan.options.index_slots)
    output.record(
        options.output,
        {
            "records": report.records,
            "queues": report.queues,
            "units": report.units,
            "index_entries": report.index_entries,
            "problems": report.problem_count,
            "replaced": plan.aside if plan.moved else None,
        },
    )
    return EXIT_NO if report.problem_count else 0


def _plan(options: argparse.Namespace) -> Plan:
    disk = OsDisk()
    directories = options.commitlog or commitlog_directories(disk, options.directory)
    texts = serving.read_settings(options.config) if options.config else {}
    settings, _ = read(StoreOptions(), texts)
    settings.root_dir = os.path.abspath(options.directory)
    settings.broker_role = "ASYNC_MASTER"
    if options.commitlog:
        settings.commitlog_paths = ",".join(options.commitlog)
    log = LogFiles(disk, directories)
    if log.segments:
        settings.segment_bytes = log.segments[0].size
    if not options.config:
        _take_sizes(settings, Path(options.directory))
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    moved = [name for name in DERIVED if disk.exists(settings.path(name))]
    return Plan(settings, moved, settings.path(f"replaced-{stamp}"))


def _take_sizes(settings: StoreOptions, root: Path) -> None:
    """As the files that are there are; an index file has four entries a slot unless settings say otherwise."""
    settings.queue_file_bytes = _file_size(root / "consumequeue", settings.queue_file_bytes)
    settings.batch_queue_file_bytes = _file_size(root / "batchconsumequeue", settings.batch_queue_file_bytes)
    index_bytes = _file_size(root / "index", 0)
    if index_bytes > HEADER_BYTES:
        settings.index_slots = (index_bytes - HEADER_BYTES) // (SLOT_BYTES + 4 * ENTRY_BYTES)
        settings.index_entries = (index_bytes - HEADER_BYTES - settings.index_slots * SLOT_BYTES) // ENTRY_BYTES


def _file_size(directory: Path, default: int) -> int:
    for file in directory.rglob("*"):
        size = file.stat().st_size if file.is_file() else 0
        if size > FILE_BYTES_MAX:
            raise StoreError(
                f"{file} has {size} bytes, and files are made as large as those that are there: take it away, or give "
                f"the broker's settings (-c FILE); at most {FILE_BYTES_MAX}"
            )
        if size:
            return size
    return default


def _log_bytes(settings: StoreOptions) -> int:
    return sum(_tree_bytes(Path(directory)) for directory in settings.commitlog_dirs())


def _tree_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _move(plan: Plan) -> None:
    disk = OsDisk()
    lock = disk.lock(plan.options.path("lock"))
    try:
        if plan.moved:
            disk.make_dirs(plan.aside)
        for name in plan.moved:
            disk.rename(plan.options.path(name), os.path.join(plan.aside, name))
    finally:
        lock.release()


def _batch_topics(settings: StoreOptions) -> set[str]:
    path = Path(settings.path("config", "topics.json"))
    if not path.exists():
        return set()
    try:
        table: dict[str, dict[str, Any]] = json.loads(path.read_bytes()).get("topicConfigTable", {})
        return {name for name, one in table.items() if (one.get("attributes") or {}).get("queue.type") == "BatchCQ"}
    except (ValueError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{path} cannot be read ({type(error).__name__}): put its copy in its place ({path.name}.bak), or take it "
            "away if no topic has queue.type=BatchCQ"
        ) from None
