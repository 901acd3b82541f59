"""Clients come, stay and go: heartbeats, who is in a group, and the notices when that changes.

The room calls `connection_closed` besides; by the clock (rounds.py) come `expire_clients`, every 10 s, and
`tell_postponed`, every 15 s.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator
from typing import Final

from cometmq import names
from cometmq.broker import filters, sql
from cometmq.broker.bodies import body_of
from cometmq.broker.consume.context import MembersContext
from cometmq.broker.entry import Entry
from cometmq.broker.sql import SqlError
from cometmq.broker.tables.sessions import CONSUME_ACTIVELY, Link, Member, Notice
from cometmq.broker.tables.system_topics import PERM_READ_WRITE
from cometmq.broker.tables.topics import UNIT_SUBSCRIPTION_FLAG
from cometmq.clock import uptime_ms
from cometmq.errors import CallError, RequestError
from cometmq.wire.bodies import (
    CheckClientConfig,
    Connection,
    ConsumerConnection,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from cometmq.wire.codes import LANGUAGE_NAMES, Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import (
    GetConsumerConnections,
    GetConsumerList,
    GetProducerConnections,
    HeartbeatResponse,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)

logger = logging.getLogger(__name__)

CLIENT_ID_CHARS_MAX: Final = 1_024
PRODUCER_GROUP_CHARS_MAX: Final = 255
# What one connection may be a member of, and what its subscriptions may take.
GROUPS_A_CONNECTION_MAX: Final = 1_000
KEPT_BYTES_MAX: Final = 8 << 20
EXPRESSION_CHARS_A_GROUP_MAX: Final = 8_192
# Subscriptions (a group counts as ten) that a heartbeat registers before others have a turn: 10 ms.
WORK_A_STEP: Final = 1_000


def heartbeat(context: MembersContext, connection: Link, request: Command) -> Command | Awaitable[Command]:
    """A first-form heartbeat (fingerprint 0) is always answered with "changed", so that its form never shortens."""
    data = body_of(HeartbeatData, request)
    if not data.client_id:
        raise RequestError(Response.INVALID_PARAMETER, "the heartbeat has no clientID")
    _check_heartbeat(context, connection, data)
    steps = _register(context, connection, request, data)
    if next(steps, steps) is steps:
        return _heartbeat_answer(request, data)
    return _go_on(connection, request, data, steps)


def _heartbeat_answer(request: Command, data: HeartbeatData) -> Command:
    changed = data.heartbeat_fingerprint == 0
    return reply(request, ext=HeartbeatResponse(supports_heartbeat_v2=True, subscription_changed=changed).encode())


async def _go_on(connection: Link, request: Command, data: HeartbeatData, steps: Iterator[None]) -> Command:
    """A long heartbeat: others are served between its parts. One whose connection has closed is dropped."""
    while True:
        await asyncio.sleep(0)
        if not connection.is_open or next(steps, steps) is steps:
            break
    return _heartbeat_answer(request, data)


def _check_heartbeat(context: MembersContext, connection: Link, data: HeartbeatData) -> None:
    """The whole is refused before any of it is taken."""
    if len(data.client_id or "") > CLIENT_ID_CHARS_MAX:
        raise _too_much(f"the clientID has {len(data.client_id or '')} characters", CLIENT_ID_CHARS_MAX)
    for consumer in data.consumer_data_set:
        chars = 0
        for subscription in consumer.subscription_data_set:
            fault = filters.size_fault(subscription)
            if fault is not None:
                raise RequestError(Response.INVALID_PARAMETER, fault)
            if not filters.is_tag_type(subscription.expression_type):
                chars += len(subscription.sub_string or "")
        if chars > EXPRESSION_CHARS_A_GROUP_MAX:
            raise _too_much(f"the expressions of a group have {chars} characters", EXPRESSION_CHARS_A_GROUP_MAX)
    kept_bytes = sum(filters.kept_bytes(one) for it in data.consumer_data_set for one in it.subscription_data_set)
    groups = {consumer.group_name or "" for consumer in data.consumer_data_set}
    kept_bytes += context.consumers.kept_bytes(connection, but=groups)
    if kept_bytes > KEPT_BYTES_MAX:
        raise _too_much(f"the subscriptions of this connection take {kept_bytes} bytes", KEPT_BYTES_MAX)
    count = context.consumers.count_groups(connection, and_also=groups)
    if count > GROUPS_A_CONNECTION_MAX:
        raise _too_much(f"this connection is in {count} consumer groups", GROUPS_A_CONNECTION_MAX)
    producers = {producer.group_name or "" for producer in data.producer_data_set}
    count = context.producers.count_groups(connection, and_also=producers)
    if count > GROUPS_A_CONNECTION_MAX:
        raise _too_much(f"this connection is in {count} producer groups", GROUPS_A_CONNECTION_MAX)
    for name in producers:
        if len(name) > PRODUCER_GROUP_CHARS_MAX:
            raise _too_much(f"the name of a producer group has {len(name)} characters", PRODUCER_GROUP_CHARS_MAX)


def _too_much(what: str, most: int) -> RequestError:
    return RequestError(Response.INVALID_PARAMETER, f"{what}, at most {most} are allowed: use more clients, or fewer")


def _register(context: MembersContext, connection: Link, request: Command, data: HeartbeatData) -> Iterator[None]:
    """Takes the heartbeat; between two steps lies as much as others can wait for. Clears the fingerprint of `data`
    where the client must send its subscriptions next time."""
    now_ms = uptime_ms(context.clock)
    client_id = data.client_id or ""
    work = 0
    changed = False
    for consumer in data.consumer_data_set:
        member = Member(connection, client_id, request.language, request.version, now_ms)
        if _register_consumer(context, consumer, member, data):
            changed = True
        # An expression is compiled, at 5 us a character.
        work += 10 + sum(1 if filters.is_tag_type(it.expression_type) else 1 + len(it.sub_string or "") // 4
                         for it in consumer.subscription_data_set)  # fmt: skip
        if work >= WORK_A_STEP:
            work = 0
            yield
    for producer in data.producer_data_set:
        if producer.group_name:
            member = Member(connection, client_id, request.language, request.version, now_ms)
            _register_producer(context, producer.group_name, member)
        work += 5
        if work >= WORK_A_STEP:
            work = 0
            yield
    if changed:
        data.heartbeat_fingerprint = 0


def _register_consumer(context: MembersContext, consumer: ConsumerData, member: Member, data: HeartbeatData) -> bool:
    """True if the client must send its subscriptions next time. A group that may not exist is passed over."""
    if context.config().reject_pull_consumers and consumer.consume_type == CONSUME_ACTIVELY:
        return False
    name = consumer.group_name or ""
    config = context.groups.find(name)
    if config is None:
        logger.debug("skip heartbeat group=%s peer=%s reason=group unknown", name[:128], member.link.peer_text)
        return False
    _make_retry_topic(context, consumer, config.retry_queue_nums, short=data.without_sub)
    context.queue_locks.join(name, member.client_id)
    notify = config.notify_consumer_ids_changed_enable
    tell(context, context.consumers.register(consumer, member, notify=notify, with_subscriptions=not data.without_sub))
    if not data.without_sub:
        context.property_filters.register(name, consumer.subscription_data_set)
    return context.consumers.table[name].take_fingerprint(data.heartbeat_fingerprint, short=data.without_sub)


def _make_retry_topic(context: MembersContext, consumer: ConsumerData, queues: int, short: bool) -> None:
    ordered = any(context.topics.is_ordered(data.topic or "") for data in consumer.subscription_data_set)
    context.topics.create_in_send_back(
        names.retry_topic(consumer.group_name or ""),
        queues,
        PERM_READ_WRITE,
        order=None if short else ordered,
        sys_flag=UNIT_SUBSCRIPTION_FLAG if consumer.unit_mode else 0,
    )


def _register_producer(context: MembersContext, group: str, member: Member) -> None:
    config = context.config()
    wanted = config.register_producers or not config.reject_transactions
    if wanted or member.link in context.producers.table.get(group, ()):
        context.producers.register(group, member)


def unregister(context: MembersContext, connection: Link, request: Command) -> Command:
    header = UnregisterClient.decode(request.ext)
    if header.producer_group is not None:
        context.producers.unregister(header.producer_group, connection)
    if header.consumer_group is not None:
        _leave(context, header.consumer_group, connection)
    return reply(request)


def _leave(context: MembersContext, group: str, connection: Link) -> None:
    """A consumer stops in good order. Its queue locks are free before the others hear of it and ask for them."""
    found = context.consumers.get(group)
    member = found.members.get(connection) if found is not None else None
    notice = context.consumers.unregister(group, connection)
    if member is not None and context.consumers.find_member(group, member.client_id) is None:
        context.queue_locks.leave(group, member.client_id, uptime_ms(context.clock))
    tell(context, notice)


async def check_client_config(context: MembersContext, connection: Link, request: Command) -> Command:
    """A consumer asks at its start whether its filters can be served. So this is where the grammar is read first."""
    subscription = body_of(CheckClientConfig, request).subscription_data
    if subscription is None or filters.is_tag_type(subscription.expression_type):
        return reply(request)
    fault = filters.fault_of(subscription.expression_type, context.config().property_filter_enabled)
    if fault is not None:
        raise RequestError(*fault)
    await asyncio.to_thread(sql.load)
    try:
        sql.compile_filter(subscription.sub_string or "")
    except SqlError as error:
        raise RequestError(Response.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    return reply(request)


def list_consumers(context: MembersContext, connection: Link, request: Command) -> Command:
    """An empty group is an error: clients then keep what they have instead of giving up all queues."""
    name = GetConsumerList.decode(request.ext).consumer_group
    group = context.consumers.get(name)
    if group is None:
        raise RequestError(Response.SYSTEM_ERROR, f"no consumer for this group, {name}")
    return reply(request, body=ConsumerList(consumer_id_list=group.client_ids()).encode())


def consumer_connections(context: MembersContext, connection: Link, request: Command) -> Command:
    name = GetConsumerConnections.decode(request.ext).consumer_group
    group = context.consumers.get(name)
    if group is None:
        raise RequestError(Response.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
    body = ConsumerConnection(
        connection_set=_connections(group.members.values()),
        consume_from_where=group.consume_from_where,
        consume_type=group.consume_type,
        message_model=group.message_model,
        subscription_table={topic: subscription.data for topic, subscription in group.subscriptions.items()},
    )
    return reply(request, body=body.encode())


def producer_connections(context: MembersContext, connection: Link, request: Command) -> Command:
    name = GetProducerConnections.decode(request.ext).producer_group
    members = context.producers.table.get(name)
    if members is None:
        raise RequestError(Response.SYSTEM_ERROR, f"the producer group[{name}] not exist")
    return reply(request, body=ProducerConnection(connection_set=_connections(members.values())).encode())


def _connections(members: Iterable[Member]) -> list[Connection]:
    return [
        Connection(member.link.peer_text, member.client_id, LANGUAGE_NAMES.get(member.language), member.version)
        for member in members
    ]


def all_producers(context: MembersContext, connection: Link, request: Command) -> Command:
    to_wall_ms = context.clock.now_ms() - uptime_ms(context.clock)
    table = {
        group: [
            ProducerInfo(
                client_id=member.client_id,
                language=LANGUAGE_NAMES.get(member.language),
                last_update_timestamp=member.seen_ms + to_wall_ms,
                remote_ip=f"/{member.link.peer_text}",
                version=member.version,
            )
            for member in members.values()
        ]
        for group, members in context.producers.table.items()
    }
    return reply(request, body=ProducerTable(data=table).encode())


def connection_closed(context: MembersContext, connection: Link) -> None:
    """Also for a connection that was idle too long or failed: it is about to close."""
    context.producers.on_close(connection)
    for notice in context.consumers.on_close(connection):
        tell(context, notice)


def expire_clients(context: MembersContext) -> None:
    now_ms = uptime_ms(context.clock)
    for link in {*context.consumers.expire(now_ms), *context.producers.expire(now_ms)}:
        link.close("no heartbeat")
    context.queue_locks.expire(now_ms)


def tell(context: MembersContext, notice: Notice | None) -> None:
    """Let the members of a group know that it has changed, at once or together with others."""
    if notice is None or not context.config().notify_consumer_changes:
        return
    if context.config().notify_consumer_changes_at_once:
        _send(notice)
    else:
        context.consumers.postpone(notice)


def tell_postponed(context: MembersContext) -> None:
    for notice in context.consumers.take_postponed():
        _send(notice)


def _send(notice: Notice) -> None:
    """To every member, the newcomer included. Who misses it finds out at its own next look."""
    ext = NotifyConsumerIdsChanged(consumer_group=notice.group).encode()
    for link in notice.links:
        try:
            link.send_oneway(new_request(Request.NOTIFY_CONSUMER_IDS_CHANGED, ext, oneway=True))
        except CallError as error:
            logger.info("fail notice group=%s peer=%s error=%s", notice.group, link.peer_text, error)


HANDLERS: Final = {
    Request.HEART_BEAT: Entry(heartbeat, "heartbeat"),
    Request.UNREGISTER_CLIENT: Entry(unregister, "client"),
    Request.CHECK_CLIENT_CONFIG: Entry(check_client_config, "client"),
    Request.GET_CONSUMER_LIST_BY_GROUP: Entry(list_consumers, "consumer"),
    Request.GET_CONSUMER_CONNECTION_LIST: Entry(consumer_connections, "admin"),
    Request.GET_PRODUCER_CONNECTION_LIST: Entry(producer_connections, "admin"),
    Request.GET_ALL_PRODUCER_INFO: Entry(all_producers, "admin"),
}
