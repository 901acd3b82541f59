# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Bodies of the POP family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from msgspec import field

from cometmq.wire.bodies.base import I32, I64, Body, EnumName, enum_name
from cometmq.wire.bodies.common import MessageQueue

REQUEST_MODES = ("PULL", "POP")
# One entry acks one popped run, a few dozen messages; the bound keeps a hostile bit set from growing into a huge list.
BIT_SET_BYTES_MAX: Final = 65_536
_SHORT_NAMES = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class BatchAck(Body):
    """Acks of one popped run: bit i of `bit_set`, lowest bit of a byte first, acks `start_offset` + i."""

    SEVERAL_FORMS: ClassVar[bool] = True

    bit_set: bytes = field(default=b"", name="b")
    consumer_group: str | None = field(default=None, name="c")
    invisible_time: I64 = field(default=0, name="it")
    pop_time: I64 = field(default=0, name="pt")
    queue_id: I32 = field(default=0, name="q")
    retry: str | None = field(default=None, name="r")
    revive_queue_id: I32 = field(default=0, name="rq")
    start_offset: I64 = field(default=0, name="so")
    topic: str | None = field(default=None, name="t")

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        return {_SHORT_NAMES.get(name, name): value for name, value in tree.items()}

    def __post_init__(self) -> None:
        if len(self.bit_set) > BIT_SET_BYTES_MAX:
            raise ValueError(f"bit set of {len(self.bit_set)} bytes, the limit is {BIT_SET_BYTES_MAX}")

    def count(self) -> int:
        """How many offsets there are, without making them."""
        return int.from_bytes(self.bit_set, "little").bit_count()

    def offsets(self) -> list[int]:
        return [
            self.start_offset + 8 * index + bit
            for index, byte in enumerate(self.bit_set)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        ]

    def set_offsets(self, offsets: Iterable[int]) -> None:
        bits = 0
        for offset in offsets:
            bits |= 1 << (offset - self.start_offset)
        self.bit_set = bits.to_bytes((bits.bit_length() + 7) // 8, "little")


class BatchAckRequest(Body):
    SEVERAL_FORMS: ClassVar[bool] = True
    OBJECTS_MAX: ClassVar[int] = 1_000

    acks: list[BatchAck] = []
    broker_name: str | None = None

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        acks = tree.get("acks")
        if isinstance(acks, list):
            tree["acks"] = [BatchAck.from_tree(ack) for ack in acks]
        return tree


class QueryAssignmentRequest(Body):
    client_id: str | None = None
    consumer_group: str | None = None
    message_model: EnumName = None
    strategy_name: str | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        self.message_model = enum_name(self.message_model, ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE"))


class QueueAssignment(Body):
    """In mode POP, queue id -1 is the whole broker."""

    message_queue: MessageQueue | None = None
    mode: EnumName = None
    attachments: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self.mode = enum_name(self.mode, REQUEST_MODES)


class QueryAssignmentResponse(Body):
    """No list means to skip this round, an empty one to drop every queue."""

    message_queue_assignments: list[QueueAssignment] | None = None


class MessageRequestMode(Body):
    """Body of SET_MESSAGE_REQUEST_MODE, and an entry of messageRequestMode.json."""

    consumer_group: str | None = None
    mode: EnumName = "PULL"
    pop_share_queue_num: I32 = 0
    topic: str | None = None

    def __post_init__(self) -> None:
        self.mode = enum_name(self.mode, REQUEST_MODES) or "PULL"


class MessageRequestModeTable(Body):
    """By topic and group: what a slave copies, and the file messageRequestMode.json."""

    message_request_mode_map: dict[str, dict[str, MessageRequestMode]] = {}
