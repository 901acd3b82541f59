"""Headers of a consumer's requests beside the pull itself (`hot.py`): offsets, membership, lookup, send back."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from cometmq.wire.codes import Request, Response
from cometmq.wire.headers.base import I32, I64, Boundary, Header, HeaderCodec
from cometmq.wire.headers.hot import PullMessage, PullMessageResponse
from cometmq.wire.headers.parse import LOWER


class QueryConsumerOffset(Header):
    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffset(Header):
    REFUSAL_CODE: ClassVar[int] = Response.INVALID_PARAMETER

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64


class SearchOffset(Header):
    """`boundary_type`: which of several messages with the same time is meant, LOWER the first, UPPER the last."""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: Boundary = LOWER


class GetMaxOffset(Header):
    topic: str
    queue_id: I32
    committed: bool = True


class GetMinOffset(Header):
    topic: str
    queue_id: I32


class GetEarliestStoreTime(Header):
    topic: str
    queue_id: I32


class OffsetResponse(Header):
    offset: I64


class TimestampResponse(Header):
    timestamp: I64


class HeartbeatResponse(Header):
    supports_heartbeat_v2: bool = field(default=False, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool = field(default=True, name="IS_SUB_CHANGE")


class UnregisterClient(Header):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerList(Header):
    consumer_group: str


class SendMessageBack(Header):
    """`offset` is physical: the message's place in the commit log. The last three are CometMQ's (record/failure.py)."""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    failure_cause: str | None = None
    failure_type: str | None = None
    failure_consumer: str | None = None


class QueryMessage(Header):
    """`index_type` T asks for a tag, else for a key. `last_key` pages through RocketMQ's index in RocksDB only."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool = field(default=False, name="_UNIQUE_KEY_QUERY")
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponse(Header):
    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


class ViewMessage(Header):
    """`offset` is physical."""

    offset: I64
    topic: str | None = None


REQUESTS: dict[int, HeaderCodec] = {
    Request.PULL_MESSAGE: PullMessage,
    Request.LITE_PULL_MESSAGE: PullMessage,
    Request.QUERY_CONSUMER_OFFSET: QueryConsumerOffset,
    Request.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffset,
    Request.SEARCH_OFFSET_BY_TIMESTAMP: SearchOffset,
    Request.GET_MAX_OFFSET: GetMaxOffset,
    Request.GET_MIN_OFFSET: GetMinOffset,
    Request.GET_EARLIEST_MSG_STORETIME: GetEarliestStoreTime,
    Request.UNREGISTER_CLIENT: UnregisterClient,
    Request.GET_CONSUMER_LIST_BY_GROUP: GetConsumerList,
    Request.CONSUMER_SEND_MSG_BACK: SendMessageBack,
    Request.QUERY_MESSAGE: QueryMessage,
    Request.VIEW_MESSAGE_BY_ID: ViewMessage,
}
RESPONSES: dict[int, HeaderCodec] = {
    Request.PULL_MESSAGE: PullMessageResponse,
    Request.LITE_PULL_MESSAGE: PullMessageResponse,
    Request.QUERY_CONSUMER_OFFSET: OffsetResponse,
    Request.SEARCH_OFFSET_BY_TIMESTAMP: OffsetResponse,
    Request.GET_MAX_OFFSET: OffsetResponse,
    Request.GET_MIN_OFFSET: OffsetResponse,
    Request.GET_EARLIEST_MSG_STORETIME: TimestampResponse,
    Request.HEART_BEAT: HeartbeatResponse,
    Request.QUERY_MESSAGE: QueryMessageResponse,
}
# Their content is all in the body.
HEADERLESS = (
    Request.HEART_BEAT,
    Request.CHECK_CLIENT_CONFIG,
    Request.LOCK_BATCH_MQ,
    Request.UNLOCK_BATCH_MQ,
)
