"""Headers of the POP family: the broker hands out messages one by one and the consumer acks each.

`extra_info` is the check point of one popped message, blank-separated (also property POP_CK):

    start offset, pop time, invisible time, revive queue id, retry mark, broker name, queue id, queue offset
"""

from __future__ import annotations

from cometmq.wire.codes import Request
from cometmq.wire.headers.base import I32, I64, Header, HeaderCodec


class PopMessage(Header):
    """`born_time` 0: the broker's clock counts. `init_mode` 0 starts at the oldest message, 1 at the newest."""

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64
    init_mode: I32
    born_time: I64 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponse(Header):
    """The three infos are entries `retry-mark queue-id value` joined by `;`."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(Header):
    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64


class ChangeInvisibleTime(Header):
    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64
    invisible_time: I64


class ChangeInvisibleTimeResponse(Header):
    pop_time: I64
    invisible_time: I64
    revive_qid: I32


class Notification(Header):
    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: I64
    born_time: I64
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponse(Header):
    has_msg: bool
    polling_full: bool = False


class PeekMessage(Header):
    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32


class PollingInfo(Header):
    consumer_group: str
    topic: str
    queue_id: I32


class PollingInfoResponse(Header):
    polling_num: I32


REQUESTS: dict[int, HeaderCodec] = {
    Request.POP_MESSAGE: PopMessage,
    Request.ACK_MESSAGE: AckMessage,
    Request.CHANGE_MESSAGE_INVISIBLETIME: ChangeInvisibleTime,
    Request.NOTIFICATION: Notification,
    Request.PEEK_MESSAGE: PeekMessage,
    Request.POLLING_INFO: PollingInfo,
}
RESPONSES: dict[int, HeaderCodec] = {
    Request.POP_MESSAGE: PopMessageResponse,
    Request.CHANGE_MESSAGE_INVISIBLETIME: ChangeInvisibleTimeResponse,
    Request.NOTIFICATION: NotificationResponse,
    Request.PEEK_MESSAGE: PopMessageResponse,
    Request.POLLING_INFO: PollingInfoResponse,
}
HEADERLESS = (
    Request.BATCH_ACK_MESSAGE,
    Request.QUERY_ASSIGNMENT,
    Request.SET_MESSAGE_REQUEST_MODE,
)
