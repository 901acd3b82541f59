"""Headers of broker administration: topics, groups, statistics, connections, configuration, maintenance."""

from __future__ import annotations

from cometmq.wire.codes import Request
from cometmq.wire.headers.base import I32, I64, Header, HeaderCodec
from cometmq.wire.headers.broker_to_client import GetConsumerStatus


class CreateTopic(Header):
    """`attributes` is a change list: `+key=value` sets, `-key` deletes, joined by commas."""

    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    order: bool
    topic_sys_flag: I32 | None = None
    attributes: str | None = None
    force: bool = False


class DeleteTopic(Header):
    topic: str


class GetAllTopicConfig(Header):
    """All three absent asks for everything; `data_version` is JSON text."""

    topic_seq: I32 | None = None
    data_version: str | None = None
    max_topic_num: I32 | None = None


class GetAllTopicConfigResponse(Header):
    total_topic_num: I32 | None = None


class GetTopicConfig(Header):
    """`lo` asks for the static-topic mapping as well."""

    topic: str
    lo: bool | None = None


class GetGroupConfig(Header):
    group: str


class GetAllGroupConfig(Header):
    """All three absent asks for everything; `data_version` is JSON text."""

    group_seq: I32 | None = None
    data_version: str | None = None
    max_group_num: I32 | None = None


class GetAllGroupConfigResponse(Header):
    total_group_num: I32 | None = None


class DeleteGroup(Header):
    group_name: str
    clean_offset: bool = False


class UpdateGroupForbidden(Header):
    """Without `readable` only asks."""

    group: str
    topic: str
    readable: bool | None = None


class GetTopicStats(Header):
    topic: str


class GetConsumeStats(Header):
    """`topic_list` is `;`-separated and overrides `topic`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetBrokerConsumeStats(Header):
    is_order: bool


class QueryConsumeTimeSpan(Header):
    topic: str
    group: str


class QueryCorrectionOffset(Header):
    """`filter_groups` is comma-separated."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class QueryConsumeQueue(Header):
    topic: str
    queue_id: I32
    index: I64 = 0
    count: I32 = 0
    consumer_group: str | None = None


class GetConsumerConnections(Header):
    consumer_group: str


class GetProducerConnections(Header):
    producer_group: str


class QueryTopicConsumers(Header):
    topic: str


class QueryTopicsByConsumer(Header):
    group: str


class QuerySubscriptionByConsumer(Header):
    group: str
    topic: str | None = None


class GetBrokerConfigResponse(Header):
    """`version` is a DataVersion as JSON text."""

    version: str


class ViewBrokerStats(Header):
    stats_name: str
    stats_key: str


class ResetOffset(Header):
    """`timestamp` < 0 is the newest, `queue_id` < 0 all queues, `offset` < 0 unset."""

    topic: str
    group: str
    timestamp: I64
    is_force: bool
    queue_id: I32 = -1
    offset: I64 | None = None


class CloneGroupOffset(Header):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ResumeCheckHalfMessage(Header):
    topic: str | None = None
    msg_id: str | None = None


class AuthUser(Header):
    """`overlap_ms` is our own: how long a password that is changed stays valid beside the new one."""

    username: str | None = None
    overlap_ms: I64 | None = None


class AuthListUsers(Header):
    filter: str | None = None


class AuthAcl(Header):
    subject: str | None = None


class AuthDeleteAcl(Header):
    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class AuthListAcls(Header):
    subject_filter: str | None = None
    resource_filter: str | None = None


REQUESTS: dict[int, HeaderCodec] = {
    Request.UPDATE_AND_CREATE_TOPIC: CreateTopic,
    Request.UPDATE_AND_CREATE_STATIC_TOPIC: CreateTopic,
    Request.DELETE_TOPIC_IN_BROKER: DeleteTopic,
    Request.GET_ALL_TOPIC_CONFIG: GetAllTopicConfig,
    Request.GET_TOPIC_CONFIG: GetTopicConfig,
    Request.GET_SUBSCRIPTIONGROUP_CONFIG: GetGroupConfig,
    Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GetAllGroupConfig,
    Request.DELETE_SUBSCRIPTIONGROUP: DeleteGroup,
    Request.UPDATE_AND_GET_GROUP_FORBIDDEN: UpdateGroupForbidden,
    Request.GET_TOPIC_STATS_INFO: GetTopicStats,
    Request.GET_CONSUME_STATS: GetConsumeStats,
    Request.GET_BROKER_CONSUME_STATS: GetBrokerConsumeStats,
    Request.QUERY_CONSUME_TIME_SPAN: QueryConsumeTimeSpan,
    Request.QUERY_CORRECTION_OFFSET: QueryCorrectionOffset,
    Request.QUERY_CONSUME_QUEUE: QueryConsumeQueue,
    Request.GET_CONSUMER_CONNECTION_LIST: GetConsumerConnections,
    Request.GET_PRODUCER_CONNECTION_LIST: GetProducerConnections,
    Request.QUERY_TOPIC_CONSUME_BY_WHO: QueryTopicConsumers,
    Request.QUERY_TOPICS_BY_CONSUMER: QueryTopicsByConsumer,
    Request.QUERY_SUBSCRIPTION_BY_CONSUMER: QuerySubscriptionByConsumer,
    Request.VIEW_BROKER_STATS_DATA: ViewBrokerStats,
    Request.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffset,
    Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: GetConsumerStatus,
    Request.CLONE_GROUP_OFFSET: CloneGroupOffset,
    Request.RESUME_CHECK_HALF_MESSAGE: ResumeCheckHalfMessage,
    Request.AUTH_CREATE_USER: AuthUser,
    Request.AUTH_UPDATE_USER: AuthUser,
    Request.AUTH_DELETE_USER: AuthUser,
    Request.AUTH_GET_USER: AuthUser,
    Request.AUTH_LIST_USER: AuthListUsers,
    Request.AUTH_CREATE_ACL: AuthAcl,
    Request.AUTH_UPDATE_ACL: AuthAcl,
    Request.AUTH_DELETE_ACL: AuthDeleteAcl,
    Request.AUTH_GET_ACL: AuthAcl,
    Request.AUTH_LIST_ACL: AuthListAcls,
}
RESPONSES: dict[int, HeaderCodec] = {
    Request.GET_ALL_TOPIC_CONFIG: GetAllTopicConfigResponse,
    Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GetAllGroupConfigResponse,
    Request.GET_BROKER_CONFIG: GetBrokerConfigResponse,
}
HEADERLESS = (
    Request.UPDATE_AND_CREATE_TOPIC_LIST,
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    Request.UPDATE_BROKER_CONFIG,
    Request.GET_BROKER_CONFIG,
    Request.GET_BROKER_RUNTIME_INFO,
    Request.GET_ALL_PRODUCER_INFO,
    Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    Request.CLEAN_EXPIRED_CONSUMEQUEUE,
    Request.CLEAN_UNUSED_TOPIC,
    Request.DELETE_EXPIRED_COMMITLOG,
    Request.GET_BROKER_HA_STATUS,
)
