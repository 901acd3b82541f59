"""What the front asks a broker about one message, by its handle."""

from __future__ import annotations

from typing import Final

from cometmq.front.handles import Handle
from cometmq.wire.codes import Request, Version
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import AckMessage, ChangeInvisibleTime, ChangeInvisibleTimeResponse, SendMessageBack

TO_DEAD_LETTERS: Final = -1


def ack_command(handle: Handle, group: str, topic: str) -> Command:
    header = AckMessage(group, handle.topic_of(topic, group), handle.queue_id, handle.receipt, handle.offset)
    return _named(Request.ACK_MESSAGE, header.encode(), handle)


def change_command(handle: Handle, group: str, topic: str, invisible_ms: int) -> Command:
    header = ChangeInvisibleTime(
        group, handle.topic_of(topic, group), handle.queue_id, handle.receipt, handle.offset, invisible_ms
    )
    return _named(Request.CHANGE_MESSAGE_INVISIBLETIME, header.encode(), handle)


def dead_letter_command(handle: Handle, group: str, topic: str, attempts_max: int) -> Command:
    header = SendMessageBack(
        offset=handle.place,
        group=group,
        delay_level=TO_DEAD_LETTERS,
        origin_topic=topic,
        max_reconsume_times=max(attempts_max, 0),
    )
    return _named(Request.CONSUMER_SEND_MSG_BACK, header.encode(), handle)


def _named(code: int, ext: dict[str, str], handle: Handle) -> Command:
    """For the broker that the handle names."""
    ext["bname"] = handle.broker
    command = new_request(code, ext)
    command.version = Version.V5_5_0
    return command


def renewed(handle: Handle, response: Command) -> Handle:
    header = ChangeInvisibleTimeResponse.decode(response.ext)
    return handle.renewed(header.pop_time, header.invisible_time, header.revive_qid)
