"""Which groups consume which topics by POP; everybody else pulls.

The file is RocketMQ's messageRequestMode.json:

    {"messageRequestModeMap":{"T":{"g":{"mode":"POP","popShareQueueNum":0,...}}}}
"""

from collections.abc import Callable

from cometmq.wire.bodies import MessageRequestMode, MessageRequestModeTable
from cometmq.wire.fastjson.dialect import dumps_pretty


class RequestModes:
    """`table`: by topic and group."""

    def __init__(self) -> None:
        self.table: dict[str, dict[str, MessageRequestMode]] = {}
        self.changes: int = 0

    def get(self, topic: str, group: str) -> MessageRequestMode | None:
        return self.table.get(topic, {}).get(group)

    def set(self, mode: MessageRequestMode) -> None:
        self.table.setdefault(mode.topic or "", {})[mode.consumer_group or ""] = mode
        self.changes += 1

    def follow(self, other: MessageRequestModeTable) -> None:
        if other.message_request_mode_map != self.table:
            self.table = other.message_request_mode_map
            self.changes += 1

    def encode(self) -> bytes:
        return MessageRequestModeTable(message_request_mode_map=self.table).encode()

    def restore(self, content: bytes) -> None:
        self.table = MessageRequestModeTable.decode(content).message_request_mode_map

    def snapshot(self) -> Callable[[], bytes]:
        content = {"messageRequestModeMap": {topic: groups.copy() for topic, groups in self.table.items()}}
        return lambda: dumps_pretty(content)
