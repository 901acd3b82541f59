"""Headers of a producer's requests beside the send itself (`hot.py`)."""

from __future__ import annotations

from msgspec import field

from cometmq.wire.codes import Request
from cometmq.wire.headers.base import I32, I64, Header, HeaderCodec
from cometmq.wire.headers.hot import SendMessage, SendMessageResponse, SendMessageV2


class EndTransaction(Header):
    """`commit_or_rollback`: 0 unknown, 8 commit, 12 rollback."""

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    transaction_id: str | None = None
    from_transaction_check: bool = False
    topic: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class RecallMessage(Header):
    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponse(Header):
    msg_id: str
    msg_region: str | None = field(default=None, name="MSG_REGION")


REQUESTS: dict[int, HeaderCodec] = {
    Request.SEND_MESSAGE: SendMessage,
    Request.SEND_MESSAGE_V2: SendMessageV2,
    Request.SEND_BATCH_MESSAGE: SendMessageV2,
    Request.SEND_REPLY_MESSAGE: SendMessage,
    Request.SEND_REPLY_MESSAGE_V2: SendMessageV2,
    Request.END_TRANSACTION: EndTransaction,
    Request.RECALL_MESSAGE: RecallMessage,
}
RESPONSES: dict[int, HeaderCodec] = {
    Request.SEND_MESSAGE: SendMessageResponse,
    Request.SEND_MESSAGE_V2: SendMessageResponse,
    Request.SEND_BATCH_MESSAGE: SendMessageResponse,
    Request.SEND_REPLY_MESSAGE: SendMessageResponse,
    Request.SEND_REPLY_MESSAGE_V2: SendMessageResponse,
    Request.RECALL_MESSAGE: RecallMessageResponse,
}
