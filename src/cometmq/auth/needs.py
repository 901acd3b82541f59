"""What each request needs: the table that says who may do what.

    NEEDS[code](request, cluster)     the needs of this request, all of which must be allowed, in this order

A retry topic stands for its group: who may subscribe with a group may read and write its retries. `cluster` is the
broker's own; a request that names another one in its field `clusterName` needs that one.

A server refuses to start with a request code that has no row here. Where a row differs from RocketMQ 5.5.0, which asks
nothing for many codes, tests/auth/test_needs.py lists it with the reason.

Some requests name only an offset or an id: 33, 36 and 309 need rights on the topic of the message that is found, 37 and
323 on the topic of its half message. Their handlers ask for that (`message_read`, `message_sent_back`, `half_decided`
and their kin below) when they have found it.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from cometmq import names
from cometmq.auth.resources import Action, Kind, Need
from cometmq.errors import WireError
from cometmq.wire.bodies import (
    BatchAckRequest,
    CheckClientConfig,
    HeartbeatData,
    LockBatchRequest,
    MessageRequestMode,
    QueryAssignmentRequest,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfigList,
)
from cometmq.wire.bodies.base import Body
from cometmq.wire.codes import Request
from cometmq.wire.command import Command

Needs: TypeAlias = list[Need]
Say: TypeAlias = Callable[[Command, str], Needs]
Actions: TypeAlias = frozenset[Action]

NULL: Final = "null"

PUB: Final = frozenset((Action.PUB,))
SUB: Final = frozenset((Action.SUB,))
GET: Final = frozenset((Action.GET,))
LIST: Final = frozenset((Action.LIST,))
CREATE: Final = frozenset((Action.CREATE,))
UPDATE: Final = frozenset((Action.UPDATE,))
DELETE: Final = frozenset((Action.DELETE,))
SUB_GET: Final = SUB | GET
SUB_UPDATE: Final = SUB | UPDATE
ROUTE: Final = PUB | SUB | GET


class UnreadableNeeds(Exception):
    """The request does not say what it is about."""


class Rule:
    """What one request code needs. `fields` alone decide it; None: the body does, too."""

    __slots__ = ("fields", "_say")

    def __init__(self, say: Say, fields: tuple[str, ...] | None) -> None:
        self._say = say
        self.fields = fields

    def __call__(self, request: Command, cluster: str) -> Needs:
        return self._say(request, cluster)


# Needs of one resource


def topic_need(topic: str, actions: Actions) -> Need:
    if topic.startswith(names.RETRY_PREFIX):
        return Need(Kind.GROUP, topic.removeprefix(names.RETRY_PREFIX), (actions - PUB) or SUB)
    return Need(Kind.TOPIC, topic, actions)


def group_need(group: str, actions: Actions) -> Need:
    return Need(Kind.GROUP, group.removeprefix(names.RETRY_PREFIX), actions)


def message_read(topic: str) -> Needs:
    """33, of the topic that the message was found in."""
    return [topic_need(topic, GET)]


def message_sent_back(topic: str) -> Needs:
    """36, of the topic that the message was found in."""
    return [topic_need(topic, SUB)]


def message_relayed(topic: str) -> Needs:
    """309, of the topic that the message was found in, which a member of a group is given."""
    return [topic_need(topic, SUB)]


def half_resumed(topic: str) -> Needs:
    """323, of the topic that the half message is for."""
    return [topic_need(topic, UPDATE)]


def half_decided(topic: str) -> Needs:
    """37, of the topic that the half message is for."""
    return [topic_need(topic, PUB)]


# Rules: parts of a row


def topic(actions: Actions, field: str = "topic") -> Rule:
    def needs(request: Command, _: str) -> Needs:
        return [topic_need(request.ext.get(field, NULL), actions)]

    return Rule(needs, (field,))


def topic_if_named(actions: Actions, field: str = "topic") -> Rule:
    def needs(request: Command, _: str) -> Needs:
        name = request.ext.get(field)
        return [topic_need(name, actions)] if name else []

    return Rule(needs, (field,))


def group(actions: Actions, field: str = "consumerGroup") -> Rule:
    def needs(request: Command, _: str) -> Needs:
        return [group_need(request.ext.get(field, NULL), actions)]

    return Rule(needs, (field,))


def group_if_named(actions: Actions, field: str = "consumerGroup") -> Rule:
    def needs(request: Command, _: str) -> Needs:
        name = request.ext.get(field)
        return [group_need(name, actions)] if name else []

    return Rule(needs, (field,))


def read_by_group(actions: Actions) -> Rule:
    """A topic that a group reads, and the group. A retry topic is its group's own, or needs the rights of that too."""

    def needs(request: Command, _: str) -> Needs:
        topic_name = request.ext.get("topic", NULL)
        own = group_need(request.ext.get("consumerGroup", NULL), actions)
        of_topic = topic_need(topic_name, actions)
        return [own] if of_topic == own else [of_topic, own]

    return Rule(needs, ("topic", "consumerGroup"))


def cluster(actions: Actions, field: str = "clusterName") -> Rule:
    def needs(request: Command, own: str) -> Needs:
        return [Need(Kind.CLUSTER, request.ext.get(field) or own, actions)]

    return Rule(needs, (field,))


def own_cluster(actions: Actions) -> Rule:
    def needs(_: Command, own: str) -> Needs:
        return [Need(Kind.CLUSTER, own, actions)]

    return Rule(needs, ())


def every(kind: Kind, actions: Actions) -> Rule:
    """An entry for all topics, or all groups."""

    def needs(_: Command, __: str) -> Needs:
        return [Need(kind, None, actions)]

    return Rule(needs, ())


def both(*rules: Rule) -> Rule:
    def needs(request: Command, own: str) -> Needs:
        return [need for rule in rules for need in rule(request, own)]

    fields: tuple[str, ...] | None = ()
    for rule in rules:
        fields = None if fields is None or rule.fields is None else fields + rule.fields
    return Rule(needs, fields)


# Any user that signs.
open_to_users: Final = Rule(lambda _, __: [], ())


B = TypeVar("B", bound=Body)


def of_body(kind: type[B], say: Callable[[B], Iterable[Need]]) -> Rule:
    def needs(request: Command, _: str) -> Needs:
        try:
            body = kind.decode_request(request.body)
        except WireError as error:
            raise UnreadableNeeds(str(error)) from None
        return list(dict.fromkeys(say(body)))

    return Rule(needs, None)


# Rules of single requests


def _heartbeat(body: HeartbeatData) -> Iterable[Need]:
    for consumer in body.consumer_data_set:
        yield group_need(consumer.group_name or NULL, SUB)
        for subscription in consumer.subscription_data_set:
            name = subscription.topic or NULL
            if not name.startswith(names.RETRY_PREFIX):
                yield topic_need(name, SUB)


def _queue_locks(body: LockBatchRequest) -> Iterable[Need]:
    yield group_need(body.consumer_group or NULL, SUB)
    for queue in body.mq_set:
        name = queue.topic or NULL
        if not name.startswith(names.RETRY_PREFIX):
            yield topic_need(name, SUB)


def _check_client(body: CheckClientConfig) -> Iterable[Need]:
    subscription = body.subscription_data
    if subscription is not None:
        yield topic_need(subscription.topic or NULL, SUB)
    yield group_need(body.group or NULL, SUB)


def _assignment(body: QueryAssignmentRequest) -> Iterable[Need]:
    yield topic_need(body.topic or NULL, SUB)
    yield group_need(body.consumer_group or NULL, SUB)


def _request_mode(body: MessageRequestMode) -> Iterable[Need]:
    yield topic_need(body.topic or NULL, SUB)
    yield group_need(body.consumer_group or NULL, UPDATE)


def _batch_ack(body: BatchAckRequest) -> Iterable[Need]:
    for ack in body.acks:
        yield topic_need(ack.topic or NULL, SUB)
        yield group_need(ack.consumer_group or NULL, SUB)


def _split(field: str, separator: str, say: Callable[[str], Need]) -> Rule:
    def needs(request: Command, _: str) -> Needs:
        return [say(name.strip()) for name in request.ext.get(field, "").split(separator) if name.strip()]

    return Rule(needs, (field,))


def _topic_get(name: str) -> Need:
    return topic_need(name, GET)


def _group_get(name: str) -> Need:
    return group_need(name, GET)


_cluster_get: Final = own_cluster(GET)
_cluster_update: Final = own_cluster(UPDATE)
_group_then_topic: Final = both(group(SUB), topic(SUB))
_get_of_both: Final = both(topic(GET), group(GET))

NEEDS: Final[dict[int, Rule]] = {
    # Producers
    Request.SEND_MESSAGE: topic(PUB),
    Request.SEND_MESSAGE_V2: topic(PUB, "b"),
    Request.SEND_BATCH_MESSAGE: topic(PUB, "b"),
    Request.SEND_REPLY_MESSAGE: topic(PUB),
    Request.SEND_REPLY_MESSAGE_V2: topic(PUB, "b"),
    Request.RECALL_MESSAGE: topic(PUB),
    Request.END_TRANSACTION: topic_if_named(PUB),
    Request.RAISE_FENCE: open_to_users,
    # Consumers
    Request.HEART_BEAT: of_body(HeartbeatData, _heartbeat),
    Request.UNREGISTER_CLIENT: group_if_named(SUB),
    Request.CHECK_CLIENT_CONFIG: of_body(CheckClientConfig, _check_client),
    Request.GET_CONSUMER_LIST_BY_GROUP: group(SUB_GET),
    Request.QUERY_ASSIGNMENT: of_body(QueryAssignmentRequest, _assignment),
    Request.PULL_MESSAGE: read_by_group(SUB),
    Request.LITE_PULL_MESSAGE: read_by_group(SUB),
    Request.PEEK_MESSAGE: both(topic(SUB), group(SUB)),
    Request.POP_MESSAGE: _group_then_topic,
    Request.ACK_MESSAGE: _group_then_topic,
    Request.BATCH_ACK_MESSAGE: of_body(BatchAckRequest, _batch_ack),
    Request.CHANGE_MESSAGE_INVISIBLETIME: _group_then_topic,
    Request.NOTIFICATION: _group_then_topic,
    Request.POLLING_INFO: both(group(GET), topic(GET)),
    Request.POP_LITE_MESSAGE: _group_then_topic,
    Request.CONSUMER_SEND_MSG_BACK: group(SUB, "group"),
    Request.QUERY_CONSUMER_OFFSET: read_by_group(SUB_GET),
    Request.UPDATE_CONSUMER_OFFSET: read_by_group(SUB_UPDATE),
    Request.LOCK_BATCH_MQ: of_body(LockBatchRequest, _queue_locks),
    Request.UNLOCK_BATCH_MQ: of_body(LockBatchRequest, _queue_locks),
    # Looking at messages and queues
    Request.QUERY_MESSAGE: topic(SUB_GET),
    Request.VIEW_MESSAGE_BY_ID: topic_if_named(GET),
    Request.SEARCH_OFFSET_BY_TIMESTAMP: topic(GET),
    Request.GET_MAX_OFFSET: topic(GET),
    Request.GET_MIN_OFFSET: topic(GET),
    Request.GET_EARLIEST_MSG_STORETIME: topic(GET),
    Request.QUERY_CONSUME_QUEUE: _get_of_both,
    Request.GET_ROUTEINFO_BY_TOPIC: topic(ROUTE),
    # Topics
    Request.UPDATE_AND_CREATE_TOPIC: topic(CREATE),
    Request.UPDATE_AND_CREATE_TOPIC_LIST: of_body(
        TopicConfigList, lambda body: [topic_need(each.topic_name or NULL, CREATE) for each in body.topic_config_list]
    ),
    Request.UPDATE_AND_CREATE_STATIC_TOPIC: topic(CREATE),
    Request.DELETE_TOPIC_IN_BROKER: topic(DELETE),
    Request.GET_TOPIC_CONFIG: topic(GET),
    Request.GET_TOPIC_STATS_INFO: topic(GET),
    Request.QUERY_TOPIC_CONSUME_BY_WHO: topic(GET),
    Request.GET_ALL_TOPIC_CONFIG: every(Kind.TOPIC, LIST),
    Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: every(Kind.TOPIC, LIST),
    Request.GET_TIMER_METRICS: every(Kind.TOPIC, LIST),
    Request.RESUME_CHECK_HALF_MESSAGE: topic(UPDATE),
    Request.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: topic(GET),
    # Groups
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: of_body(
        SubscriptionGroupConfig, lambda body: [group_need(body.group_name or NULL, CREATE)]
    ),
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: of_body(
        SubscriptionGroupList,
        lambda body: [group_need(each.group_name or NULL, CREATE) for each in body.group_config_list],
    ),
    Request.DELETE_SUBSCRIPTIONGROUP: group(DELETE, "groupName"),
    Request.GET_SUBSCRIPTIONGROUP_CONFIG: group(GET, "group"),
    Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: every(Kind.GROUP, LIST),
    Request.GET_COLD_DATA_FLOW_CTR_INFO: every(Kind.GROUP, LIST),
    Request.GET_CONSUMER_CONNECTION_LIST: group(GET),
    Request.GET_CONSUMER_RUNNING_INFO: group(GET),
    Request.CONSUME_MESSAGE_DIRECTLY: _group_then_topic,
    Request.QUERY_TOPICS_BY_CONSUMER: group(GET, "group"),
    Request.QUERY_SUBSCRIPTION_BY_CONSUMER: both(group(GET, "group"), topic(GET)),
    Request.GET_CONSUME_STATS: both(group(GET), topic_if_named(GET), _split("topicList", ";", _topic_get)),
    Request.QUERY_CONSUME_TIME_SPAN: both(topic(GET), group(GET, "group")),
    Request.QUERY_CORRECTION_OFFSET: both(
        _split("filterGroups", ",", _group_get), group_if_named(GET, "compareGroup"), topic(GET)
    ),
    Request.INVOKE_BROKER_TO_RESET_OFFSET: both(group(UPDATE, "group"), topic(UPDATE)),
    Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: both(topic(GET), group(GET, "group")),
    Request.CLONE_GROUP_OFFSET: both(group(UPDATE, "destGroup"), topic(UPDATE)),
    Request.UPDATE_AND_GET_GROUP_FORBIDDEN: both(group(UPDATE, "group"), topic(UPDATE)),
    Request.SET_MESSAGE_REQUEST_MODE: of_body(MessageRequestMode, _request_mode),
    Request.GET_ALL_MESSAGE_REQUEST_MODE: both(every(Kind.TOPIC, LIST), every(Kind.GROUP, LIST)),
    # The broker
    Request.UPDATE_BROKER_CONFIG: _cluster_update,
    Request.GET_BROKER_CONFIG: _cluster_get,
    Request.GET_BROKER_RUNTIME_INFO: _cluster_get,
    Request.GET_ALL_CONSUMER_OFFSET: _cluster_get,
    Request.GET_ALL_DELAY_OFFSET: _cluster_get,
    Request.GET_TIMER_CHECK_POINT: _cluster_get,
    Request.GET_PRODUCER_CONNECTION_LIST: _cluster_get,
    Request.GET_ALL_PRODUCER_INFO: _cluster_get,
    Request.VIEW_BROKER_STATS_DATA: _cluster_get,
    Request.GET_BROKER_CONSUME_STATS: _cluster_get,
    Request.EXPORT_ROCKSDB_CONFIG_TO_JSON: _cluster_get,
    Request.GET_BROKER_HA_STATUS: _cluster_get,
    Request.GET_BROKER_EPOCH_CACHE: _cluster_get,
    Request.CLEAN_EXPIRED_CONSUMEQUEUE: _cluster_update,
    Request.CLEAN_UNUSED_TOPIC: _cluster_update,
    Request.DELETE_EXPIRED_COMMITLOG: _cluster_update,
    Request.SET_COMMITLOG_READ_MODE: _cluster_update,
    Request.SWITCH_TIMER_ENGINE: _cluster_update,
    Request.POP_ROLLBACK: _cluster_update,
    Request.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _cluster_update,
    Request.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _cluster_update,
    # Brokers among themselves
    Request.ADD_BROKER: cluster(UPDATE),
    Request.REMOVE_BROKER: cluster(UPDATE, "brokerClusterName"),
    Request.NOTIFY_MIN_BROKER_ID_CHANGE: _cluster_update,
    Request.EXCHANGE_BROKER_HA_INFO: _cluster_update,
    Request.RESET_MASTER_FLUSH_OFFSET: _cluster_update,
    Request.NOTIFY_BROKER_ROLE_CHANGED: _cluster_update,
    # Users and policies
    Request.AUTH_CREATE_USER: _cluster_update,
    Request.AUTH_UPDATE_USER: _cluster_update,
    Request.AUTH_DELETE_USER: _cluster_update,
    Request.AUTH_GET_USER: _cluster_get,
    Request.AUTH_LIST_USER: _cluster_get,
    Request.AUTH_CREATE_ACL: _cluster_update,
    Request.AUTH_UPDATE_ACL: _cluster_update,
    Request.AUTH_DELETE_ACL: _cluster_update,
    Request.AUTH_GET_ACL: _cluster_get,
    Request.AUTH_LIST_ACL: _cluster_get,
    # Name servers
    Request.PUT_KV_CONFIG: cluster(UPDATE),
    Request.DELETE_KV_CONFIG: cluster(UPDATE),
    Request.GET_KV_CONFIG: cluster(GET),
    Request.GET_KVLIST_BY_NAMESPACE: cluster(GET),
    Request.REGISTER_BROKER: cluster(UPDATE),
    Request.UNREGISTER_BROKER: cluster(UPDATE),
    Request.BROKER_HEARTBEAT: cluster(UPDATE),
    Request.WIPE_WRITE_PERM_OF_BROKER: cluster(UPDATE),
    Request.ADD_WRITE_PERM_OF_BROKER: cluster(UPDATE),
    Request.DELETE_TOPIC_IN_NAMESRV: cluster(UPDATE),
    Request.REGISTER_TOPIC_IN_NAMESRV: cluster(UPDATE),
    Request.UPDATE_NAMESRV_CONFIG: cluster(UPDATE),
    Request.GET_NAMESRV_CONFIG: cluster(GET),
    Request.QUERY_DATA_VERSION: cluster(GET),
    Request.GET_BROKER_MEMBER_GROUP: cluster(GET),
    Request.CONTROLLER_GET_METADATA_INFO: own_cluster(GET),
    Request.CONTROLLER_GET_SYNC_STATE_DATA: own_cluster(GET),
    Request.CONTROLLER_GET_REPLICA_INFO: own_cluster(GET),
    Request.CONTROLLER_ELECT_MASTER: cluster(UPDATE),
    Request.CLEAN_BROKER_DATA: cluster(UPDATE),
    Request.GET_CONTROLLER_CONFIG: own_cluster(GET),
    Request.UPDATE_CONTROLLER_CONFIG: own_cluster(UPDATE),
    Request.GET_BROKER_CLUSTER_INFO: open_to_users,
    Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: open_to_users,
    Request.GET_TOPICS_BY_CLUSTER: open_to_users,
    Request.GET_SYSTEM_TOPIC_LIST_FROM_NS: open_to_users,
    Request.GET_UNIT_TOPIC_LIST: open_to_users,
    Request.GET_HAS_UNIT_SUB_TOPIC_LIST: open_to_users,
    Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: open_to_users,
}
