"""Timers on a replica: how far the master has delivered is noted, the rest is made when it is needed.

A replica has the queue of the timer topic, by replication, and of all that is derived from it keeps nothing but the
progress of its master:

    timercheck    read_ms               as the master has it
                  log_position, queue_offset      0: no timer log, nothing taken in
                  master_queue_offset   as the master has it

Whoever opens these files as a master takes the whole queue in, but for what the two numbers say is delivered.
RocketMQ's broker does so too.
"""

import logging

from cometmq.store.disk import Disk
from cometmq.store.options import StoreOptions
from cometmq.store.timers.progress import TimerCheck, TimerProgress

log = logging.getLogger(__name__)


def forget_own(disk: Disk, options: StoreOptions) -> None:
    """Drop what this broker has made as a master: it is not kept up any more. First that it is not trusted."""
    wheel, log_dir = options.path("timerwheel"), options.path("timerlog")
    check_path = options.path("config", "timercheck")
    if disk.exists(check_path):
        note(disk, options, _saved(disk, check_path))
    if disk.exists(wheel):
        log.info("drop wheel of timers, a replica has none log_files=%d", len(disk.list_files(log_dir)))
    disk.remove_dir(log_dir)
    disk.remove(wheel)


def note(disk: Disk, options: StoreOptions, master: TimerProgress) -> None:
    """On disk when this returns. For any thread."""
    _write(disk, options, master._replace(log_position=0, queue_offset=0))


def _write(disk: Disk, options: StoreOptions, progress: TimerProgress) -> None:
    disk.make_dirs(options.path("config"))
    check = TimerCheck(disk, options.path("config", "timercheck"))
    try:
        if progress != check.saved:
            check.write(progress)
    finally:
        check.close()


def take_over(disk: Disk, options: StoreOptions, acted: TimerProgress) -> None:
    """A master that comes back: a replica may have delivered more than it had. Before timers are opened."""
    own = noted(disk, options)
    if (acted.state_version, acted.counter, acted.timestamp_ms) <= own[4:]:
        return
    log.info("took over progress of timers read_ms=%d before_ms=%d", acted.read_ms, own.read_ms)
    _write(disk, options, acted._replace(log_position=own.log_position, queue_offset=own.queue_offset))


def noted(disk: Disk, options: StoreOptions) -> TimerProgress:
    """What is on disk now."""
    path = options.path("config", "timercheck")
    return _saved(disk, path) if disk.exists(path) else TimerProgress()


def _saved(disk: Disk, path: str) -> TimerProgress:
    check = TimerCheck(disk, path)
    try:
        return check.saved
    finally:
        check.close()
