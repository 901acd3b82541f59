"""One short function per request, and the table that says which request gets which.

Each takes the state of the name server, the connection and the request. `HANDLERS` is everything but route queries
(`query.py`), which have a family of their own so that nothing else can fill their queue.

Registrations are taken one at a time, and the event loop serves all sockets between two of them: fifty brokers that
come back at once do not delay a route query by more than one registration. A large body is decoded in a thread, where
the interpreter switches to the event loop every few milliseconds.
"""

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from cometmq.clock import Clock
from cometmq.errors import RequestError, WireError
from cometmq.nameserver.kv import ORDER_TOPIC_CONFIG, KeyValues
from cometmq.nameserver.query import RouteQueries
from cometmq.nameserver.registration import Notice, Registered, Registration, check_topic
from cometmq.nameserver.routes import UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG, Routes
from cometmq.nameserver.settings import LiveSettings
from cometmq.net.connection import Connection
from cometmq.wire import java_properties
from cometmq.wire.bodies import (
    BrokerMemberGroup,
    BrokerMembers,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicList,
    TopicRoute,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import (
    AddWritePermissionResponse,
    BrokerHeartbeat,
    ChangeWritePermission,
    DeleteTopicRoute,
    GetBrokerMemberGroup,
    GetKvConfigResponse,
    GetKvList,
    GetTopicsByCluster,
    KvConfigKey,
    PutKvConfig,
    QueryDataVersion,
    QueryDataVersionResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    RegisterTopic,
    UnregisterBroker,
    WipeWritePermissionResponse,
)

log = logging.getLogger(__name__)

# Five milliseconds of decoding; below, a thread costs more than it gives.
DECODE_ON_LOOP_BYTES_MAX: Final = 256 * 1024
# What a compressed one may become.
INFLATES_BY: Final = 100


@dataclass(slots=True)
class State:
    """What the handlers share. `tell` sends a notice to brokers."""

    settings: LiveSettings
    key_values: KeyValues
    queries: RouteQueries
    clock: Clock
    tell: Callable[[Notice | None], None]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def routes(self) -> Routes:
        return self.queries.routes

    def now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)


Answer = Command | None | Awaitable[Command | None]
StateHandler = Callable[[State, Connection, Command], Answer]


# Brokers come, live and go


async def register_broker(state: State, connection: Connection, request: Command) -> Command | None:
    header = RegisterBroker.decode(request.ext)
    async with state.turn:
        body = await _registration_body(header, request)
        if not connection.is_open:
            return None
        steps = state.routes.registering(
            Registration(
                cluster=header.cluster_name,
                name=header.broker_name,
                address=header.broker_addr,
                broker_id=header.broker_id,
                ha_address=header.ha_server_addr,
                link=connection,
                data_version=body.topics.data_version,
                topics=body.topics.topic_config_table,
                mappings=body.topics.topic_queue_mapping_info_map,
                filter_servers=body.filter_server_list,
                zone=header.zone_name,
                timeout_ms=header.heartbeat_timeout_ms,
                acting_master=header.enable_acting_master,
            ),
            state.now_ms(),
            drop_missing_topics=state.settings.config.delete_topic_with_broker_registration,
        )
        registered = await _in_turns(steps)
        if _is_gone(connection):  # since between two turns: nobody else will take the broker out
            state.tell(state.routes.leave((header.cluster_name, header.broker_addr)))
            return None
    state.tell(registered.notice)
    return reply(request, ext=_registered_ext(registered), body=_order_config(state))


def _is_gone(connection: Connection) -> bool:
    return not connection.is_open


async def _in_turns(steps: Generator[None, None, Registered]) -> Registered:
    """Others are served between two steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            registered: Registered = done.value
            return registered
        await asyncio.sleep(0)


async def _registration_body(header: RegisterBroker, request: Command) -> RegisterBrokerBody:
    bound = DECODE_ON_LOOP_BYTES_MAX // (INFLATES_BY if header.compressed else 1)
    if len(request.body) <= bound:
        return _decode_registration(header, request)
    return await asyncio.to_thread(_decode_registration, header, request)


def _decode_registration(header: RegisterBroker, request: Command) -> RegisterBrokerBody:
    if header.body_crc32 not in (0, zlib.crc32(request.body) & 0x7FFFFFFF):
        raise RequestError(Response.SYSTEM_ERROR, f"the body does not have the CRC {header.body_crc32}")
    try:
        body = RegisterBrokerBody.decode_large(request.body, version=request.version, compressed=header.compressed)
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, str(error)) from None
    for topic, config in body.topics.topic_config_table.items():
        check_topic(topic, config.read_queue_nums, config.write_queue_nums)
    return body


def _registered_ext(registered: Registered) -> dict[str, str]:
    return RegisterBrokerResponse(registered.ha_address, registered.master_address).encode()


def _order_config(state: State) -> bytes:
    table = state.key_values.namespace(ORDER_TOPIC_CONFIG)
    if table is None or not state.settings.config.return_order_topic_config_to_broker:
        return b""
    return KVTable(table).encode()


async def unregister_broker(state: State, _: Connection, request: Command) -> Command:
    header = UnregisterBroker.decode(request.ext)
    async with state.turn:  # not before a registration that came before it
        notice = state.routes.unregister(header.cluster_name, header.broker_name, header.broker_addr, header.broker_id)
    log.info("unregistered broker name=%s address=%s by=request", header.broker_name, header.broker_addr)
    state.tell(notice)
    await _worked_off(state)
    return reply(request)


async def _worked_off(state: State) -> None:
    """What the request has changed is so for every topic before it is answered."""
    while state.routes.has_work:
        state.routes.work()
        await asyncio.sleep(0)


def query_data_version(state: State, _: Connection, request: Command) -> Command:
    header = QueryDataVersion.decode(request.ext)
    known = state.routes.data_version(header.cluster_name, header.broker_addr, state.now_ms())
    changed = known is None or not request.body or known != _version(request.body)
    body = known.encode() if known is not None else b""
    return reply(request, ext=QueryDataVersionResponse(changed).encode(), body=body)


def _version(body: bytes) -> DataVersion:
    try:
        return DataVersion.decode_request(body)
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, str(error)) from None


def heartbeat(state: State, _: Connection, request: Command) -> Command:
    header = BrokerHeartbeat.decode(request.ext)
    state.routes.heartbeat(header.cluster_name, header.broker_addr, state.now_ms())
    return reply(request)


def member_group(state: State, _: Connection, request: Command) -> Command:
    header = GetBrokerMemberGroup.decode(request.ext)
    broker = state.routes.brokers.get(header.broker_name)
    addresses = dict(sorted(broker.addresses.items())) if broker is not None else {}
    members = BrokerMembers(addresses, header.broker_name, header.cluster_name)
    return reply(request, body=BrokerMemberGroup(members).encode())


# Key-value config


async def put_kv(state: State, _: Connection, request: Command) -> Command:
    header = PutKvConfig.decode(request.ext)
    await state.key_values.put(header.namespace, header.key, header.value)
    _order_config_changed(state, header.namespace, header.key)
    return reply(request)


async def delete_kv(state: State, _: Connection, request: Command) -> Command:
    header = KvConfigKey.decode(request.ext)
    await state.key_values.delete(header.namespace, header.key)
    _order_config_changed(state, header.namespace, header.key)
    return reply(request)


def _order_config_changed(state: State, namespace: str, key: str) -> None:
    if namespace == ORDER_TOPIC_CONFIG:
        state.queries.forget(key)


def get_kv(state: State, _: Connection, request: Command) -> Command:
    header = KvConfigKey.decode(request.ext)
    value = state.key_values.get(header.namespace, header.key)
    if value is None:
        raise RequestError(Response.QUERY_NOT_FOUND, f"namespace {header.namespace} has no key {header.key}")
    return reply(request, ext=GetKvConfigResponse(value).encode())


def list_kv(state: State, _: Connection, request: Command) -> Command:
    header = GetKvList.decode(request.ext)
    table = state.key_values.namespace(header.namespace)
    if table is None:
        raise RequestError(Response.QUERY_NOT_FOUND, f"nothing was ever put into namespace {header.namespace}")
    return reply(request, body=KVTable(table).encode())


# Lists


def cluster_info(state: State, _: Connection, request: Command) -> Command:
    return reply(request, body=state.routes.cluster_info().encode())


def all_topics(state: State, _: Connection, request: Command) -> Command:
    _need(state.settings.config.enable_all_topic_list, "enableAllTopicList")
    return reply(request, body=TopicList(state.routes.served_topics()).encode())


def topics_of_cluster(state: State, _: Connection, request: Command) -> Command:
    _need(state.settings.config.enable_topic_list, "enableTopicList")
    header = GetTopicsByCluster.decode(request.ext)
    return reply(request, body=TopicList(sorted(state.routes.topics_of_cluster(header.cluster))).encode())


def system_topics(state: State, _: Connection, request: Command) -> Command:
    brokers = state.routes.brokers
    address = brokers[min(brokers)].addresses if brokers else {}
    some_address = address[min(address)] if address else None
    return reply(request, body=TopicList(sorted(state.routes.system_topics()), some_address).encode())


def unit_topics(state: State, _: Connection, request: Command) -> Command:
    return _topics_with_flags(state, request, UNIT_FLAG, UNIT_FLAG)


def unit_subscription_topics(state: State, _: Connection, request: Command) -> Command:
    return _topics_with_flags(state, request, UNIT_SUBSCRIPTION_FLAG, UNIT_SUBSCRIPTION_FLAG)


def unit_subscription_only_topics(state: State, _: Connection, request: Command) -> Command:
    return _topics_with_flags(state, request, UNIT_FLAG | UNIT_SUBSCRIPTION_FLAG, UNIT_SUBSCRIPTION_FLAG)


def _topics_with_flags(state: State, request: Command, mask: int, flags: int) -> Command:
    _need(state.settings.config.enable_topic_list, "enableTopicList")
    return reply(request, body=TopicList(sorted(state.routes.topics_with_flags(mask, flags))).encode())


def _need(enabled: bool, key: str) -> None:
    if not enabled:
        raise RequestError(Response.SYSTEM_ERROR, f"this list is switched off: {key}=false")


# Administration


def delete_topic(state: State, _: Connection, request: Command) -> Command:
    header = DeleteTopicRoute.decode(request.ext)
    state.routes.delete_topic(header.topic, header.cluster_name or None)
    return reply(request)


def register_topic(state: State, _: Connection, request: Command) -> Command:
    header = RegisterTopic.decode(request.ext)
    if request.body:
        state.routes.register_topic(header.topic, _decode_route(request.body).queue_datas)
    return reply(request)


def _decode_route(body: bytes) -> TopicRoute:
    try:
        return TopicRoute.decode_request(body)
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, str(error)) from None


async def wipe_write_permission(state: State, _: Connection, request: Command) -> Command:
    header = ChangeWritePermission.decode(request.ext)
    count = state.routes.wipe_write_permission(header.broker_name)
    await _worked_off(state)
    log.info("wiped write permission broker=%s topics=%d", header.broker_name, count)
    return reply(request, ext=WipeWritePermissionResponse(count).encode())


async def add_write_permission(state: State, _: Connection, request: Command) -> Command:
    header = ChangeWritePermission.decode(request.ext)
    count = state.routes.add_write_permission(header.broker_name)
    await _worked_off(state)
    log.info("added write permission broker=%s topics=%d", header.broker_name, count)
    return reply(request, ext=AddWritePermissionResponse(count).encode())


async def change_settings(state: State, _: Connection, request: Command) -> Command:
    await state.settings.change(request.body)
    state.queries.forget_all()
    return reply(request)


def read_settings(state: State, _: Connection, request: Command) -> Command:
    return reply(request, body=java_properties.write(state.settings.texts()).encode())


HANDLERS: Final[dict[int, StateHandler]] = {
    Request.PUT_KV_CONFIG: put_kv,
    Request.GET_KV_CONFIG: get_kv,
    Request.DELETE_KV_CONFIG: delete_kv,
    Request.REGISTER_BROKER: register_broker,
    Request.UNREGISTER_BROKER: unregister_broker,
    Request.GET_BROKER_CLUSTER_INFO: cluster_info,
    Request.WIPE_WRITE_PERM_OF_BROKER: wipe_write_permission,
    Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: all_topics,
    Request.DELETE_TOPIC_IN_NAMESRV: delete_topic,
    Request.REGISTER_TOPIC_IN_NAMESRV: register_topic,
    Request.GET_KVLIST_BY_NAMESPACE: list_kv,
    Request.GET_TOPICS_BY_CLUSTER: topics_of_cluster,
    Request.GET_SYSTEM_TOPIC_LIST_FROM_NS: system_topics,
    Request.GET_UNIT_TOPIC_LIST: unit_topics,
    Request.GET_HAS_UNIT_SUB_TOPIC_LIST: unit_subscription_topics,
    Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: unit_subscription_only_topics,
    Request.UPDATE_NAMESRV_CONFIG: change_settings,
    Request.GET_NAMESRV_CONFIG: read_settings,
    Request.QUERY_DATA_VERSION: query_data_version,
    Request.ADD_WRITE_PERM_OF_BROKER: add_write_permission,
    Request.GET_BROKER_MEMBER_GROUP: member_group,
    Request.BROKER_HEARTBEAT: heartbeat,
}
