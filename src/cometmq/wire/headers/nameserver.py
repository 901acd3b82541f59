"""Headers of requests to the name server, and of those between the brokers of one replica group."""

from __future__ import annotations

from msgspec import field

from cometmq.wire.codes import Request
from cometmq.wire.headers.base import I32, I64, Header, HeaderCodec


class RegisterBroker(Header):
    """Addresses are `ip:port`; broker id 0 is the master; CRC 0 means unchecked.

    `enable_acting_master` None marks a broker older than 5.0.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    heartbeat_timeout_ms: I64 | None = field(default=None, name="heartbeatTimeoutMillis")
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: I32 = 0
    zone_name: str | None = field(default=None, name="__ZONE_NAME")


class RegisterBrokerResponse(Header):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class QueryDataVersion(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class QueryDataVersionResponse(Header):
    changed: bool


class BrokerHeartbeat(Header):
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
    epoch: I32 | None = None
    max_offset: I64 | None = None
    confirm_offset: I64 | None = None
    heartbeat_timeout_ms: I64 | None = field(default=None, name="heartbeatTimeoutMills")
    election_priority: I32 | None = None


class GetRoute(Header):
    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: bool | None = field(default=None, name="__ZONE_MODE")
    zone_name: str | None = field(default=None, name="__ZONE_NAME")


class PutKvConfig(Header):
    namespace: str
    key: str
    value: str | None = None


class KvConfigKey(Header):
    namespace: str
    key: str


class GetKvConfigResponse(Header):
    value: str | None = None


class GetKvList(Header):
    namespace: str


class GetTopicsByCluster(Header):
    cluster: str


class DeleteTopicRoute(Header):
    topic: str
    cluster_name: str | None = None


class RegisterTopic(Header):
    topic: str


class ChangeWritePermission(Header):
    broker_name: str


class WipeWritePermissionResponse(Header):
    wipe_topic_count: I32


class AddWritePermissionResponse(Header):
    add_topic_count: I32


class GetBrokerMemberGroup(Header):
    cluster_name: str
    broker_name: str


class NotifyMinBrokerIdChange(Header):
    min_broker_id: I64 | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
    broker_name: str | None = None


class ExchangeHaInfo(Header):
    """Asked without `master_ha_address`, a master answers with its own three; given, they are taken over."""

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None


REQUESTS: dict[int, HeaderCodec] = {
    Request.REGISTER_BROKER: RegisterBroker,
    Request.UNREGISTER_BROKER: UnregisterBroker,
    Request.QUERY_DATA_VERSION: QueryDataVersion,
    Request.BROKER_HEARTBEAT: BrokerHeartbeat,
    Request.GET_ROUTEINFO_BY_TOPIC: GetRoute,
    Request.PUT_KV_CONFIG: PutKvConfig,
    Request.GET_KV_CONFIG: KvConfigKey,
    Request.DELETE_KV_CONFIG: KvConfigKey,
    Request.GET_KVLIST_BY_NAMESPACE: GetKvList,
    Request.GET_TOPICS_BY_CLUSTER: GetTopicsByCluster,
    Request.DELETE_TOPIC_IN_NAMESRV: DeleteTopicRoute,
    Request.REGISTER_TOPIC_IN_NAMESRV: RegisterTopic,
    Request.WIPE_WRITE_PERM_OF_BROKER: ChangeWritePermission,
    Request.ADD_WRITE_PERM_OF_BROKER: ChangeWritePermission,
    Request.GET_BROKER_MEMBER_GROUP: GetBrokerMemberGroup,
    Request.NOTIFY_MIN_BROKER_ID_CHANGE: NotifyMinBrokerIdChange,
    Request.EXCHANGE_BROKER_HA_INFO: ExchangeHaInfo,
}
RESPONSES: dict[int, HeaderCodec] = {
    Request.REGISTER_BROKER: RegisterBrokerResponse,
    Request.QUERY_DATA_VERSION: QueryDataVersionResponse,
    Request.GET_KV_CONFIG: GetKvConfigResponse,
    Request.WIPE_WRITE_PERM_OF_BROKER: WipeWritePermissionResponse,
    Request.ADD_WRITE_PERM_OF_BROKER: AddWritePermissionResponse,
    Request.EXCHANGE_BROKER_HA_INFO: ExchangeHaInfo,
}
HEADERLESS = (
    Request.GET_BROKER_CLUSTER_INFO,
    Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    Request.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    Request.GET_UNIT_TOPIC_LIST,
    Request.GET_HAS_UNIT_SUB_TOPIC_LIST,
    Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    Request.UPDATE_NAMESRV_CONFIG,
    Request.GET_NAMESRV_CONFIG,
)
