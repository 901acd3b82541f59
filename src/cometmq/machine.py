"""What a store's directory lies on: file system, device, I/O scheduler. Linux tells; elsewhere it is unknown.

    /proc/self/mountinfo     36 35 98:0 / /data rw,noatime - ext4 /dev/vda1 rw      device number, mount point, type
    /sys/dev/block/98:0/     queue/scheduler "none [mq-deadline] kyber", queue/rotational; of a partition: ../queue

A commit log is one sequential stream of writes with reads beside it. ext4 and xfs allocate ahead and sync one file
without the others; a scheduler that shares the disk fairly between processes lets flushes wait behind reads.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

MOUNTS: Final = Path("/proc/self/mountinfo")
BLOCK_DEVICES: Final = Path("/sys/dev/block")
GOOD_FILE_SYSTEMS: Final = frozenset({"ext4", "xfs"})
GOOD_SCHEDULERS: Final = frozenset({"deadline", "mq-deadline", "none", "noop", "kyber"})


@dataclass(frozen=True, slots=True)
class Storage:
    """None: the system does not tell."""

    path: str
    file_system: str | None = None
    mount_point: str | None = None
    device: str | None = None
    scheduler: str | None = None
    rotational: bool | None = None

    def complaints(self) -> list[str]:
        """What is poor about it, and what would be better."""
        found = []
        if self.file_system is not None and self.file_system not in GOOD_FILE_SYSTEMS:
            found.append(f"file system {self.file_system} at {self.mount_point}: use ext4 or xfs on a local disk")
        if self.scheduler is not None and self.scheduler not in GOOD_SCHEDULERS:
            found.append(f"I/O scheduler {self.scheduler}: use mq-deadline, or none on a fast SSD")
        return found


def storage_of(path: str, mounts: Path = MOUNTS, block_devices: Path = BLOCK_DEVICES) -> Storage:
    """Of the directory, or of the nearest one above it that exists."""
    place = os.path.realpath(path)
    mount = _mount_of(place, mounts)
    if mount is None:
        return Storage(path)
    number, point, kind, device = mount
    scheduler, rotational = _queue_of(number, block_devices)
    return Storage(path, kind, point, device, scheduler, rotational)


def log_storage(path: str, storage: Storage | None = None) -> None:
    """One line at the start of a broker, and a warning for each thing that makes it slow."""
    found = storage if storage is not None else storage_of(path)
    logger.info(
        "found storage path=%s file_system=%s device=%s scheduler=%s",
        path,
        found.file_system or "unknown",
        found.device or "unknown",
        found.scheduler or "unknown",
    )
    for complaint in found.complaints():
        logger.warning("poor storage path=%s: %s", path, complaint)


def _mount_of(place: str, mounts: Path) -> tuple[str, str, str, str] | None:
    """(device number, mount point, type, device) of the longest mount point above `place`; the last one wins."""
    best: tuple[str, str, str, str] | None = None
    for line in _text(mounts).splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 5 or len(rest) < 2:
            continue
        point = fields[4].replace("\\040", " ")
        is_above = point == "/" or place == point or place.startswith(point + "/")
        if is_above and (best is None or len(point) >= len(best[1])):
            best = (fields[2], point, rest[0], rest[1])
    return best


def _queue_of(number: str, block_devices: Path) -> tuple[str | None, bool | None]:
    for queue in (block_devices / number / "queue", block_devices / number / ".." / "queue"):
        scheduler = _text(Path(os.path.realpath(queue)) / "scheduler")
        if scheduler:
            chosen = scheduler.partition("[")[2].partition("]")[0] or scheduler.strip()
            return chosen, _text(Path(os.path.realpath(queue)) / "rotational").strip() == "1"
    return None, None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
