"""What the store may do right now: one number with a bit for each reason against it.

    bit   1 not readable          16 disk full
          2 not writable          32 fenced (a controller is choosing a master)
          4 consume queue failed  64 disk of the consume queues full
          8 index failed

Get is stopped by bit 1 only. Put is stopped by every other bit; consume queues are still built when the disk is full
or the store is fenced, because they follow what is already in the log.
"""

from __future__ import annotations

from typing import Final

NOT_READABLE: Final = 1
NOT_WRITABLE: Final = 2
QUEUE_FAILED: Final = 4
INDEX_FAILED: Final = 8
DISK_FULL: Final = 16
FENCED: Final = 32
QUEUE_DISK_FULL: Final = 64

_STOPS_PUT: Final = NOT_WRITABLE | QUEUE_FAILED | INDEX_FAILED | DISK_FULL | FENCED | QUEUE_DISK_FULL

_NAMES: Final = {
    NOT_READABLE: "not readable",
    NOT_WRITABLE: "not writable",
    QUEUE_FAILED: "consume queue failed",
    INDEX_FAILED: "index failed",
    DISK_FULL: "disk full",
    FENCED: "fenced",
    QUEUE_DISK_FULL: "disk of the consume queues full",
}


class Flags:
    def __init__(self) -> None:
        self.bits = 0
        # What the device said when the store became not writable.
        self.cause: str = ""

    def set(self, bit: int) -> bool:
        """True if it was not set before."""
        was_clear = not self.bits & bit
        self.bits |= bit
        return was_clear

    def clear(self, bit: int) -> bool:
        """True if it was set before."""
        was_set = bool(self.bits & bit)
        self.bits &= ~bit
        return was_set

    @property
    def readable(self) -> bool:
        return not self.bits & NOT_READABLE

    @property
    def writable(self) -> bool:
        return not self.bits & _STOPS_PUT

    def reasons(self) -> str:
        return ", ".join([name for bit, name in _NAMES.items() if self.bits & bit])

    def refusal(self) -> str:
        """Why a put is refused, as its sender reads it."""
        text = f"the store takes no messages: {self.reasons()}"
        return f"{text}, because {self.cause}; check the device, then restart" if self.cause else text
