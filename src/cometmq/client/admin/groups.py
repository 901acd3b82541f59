"""Consumer and producer groups: create, alter, delete, list, describe, who is connected.

A group is kept by every broker on its own, and a broker that makes groups by itself does so when a member comes. A
describe therefore reads the whole table of a broker instead of asking for the group, which would make it.
"""

from collections.abc import Mapping
from typing import Any

from cometmq import names
from cometmq.client.admin import results
from cometmq.client.admin.calls import Calls, each
from cometmq.client.admin.results import (
    BrokerMember,
    ConsumerState,
    DirectResult,
    Group,
    GroupConnections,
    Subscription,
)
from cometmq.errors import BrokerError, ConfigError, NotFound
from cometmq.wire.bodies import (
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerTable,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicList,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.headers import (
    ConsumeMessageDirectly,
    DeleteGroup,
    GetConsumerConnections,
    GetConsumerRunningInfo,
    GetProducerConnections,
    QueryTopicsByConsumer,
)

SYSTEM_GROUPS = frozenset(
    {
        "DEFAULT_PRODUCER",
        "DEFAULT_CONSUMER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)


class GroupAdmin(Calls):
    async def create_group(
        self,
        group: str,
        *,
        retries_max: int = 16,
        ordered: bool = False,
        broadcast_allowed: bool = True,
        enabled: bool = True,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> Group:
        """Make a consumer group, or bring it into this form where it is there already."""
        fault = names.group_fault(group)
        if fault is not None:
            raise ConfigError(fault)
        config = SubscriptionGroupConfig(
            group_name=self.wrap(group),
            attributes={f"+{name}": value for name, value in (attributes or {}).items()},
            consume_broadcast_enable=broadcast_allowed,
            consume_enable=enabled,
            consume_message_orderly=ordered,
            retry_max_times=retries_max,
        )
        masters = await self.masters(cluster, broker)
        await each(masters, lambda master: self._put_group(master, config))
        return await self.describe_group(group)

    async def alter_group(
        self,
        group: str,
        *,
        retries_max: int | None = None,
        ordered: bool | None = None,
        broadcast_allowed: bool | None = None,
        enabled: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> Group:
        """Change what is given, on every broker that knows the group. NotFound."""
        found = await self._find_group(self.wrap(group), cluster, broker)
        changes: dict[str, Any] = {
            "retry_max_times": retries_max,
            "consume_message_orderly": ordered,
            "consume_broadcast_enable": broadcast_allowed,
            "consume_enable": enabled,
        }
        for _, config in found:
            for name, value in changes.items():
                if value is not None:
                    setattr(config, name, value)
            config.attributes = {
                f"+{name}" if value is not None else f"-{name}": value or ""
                for name, value in (attributes or {}).items()
            }
        await each(found, lambda pair: self._put_group(*pair))
        return await self.describe_group(group)

    async def delete_group(
        self, group: str, *, offsets: bool = False, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Forget a group, with `offsets` also how far it was. Gives the names of the brokers that had it. NotFound."""
        name = self.wrap(group)
        found = await self._find_group(name, cluster, broker)
        header = DeleteGroup(name, offsets)
        await each(found, lambda pair: self.ask(pair[0].address, Request.DELETE_SUBSCRIPTIONGROUP, header))
        return [master.name for master, _ in found]

    async def groups(self, *, system: bool = False, cluster: str | None = None) -> list[str]:
        """Names of consumer groups; with `system` also those that servers made for themselves."""
        tables = await each(await self.masters(cluster), self._group_table)
        found = {name for table in tables for name in table}
        mine = self.wrap("") if self.instance.namespace else ""
        return sorted(
            self.strip(name) for name in found if mine in name and (system or not _is_system_group(name))
        )

    async def describe_group(self, group: str) -> Group:
        """NotFound if no broker knows it."""
        name = self.wrap(group)
        found = await self._find_group(name, None, None)
        _, config = found[0]
        return Group(
            self.strip(name),
            tuple(master.name for master, _ in found),
            config.consume_enable,
            config.consume_broadcast_enable,
            config.consume_message_orderly,
            config.retry_max_times,
            config.retry_queue_nums,
            dict(config.attributes),
        )

    async def group_topics(self, group: str) -> list[str]:
        """Topics for which a group has offsets, its retry topic among them."""
        header = QueryTopicsByConsumer(self.wrap(group))
        responses = await each(
            await self.masters(), lambda master: self.ask(master.address, Request.QUERY_TOPICS_BY_CONSUMER, header)
        )
        return sorted({self.strip(topic) for it in responses for topic in TopicList.decode(it.body).topic_list})

    # Who is connected

    async def group_connections(self, group: str) -> GroupConnections:
        """Members that are online now. NotFound if there is none."""
        header = GetConsumerConnections(self.wrap(group))
        found = await self._connections(Request.GET_CONSUMER_CONNECTION_LIST, header)
        bodies = [ConsumerConnection.decode(body) for body in found]
        if not bodies:
            raise NotFound(f"no member of consumer group {group} is online: start one, or check the name")
        first = bodies[0]
        subscriptions = {topic: data for body in bodies for topic, data in body.subscription_table.items()}
        return GroupConnections(
            group,
            first.consume_type or "",
            first.message_model or "",
            first.consume_from_where or "",
            _unique(connection for body in bodies for connection in body.connection_set),
            tuple(_subscription(self.strip(topic), data) for topic, data in sorted(subscriptions.items())),
        )

    async def producer_connections(self, group: str) -> list[results.Connection]:
        """Producers of a group that are online now. NotFound if there is none."""
        header = GetProducerConnections(self.wrap(group))
        found = await self._connections(Request.GET_PRODUCER_CONNECTION_LIST, header)
        connections = _unique(it for body in found for it in ProducerConnection.decode(body).connection_set)
        if not connections:
            raise NotFound(f"no producer of group {group} is online: start one, or check the name")
        return list(connections)

    async def producer_groups(self) -> dict[str, list[results.Connection]]:
        """Every producer group that is online, with its members."""
        responses = await each(
            await self.masters(), lambda master: self.ask(master.address, Request.GET_ALL_PRODUCER_INFO)
        )
        found: dict[str, dict[str, results.Connection]] = {}
        for response in responses:
            for group, producers in ProducerTable.decode(response.body).data.items():
                members = found.setdefault(self.strip(group), {})
                for it in producers:
                    client_id = it.client_id or ""
                    address = (it.remote_ip or "").lstrip("/")
                    members[client_id] = results.Connection(client_id, address, it.language or "", it.version)
        return {group: list(members.values()) for group, members in sorted(found.items())}

    async def consumer_state(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerState:
        """What a member says about itself. NotFound if it is not online."""
        header = GetConsumerRunningInfo(self.wrap(group), client_id, stacks)
        body = await self._from_member(group, client_id, Request.GET_CONSUMER_RUNNING_INFO, header)
        info = ConsumerRunningInfo.decode(body)
        return ConsumerState(
            client_id,
            dict(info.properties),
            tuple(_subscription(self.strip(data.topic or ""), data) for data in info.subscription_set),
            {queue: _numbers(state) for queue, state in sorted(info.mq_table.items())},
            {self.strip(topic): _numbers(status) for topic, status in sorted(info.status_table.items())},
            info.jstack,
        )

    async def consume_directly(self, group: str, client_id: str, offset_id: str, topic: str = "") -> DirectResult:
        """Let a member handle one stored message now; its offsets do not change. NotFound if it is not online."""
        header = ConsumeMessageDirectly(
            self.wrap(group), client_id, offset_id, topic=self.wrap(topic) if topic else None
        )
        body = await self._from_member(group, client_id, Request.CONSUME_MESSAGE_DIRECTLY, header)
        result = ConsumeMessageDirectlyResult.decode(body)
        return DirectResult(client_id, result.consume_result or "", result.spent_time_ms, result.remark or "")

    async def _from_member(self, group: str, client_id: str, code: int, header: Any) -> bytes:
        """Members are connected to the brokers of their topics only: the first that can reach this one answers."""
        refusal: BrokerError | None = None
        for master in await self.masters():
            try:
                return (await self.ask(master.address, code, header)).body
            except BrokerError as error:
                refusal = error
        cause = f"; {refusal.broker} says: {refusal.remark}" if refusal is not None else ""
        raise NotFound(f"member {client_id} of group {group} did not answer{cause}") from refusal

    async def _connections(self, code: int, header: Any) -> list[bytes]:
        """Bodies of the brokers that know a member; the others refuse."""

        async def ask(master: BrokerMember) -> bytes | None:
            try:
                return (await self.ask(master.address, code, header)).body
            except BrokerError as error:
                if error.code in (Response.CONSUMER_NOT_ONLINE, Response.SYSTEM_ERROR):
                    return None
                raise

        return [body for body in await each(await self.masters(), ask) if body is not None]

    async def _group_table(self, master: BrokerMember) -> dict[str, SubscriptionGroupConfig]:
        response = await self.ask(master.address, Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupTable.decode(response.body).subscription_group_table

    async def _find_group(
        self, name: str, cluster: str | None, broker: str | None
    ) -> list[tuple[BrokerMember, SubscriptionGroupConfig]]:
        masters = await self.masters(cluster, broker)
        tables = await each(masters, self._group_table)
        found = [(master, table[name]) for master, table in zip(masters, tables, strict=True) if name in table]
        if not found:
            raise NotFound(
                f"no broker knows consumer group {self.strip(name)}: "
                f"create it (cometmq group create {self.strip(name)}) or check the name"
            )
        return found

    async def _put_group(self, master: BrokerMember, config: SubscriptionGroupConfig) -> None:
        await self.ask(master.address, Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())


def _is_system_group(name: str) -> bool:
    return name in SYSTEM_GROUPS or name.startswith("CID_RMQ_SYS_")


def _unique(connections: Any) -> tuple[results.Connection, ...]:
    by_id: dict[str, results.Connection] = {}
    for it in connections:
        assert isinstance(it, Connection)
        client_id = it.client_id or ""
        by_id[client_id] = results.Connection(client_id, it.client_addr or "", it.language or "", it.version)
    return tuple(by_id[client_id] for client_id in sorted(by_id))


def _subscription(topic: str, data: SubscriptionData) -> Subscription:
    return Subscription(topic, data.sub_string or "*", data.expression_type or "TAG")


def _numbers(body: Any) -> dict[str, Any]:
    """The members of a wire body by our names."""
    return {name: getattr(body, name) for name in body.__struct_fields__}
