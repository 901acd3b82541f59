# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Who is connected and what they subscribe to: heartbeats, connection lists, queue locks."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from cometmq.wire.bodies.base import I32, I64, Body, EnumName, enum_name
from cometmq.wire.bodies.common import MessageQueue
from cometmq.wire.codes import LANGUAGE_CODES

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
LANGUAGES = tuple(LANGUAGE_CODES)


class SubscriptionData(Body):
    """`code_set` holds Java hash codes of the tags. Filter by tag unless `expression_type` is SQL92."""

    OBJECTS_MAX: ClassVar[int] = 2_000

    class_filter_mode: bool = False
    code_set: set[I32] = set()
    expression_type: str | None = "TAG"
    sub_string: str | None = None
    sub_version: I64 = 0
    tags_set: set[str] = set()
    topic: str | None = None


class ConsumerData(Body):
    group_name: str | None = None
    consume_type: EnumName = None
    message_model: EnumName = None
    consume_from_where: EnumName = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False

    def __post_init__(self) -> None:
        self.consume_type = enum_name(self.consume_type, CONSUME_TYPES)
        self.message_model = enum_name(self.message_model, MESSAGE_MODELS)
        self.consume_from_where = enum_name(self.consume_from_where, CONSUME_FROM_WHERE)


class ProducerData(Body):
    group_name: str | None = None


class HeartbeatData(Body):
    """`heartbeat_fingerprint` 0 is a first-form heartbeat; `without_sub` leaves unchanged subscriptions out."""

    OBJECTS_MAX: ClassVar[int] = 4_000

    client_id: str | None = field(default=None, name="clientID")
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: I32 = 0
    producer_data_set: list[ProducerData] = []
    without_sub: bool = False


class CheckClientConfig(Body):
    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class ConsumerList(Body):
    consumer_id_list: list[str] = []


class LockBatchRequest(Body):
    """Also the body of an unlock."""

    OBJECTS_MAX: ClassVar[int] = 5_000

    client_id: str | None = None
    consumer_group: str | None = None
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockBatchResponse(Body):
    locked: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class Connection(Body):
    client_addr: str | None = None
    client_id: str | None = None
    language: EnumName = None
    version: I32 = 0

    def __post_init__(self) -> None:
        self.language = enum_name(self.language, LANGUAGES)


class ConsumerConnection(Body):
    connection_set: list[Connection] = []
    consume_from_where: EnumName = None
    consume_type: EnumName = None
    message_model: EnumName = None
    subscription_table: dict[str, SubscriptionData] = {}

    def __post_init__(self) -> None:
        self.consume_type = enum_name(self.consume_type, CONSUME_TYPES)
        self.message_model = enum_name(self.message_model, MESSAGE_MODELS)
        self.consume_from_where = enum_name(self.consume_from_where, CONSUME_FROM_WHERE)


class ProducerConnection(Body):
    connection_set: list[Connection] = []


class ProducerInfo(Body):
    """`remote_ip` is `/ip:port`."""

    client_id: str | None = None
    language: EnumName = None
    last_update_timestamp: I64 = 0
    remote_ip: str | None = field(default=None, name="remoteIP")
    version: I32 = 0

    def __post_init__(self) -> None:
        self.language = enum_name(self.language, LANGUAGES)


class ProducerTable(Body):
    data: dict[str, list[ProducerInfo]] = {}


class GroupSubscriptionData(Body):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None
