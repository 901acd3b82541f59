"""Headers of requests that a broker sends to a client on the client's own connection.

GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY also travel from an admin tool to the broker, which relays them.
"""

from __future__ import annotations

from msgspec import field

from cometmq.wire.codes import Request
from cometmq.wire.headers.base import I32, I64, Header, HeaderCodec


class CheckTransactionState(Header):
    """`msg_id` and `transaction_id` are both the unique id; `topic` is the half topic."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class NotifyConsumerIdsChanged(Header):
    consumer_group: str


class ResetConsumerClientOffset(Header):
    topic: str
    group: str
    timestamp: I64
    is_force: bool = False
    queue_id: I32 = -1
    offset: I64 | None = None


class GetConsumerStatus(Header):
    """`client_addr` is a client id."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfo(Header):
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectly(Header):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None


class PushReplyMessage(Header):
    """Hosts are `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    store_timestamp: I64
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False


REQUESTS: dict[int, HeaderCodec] = {
    Request.CHECK_TRANSACTION_STATE: CheckTransactionState,
    Request.NOTIFY_CONSUMER_IDS_CHANGED: NotifyConsumerIdsChanged,
    Request.RESET_CONSUMER_CLIENT_OFFSET: ResetConsumerClientOffset,
    Request.GET_CONSUMER_STATUS_FROM_CLIENT: GetConsumerStatus,
    Request.GET_CONSUMER_RUNNING_INFO: GetConsumerRunningInfo,
    Request.CONSUME_MESSAGE_DIRECTLY: ConsumeMessageDirectly,
    Request.PUSH_REPLY_MESSAGE_TO_CLIENT: PushReplyMessage,
}
