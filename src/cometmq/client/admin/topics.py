"""Topics: create, alter, delete, describe, list.

A topic is made broker by broker. Without `cluster` or `broker` every master gets it. That it is in the name server's
route by the time these return holds for CometMQ's brokers; Java's tell the name server at once, too, but do not wait.
"""

from collections.abc import Mapping, Sequence

from cometmq import names
from cometmq.client.admin.calls import Calls, each
from cometmq.client.admin.results import BrokerMember, QueueStats, Topic, TopicOnBroker
from cometmq.client.cluster.routes import PERM_READ, PERM_WRITE
from cometmq.errors import BrokerError, ConfigError, NoRoute
from cometmq.wire.bodies import (
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicRoute,
    TopicStats,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.headers import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicRoute,
    GetTopicConfig,
    GetTopicsByCluster,
    GetTopicStats,
    KvConfigKey,
    PutKvConfig,
    QueryTopicConsumers,
)

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
KIND = "message.type"
KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")


class TopicAdmin(Calls):
    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        permissions: str | None = None,
        kind: str | None = None,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> Topic:
        """Make a topic where it is missing, with permissions "rw" unless given.

        Where it is there already it stays as it is, except for what is given here, and it never gets fewer queues than
        it has: `narrow_topic` does that.

        `ordered` also fixes the list of its queues in name servers; those with orderMessageEnable=true then tell it to
        producers, whose keys stay in their queues while a broker is away. `kind` is NORMAL, FIFO, DELAY, TRANSACTION or
        MIXED, for brokers that check it.
        """
        _check(topic, kind)
        _check_queues("queues", queues)
        _check_queues("read_queues", read_queues)
        bits = None if permissions is None else _bits(permissions)
        changes = {f"+{name}": value for name, value in (attributes or {}).items()}
        if kind is not None:
            changes[f"+{KIND}"] = kind
        name = self.wrap(topic)
        masters = await self.masters(cluster, broker)

        async def put(master: BrokerMember) -> int:
            known = await self._find_topic(master, name)
            config = known or TopicConfig(topic_name=name, perm=_bits("rw"), read_queue_nums=0, write_queue_nums=0)
            config.attributes = changes
            config.order = config.order or ordered
            if bits is not None:
                config.perm = bits
            config.write_queue_nums = max(config.write_queue_nums, queues)
            config.read_queue_nums = max(config.read_queue_nums, queues if read_queues is None else read_queues)
            await self._put_topic(master, config)
            return config.write_queue_nums

        counts = await each(masters, put)
        if ordered:
            await self._fix_order(name, counts, masters)
        return await self._read_topic(name, masters)

    async def alter_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        permissions: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> Topic:
        """Change what is given, on every broker that has the topic. An attribute of None is removed.

        ConfigError for fewer queues than there are, which would hide messages: `narrow_topic` does that.
        """
        _check_queues("queues", queues)
        _check_queues("read_queues", read_queues)
        name = self.wrap(topic)
        masters = await self._chosen(name, cluster, broker)
        configs = await each(masters, lambda master: self._get_topic(master, name))
        readable = queues if read_queues is None else read_queues
        for master, config in zip(masters, configs, strict=True):
            if readable is not None and readable < config.read_queue_nums:
                raise ConfigError(
                    f"topic {topic} has {config.read_queue_nums} queues at broker {master.name}, with {readable} the "
                    f"messages of the others would be hidden: cometmq topic narrow {topic} --queues {readable} "
                    "lets groups read them first"
                )
        for config in configs:
            config.attributes = {_change(key, value): value or "" for key, value in (attributes or {}).items()}
            if queues is not None:
                config.write_queue_nums = queues
                config.read_queue_nums = queues if read_queues is None else read_queues
            elif read_queues is not None:
                config.read_queue_nums = read_queues
            if permissions is not None:
                config.perm = _bits(permissions)
        await each(zip(masters, configs, strict=True), lambda pair: self._put_topic(*pair))
        return await self._read_topic(name, masters)

    async def delete_topic(self, topic: str, *, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """From brokers, then from name servers; its messages go with it. Gives the names of the brokers. NoRoute."""
        name = self.wrap(topic)
        masters = await self._chosen(name, cluster, broker)
        header = DeleteTopic(name)
        await each(masters, lambda master: self.ask(master.address, Request.DELETE_TOPIC_IN_BROKER, header))
        if broker is None:
            await self.ask_name_servers(Request.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRoute(name, cluster))
            if cluster is None:
                await self._forget_order(name)
        self.instance.forget_route(name)
        return [master.name for master in masters]

    async def describe_topic(self, topic: str) -> Topic:
        """How every broker has it. NoRoute if nobody has."""
        name = self.wrap(topic)
        return await self._read_topic(name, await self.masters_of(name))

    async def topics(self, *, cluster: str | None = None, system: bool = False) -> list[str]:
        """Names of topics; with `system` also those that servers made: their own, retries, dead letters."""
        if cluster is not None:
            response = await self.ask_name_server(Request.GET_TOPICS_BY_CLUSTER, GetTopicsByCluster(cluster))
        else:
            response = await self.ask_name_server(Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        found = TopicList.decode(response.body).topic_list
        if not system:
            own = await self.ask_name_server(Request.GET_SYSTEM_TOPIC_LIST_FROM_NS)
            places = set(TopicList.decode(own.body).topic_list)  # clusters and brokers have topics of their name
            found = [name for name in found if not _is_made_by_servers(name, places)]
        mine = self.wrap("") if self.instance.namespace else ""
        return sorted(self.strip(name) for name in found if mine in name)

    async def topic_configs(self, broker: str) -> dict[str, TopicOnBroker]:
        """Every topic of one broker."""
        (master,) = await self.masters(broker=broker)
        response = await self.ask(master.address, Request.GET_ALL_TOPIC_CONFIG)
        table = TopicConfigTable.decode(response.body).topic_config_table
        return {self.strip(name): _on_broker(master.name, config) for name, config in sorted(table.items())}

    async def topic_route(self, topic: str) -> TopicRoute:
        """What the name server tells clients. NoRoute."""
        return (await self.instance.refresh_route(self.wrap(topic))).data

    async def topic_stats(self, topic: str) -> dict[MessageQueue, QueueStats]:
        """Bounds and last change of every queue. NoRoute."""
        name = self.wrap(topic)
        header = GetTopicStats(name)
        responses = await each(
            await self.masters_of(name), lambda master: self.ask(master.address, Request.GET_TOPIC_STATS_INFO, header)
        )
        found = {
            self.shown(queue): QueueStats(offset.min_offset, offset.max_offset, offset.last_update_timestamp)
            for response in responses
            for queue, offset in TopicStats.decode(response.body).offset_table.items()
        }
        return dict(sorted(found.items()))

    async def topic_groups(self, topic: str) -> list[str]:
        """Groups that consume it, or did."""
        name = self.wrap(topic)
        header = QueryTopicConsumers(name)
        responses = await each(
            await self.masters_of(name),
            lambda master: self.ask(master.address, Request.QUERY_TOPIC_CONSUME_BY_WHO, header),
        )
        return sorted(
            {self.strip(group) for response in responses for group in GroupList.decode(response.body).group_list}
        )

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue as users name it."""
        return MessageQueue(queue.broker_name, queue.queue_id, self.strip(queue.topic))

    async def _chosen(self, name: str, cluster: str | None, broker: str | None) -> list[BrokerMember]:
        if broker is not None:
            return await self.masters(cluster, broker)
        return [master for master in await self.masters_of(name) if cluster in (None, master.cluster)]

    async def _put_topic(self, master: BrokerMember, config: TopicConfig) -> None:
        changes = ",".join(f"{key}={value}" if key[0] == "+" else key for key, value in config.attributes.items())
        header = CreateTopic(
            topic=config.topic_name,
            default_topic=names.AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type or "SINGLE_TAG",
            order=config.order,
            topic_sys_flag=config.topic_sys_flag,
            attributes=changes,
        )
        await self.ask(master.address, Request.UPDATE_AND_CREATE_TOPIC, header)

    async def _get_topic(self, master: BrokerMember, name: str) -> TopicConfig:
        found = await self._find_topic(master, name)
        if found is None:
            raise NoRoute(f"broker {master.name} has no topic {name}: create it there first")
        return found

    async def _find_topic(self, master: BrokerMember, name: str) -> TopicConfig | None:
        try:
            response = await self.ask(master.address, Request.GET_TOPIC_CONFIG, GetTopicConfig(name))
        except BrokerError as error:
            if error.code == Response.TOPIC_NOT_EXIST:
                return None
            if error.code == Response.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ 4: it tells only of all topics
                every = await self.ask(master.address, Request.GET_ALL_TOPIC_CONFIG)
                return TopicConfigTable.decode(every.body).topic_config_table.get(name)
            raise
        return TopicConfig.decode(response.body)

    async def _read_topic(self, name: str, masters: list[BrokerMember]) -> Topic:
        configs = await each(masters, lambda master: self._get_topic(master, name))
        brokers = tuple(_on_broker(master.name, config) for master, config in zip(masters, configs, strict=True))
        return Topic(self.strip(name), brokers, await self._order_of(name))

    async def _order_of(self, name: str) -> str | None:
        try:
            response = await self.ask_name_server(Request.GET_KV_CONFIG, KvConfigKey(ORDER_NAMESPACE, name))
        except BrokerError as error:
            if error.code == Response.QUERY_NOT_FOUND:
                return None
            raise
        return response.ext.get("value")

    async def _fix_order(self, name: str, queues: Sequence[int], masters: list[BrokerMember]) -> None:
        known = await self._order_of(name)
        counts = dict(part.rsplit(":", 1) for part in known.split(";") if ":" in part) if known else {}
        counts.update({master.name: str(count) for master, count in zip(masters, queues, strict=True)})
        value = ";".join(f"{broker}:{count}" for broker, count in sorted(counts.items()))
        await self.ask_name_servers(Request.PUT_KV_CONFIG, PutKvConfig(ORDER_NAMESPACE, name, value))

    async def _forget_order(self, name: str) -> None:
        if await self._order_of(name) is not None:
            await self.ask_name_servers(Request.DELETE_KV_CONFIG, KvConfigKey(ORDER_NAMESPACE, name))


def _is_made_by_servers(name: str, places: set[str]) -> bool:
    if name in places or names.is_system_topic(name) or name.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
        return True
    return name.removesuffix("_REPLY_TOPIC") in places


def _check(topic: str, kind: str | None) -> None:
    fault = names.topic_fault(topic)
    if fault is not None:
        raise ConfigError(fault)
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"kind is {kind!r}, known are {', '.join(KINDS)}")


def _check_queues(argument: str, count: int | None) -> None:
    if type(count) not in (int, type(None)):
        raise ConfigError(f"{argument} is {count!r}, a {type(count).__name__}: give a whole number")
    if count is not None and count < 1:
        raise ConfigError(f"{argument} is {count}: a topic needs at least one; permissions say who may write or read")


def _change(key: str, value: str | None) -> str:
    return f"+{key}" if value is not None else f"-{key}"


def _bits(permissions: str) -> int:
    if not set(permissions) <= {"r", "w"}:
        raise ConfigError(f"permissions are {permissions!r}: use r, w, rw or nothing")
    return (PERM_READ if "r" in permissions else 0) | (PERM_WRITE if "w" in permissions else 0)


def _letters(bits: int) -> str:
    return ("r" if bits & PERM_READ else "") + ("w" if bits & PERM_WRITE else "")


def _on_broker(broker: str, config: TopicConfig) -> TopicOnBroker:
    return TopicOnBroker(
        broker,
        config.read_queue_nums,
        config.write_queue_nums,
        _letters(config.perm),
        config.order,
        dict(config.attributes),
    )
