"""The tables under `config/`: topics, groups, consumer offsets, ... each one JSON file that is replaced as a whole.

    topics.json        the current table
    topics.json.bak    the one before it
    topics.json.bad    a damaged one that was set aside when the .bak was used

After a crash at any moment the current file has the old table or the new one; between the two renames of a
replacement only the .bak is there, which has the old one. So loading takes the current file, else the .bak. With no
good copy of a table that exists, loading fails: a broker that forgot its topics or offsets must not start as if it
were new. (RocketMQ starts empty when the .bak is missing.)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

from cometmq.errors import CometError, StoreError
from cometmq.store.disk import Disk
from cometmq.wire.json_dialect import loads

log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFiles:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def load(self, name: str) -> Any:
        """The JSON value of the table, None if there never was one. StoreError if no copy is good."""
        return self.load_as(name, loads)

    def load_as(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """The table as `decode` makes it; a copy that it rejects (CometError, ValueError) is no good one."""
        path = os.path.join(self._directory, name)
        faults: list[str] = []
        for candidate in (path, path + ".bak"):
            # An empty file was never saved: a Java broker that died at its first save leaves one.
            if not self._disk.exists(candidate) or self._disk.size(candidate) == 0:
                continue
            try:
                table = decode(self._disk.read_bytes(candidate))
            except (CometError, ValueError) as error:
                faults.append(f"{candidate}: {error}")
                continue
            if candidate != path:
                self._set_aside(path, faults)
            return table
        if faults:
            raise StoreError(f"no good copy of {name} ({'; '.join(faults)}): restore one of them from a backup")
        return None

    def _set_aside(self, path: str, faults: list[str]) -> None:
        """The next save would make the damaged file the .bak: keep the good one from that."""
        log.warning("took backup of table path=%s.bak reason=%r", path, "; ".join(faults) or "the file is missing")
        if self._disk.exists(path):
            self._disk.rename(path, path + ".bad")

    def save(self, name: str, data: bytes) -> None:
        """Replace the table. On return it is on disk; OSError or DiskFull: the old one is still good."""
        self._disk.replace_atomically(os.path.join(self._directory, name), data, keep_backup=True)
