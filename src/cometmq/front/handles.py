"""Receipt handles: what a client was given with a message, and gives back to acknowledge it.

    start popped_ms invisible_ms revive flag broker queue offset place       one space between

`flag` 0: of the topic itself, 1 and 2: of the retry topic of the group, in its two forms. `revive` 999: in order.
`place` is where the message is in the log. The first eight are the receipt (POP_CK) of remoting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cometmq import names
from cometmq.front.refusals import Refused
from cometmq.wire.grpc import messages_pb2 as pb

PARTS_MIN: Final = 8
CHARS_MAX: Final = 1_024
DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True)
class Handle:
    """`place` -1: the client's handle has none."""

    start: int
    popped_ms: int
    invisible_ms: int
    revive_id: int
    flag: int
    broker: str
    queue_id: int
    offset: int
    place: int

    @property
    def text(self) -> str:
        return f"{self.receipt} {self.place}"

    @property
    def receipt(self) -> str:
        return (
            f"{self.start} {self.popped_ms} {self.invisible_ms} {self.revive_id} {self.flag} {self.broker} "
            f"{self.queue_id} {self.offset}"
        )

    @property
    def due_ms(self) -> int:
        return self.popped_ms + self.invisible_ms

    def topic_of(self, topic: str, group: str) -> str:
        """Where the message was popped from."""
        if self.flag == 0:
            return topic
        return f"{names.RETRY_PREFIX}{group}{'_' if self.flag == 1 else '+'}{topic}"

    def renewed(self, popped_ms: int, invisible_ms: int, revive_id: int) -> Handle:
        return Handle(
            self.offset, popped_ms, invisible_ms, revive_id, self.flag, self.broker, self.queue_id, self.offset,
            self.place,
        )  # fmt: skip


def parse(text: str) -> Handle:
    """Raises Refused: RocketMQ answers 50001 here, which its clients try again without end."""
    parts = text.split(" ")
    if len(text) > CHARS_MAX or len(parts) < PARTS_MIN:
        raise Refused(pb.INVALID_RECEIPT_HANDLE, "the receipt handle is none")
    return Handle(
        _number(parts[0]), _number(parts[1]), _number(parts[2]), _number(parts[3]), _number(parts[4]), parts[5],
        _number(parts[6]), _number(parts[7]), _number(parts[8]) if len(parts) > PARTS_MIN else -1,
    )  # fmt: skip


def parse_valid(text: str, now_ms: int) -> Handle:
    handle = parse(text)
    if handle.due_ms <= now_ms:
        raise Refused(pb.INVALID_RECEIPT_HANDLE, f"the receipt handle has expired {now_ms - handle.due_ms} ms ago")
    return handle


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX):
        raise Refused(pb.INVALID_RECEIPT_HANDLE, f"the receipt handle has {text[:40]!r} for a number")
    return int(text)
