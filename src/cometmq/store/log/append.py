"""What goes into the commit log, and what is counted about it. Compiled together with commit_log.py."""

from __future__ import annotations

from typing import Final

from cometmq.wire.record.message import StoredMessage, encode_host

# 127.0.0.1:10911 as a record has it.
LOCAL_HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
# Upper ends in ms of the classes in which put times are counted; the last class is open.
PUT_TIME_CLASSES_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)


class AppendRequest:
    """A message as it should be stored. An append may rewrite `properties`: afterwards they are those of the record."""

    __slots__ = (
        "topic",
        "queue_id",
        "body",
        "properties",
        "flag",
        "sys_flag",
        "born_time_ms",
        "born_host",
        "reconsume_times",
        "prepared_offset",
        "wait",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes | None,
        properties: str = "",
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_time_ms: int = 0,
        born_host: bytes = LOCAL_HOST,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        wait: bool = True,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_time_ms = born_time_ms
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.wait = wait


def copy_to(message: StoredMessage, topic: str, queue_id: int, properties: str) -> AppendRequest:
    """A stored message for another place; nobody waits for it."""
    return AppendRequest(
        topic,
        queue_id,
        message.body,
        properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_time_ms=message.born_timestamp_ms,
        born_host=encode_host(message.born_host),
        reconsume_times=message.reconsume_times,
        wait=False,
    )


class PutMetrics:
    """What was put since the start; `times` counts puts by PUT_TIME_CLASSES_MS."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.failed = 0
        self.longest_s = 0.0
        self.largest_bytes = 0
        self.times: list[int] = [0] * (len(PUT_TIME_CLASSES_MS) + 1)

    def took(self, elapsed_s: float) -> None:
        if elapsed_s > self.longest_s:
            self.longest_s = elapsed_s
        index = 0
        while index < len(PUT_TIME_CLASSES_MS) and elapsed_s * 1000 > PUT_TIME_CLASSES_MS[index]:
            index += 1
        self.times[index] += 1
