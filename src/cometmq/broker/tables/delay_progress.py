"""How far each delay level has been delivered: RocketMQ's file delayOffset.json.

    {"dataVersion":{...},"offsetTable":{1:250,3:7}}

What is delivered may be saved once the log is on disk up to the last delivered message, so `offsets` runs ahead of what
is confirmed, and the file has what is confirmed.
"""

from collections.abc import Callable
from typing import Final

from cometmq.broker.tables.versions import first_version, next_version
from cometmq.clock import Clock
from cometmq.wire.bodies import DataVersion, DelayOffsetTable
from cometmq.wire.fastjson.dialect import dumps_pretty

VERSION_STEP: Final = 200


class DelayProgress:
    """`offsets`: level -> the next message of its queue. `changes` goes up with what may be saved."""

    def __init__(self, clock: Clock) -> None:
        self.offsets: dict[int, int] = {}
        self.version: DataVersion = first_version(clock.now_ms())
        self.changes: int = 0
        self._clock: Clock = clock
        self._confirmed: dict[int, int] = {}
        self._advanced: int = 0

    # The file, and what a replica copies

    def restore(self, content: bytes) -> None:
        read = DelayOffsetTable.decode(content)
        self.offsets = dict(read.offset_table)
        self._confirmed = dict(read.offset_table)
        self.version = read.data_version

    def follow(self, other: DelayOffsetTable) -> None:
        """Go on where another broker of the replica group is."""
        self.offsets = dict(other.offset_table)
        self.version = other.data_version
        self.confirm(dict(other.offset_table))

    def resume(self, progress: dict[int, int]) -> None:
        """Go on from here, with what was found out without a file."""
        self.offsets = dict(progress)
        self.confirm(dict(progress))

    def snapshot(self) -> Callable[[], bytes]:
        content = {"dataVersion": self.version, "offsetTable": dict(sorted(self._confirmed.items()))}
        return lambda: dumps_pretty(content)

    # Delivering

    def advance(self, level: int, offset: int) -> None:
        self.offsets[level] = offset
        self._advanced += 1
        if self._advanced % VERSION_STEP == 0:
            self.version = next_version(self.version, self._clock.now_ms())

    def move(self, level: int, offset: int) -> None:
        """Not by delivering: the queue begins later, or ends before."""
        self.offsets[level] = offset

    def unconfirmed(self) -> dict[int, int] | None:
        """What `confirm` wants to hear when the log, as it is now, is on disk; None if it has heard it."""
        return None if self.offsets == self._confirmed else self.offsets.copy()

    def confirm(self, progress: dict[int, int]) -> None:
        """This may be saved."""
        self._confirmed = progress
        self.changes += 1
