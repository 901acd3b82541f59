"""What a route means: which queues to write to and read from, and where their brokers are. Values only.

    name server's answer  ->  Route(topic, publish queues, subscribe queues)      in `read_route`
                          ->  Brokers: name -> {0: master, 1: replica, ...}       what all routes say together

Publish queues come from, first match:

    orderTopicConf "a:4;b:4"     exactly these, whether the brokers live or not: keys stay where they are
    a static topic's mapping     its logical queues, all of a broker that exists only in name; `hosts` says who has them
    queue data                   sorted by broker name: of every writable broker with a master, 0 to writeQueueNums - 1
"""

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from cometmq.wire.bodies import MessageQueue, TopicRoute
from cometmq.wire.codes import MASTER_ID

PERM_READ: Final = 4
PERM_WRITE: Final = 2
# Queues of a static topic carry this in place of the name of a broker.
LOGICAL_BROKER: Final = "__syslo__{scope}"


class Route(NamedTuple):
    """`hosts` names the brokers of logical queues; empty for ordinary topics. `data` is what the name server said."""

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    ordered: bool
    hosts: dict[MessageQueue, str]
    data: TopicRoute

    def host(self, queue: MessageQueue) -> str:
        """The name of the broker that has a queue."""
        return self.hosts.get(queue, queue.broker_name) if self.hosts else queue.broker_name


def read_route(topic: str, data: TopicRoute) -> Route:
    if data.order_topic_conf:
        publish = _ordered_queues(topic, data.order_topic_conf)
        return Route(topic, publish, _subscribe_queues(topic, data), True, {}, data)
    hosts = _logical_queues(topic, data)
    if hosts:
        queues = tuple(sorted(hosts, key=lambda queue: queue.queue_id))
        return Route(topic, queues, queues, False, hosts, data)
    return Route(topic, _publish_queues(topic, data), _subscribe_queues(topic, data), False, {}, data)


def borrow_route(topic: str, template: TopicRoute, queues_max: int) -> Route:
    """The route of a topic that does not exist yet, from that of the topic after which a broker would make it."""
    for queues in template.queue_datas:
        count = min(queues_max, queues.read_queue_nums)
        queues.read_queue_nums = queues.write_queue_nums = count
    return read_route(topic, template)


def _ordered_queues(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    queues: list[MessageQueue] = []
    for part in conf.split(";"):
        broker, _, count = part.strip().partition(":")
        if broker and count.isdecimal():
            queues += [MessageQueue(broker, queue_id, topic) for queue_id in range(int(count))]
    return tuple(queues)


def _logical_queues(topic: str, data: TopicRoute) -> dict[MessageQueue, str]:
    """The hosts of a static topic's queues; of two that claim one queue the later epoch is right."""
    owners: dict[MessageQueue, tuple[int, str]] = {}
    for broker, mapping in (data.topic_queue_mapping_by_broker or {}).items():
        name = LOGICAL_BROKER.format(scope=mapping.scope or "")
        for queue_id in mapping.curr_id_map:
            queue = MessageQueue(name, queue_id, topic)
            if queue not in owners or owners[queue][0] < mapping.epoch:
                owners[queue] = (mapping.epoch, broker)
    return {queue: broker for queue, (_, broker) in owners.items()}


def _publish_queues(topic: str, data: TopicRoute) -> tuple[MessageQueue, ...]:
    with_master = {broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs}
    return tuple(
        MessageQueue(queues.broker_name, queue_id, topic)
        for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name)
        if queues.perm & PERM_WRITE and queues.broker_name in with_master
        for queue_id in range(queues.write_queue_nums)
    )


def _subscribe_queues(topic: str, data: TopicRoute) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(queues.broker_name, queue_id, topic)
        for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name)
        if queues.perm & PERM_READ
        for queue_id in range(queues.read_queue_nums)
    )


class Brokers:
    """Every broker that a route names: where its master and its replicas listen."""

    def __init__(self) -> None:
        self._addresses: dict[str, dict[int, str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._addresses

    def learn(self, data: TopicRoute) -> None:
        for broker in data.broker_datas:
            if broker.broker_addrs:
                self._addresses[broker.broker_name] = dict(broker.broker_addrs)

    def keep(self, routes: Iterable[Route]) -> None:
        """Drop every address that no route names."""
        named = {address for route in routes for broker in route.data.broker_datas
                 for address in broker.broker_addrs.values()}  # fmt: skip
        for name, members in list(self._addresses.items()):
            live = {number: address for number, address in members.items() if address in named}
            if live:
                self._addresses[name] = live
            else:
                del self._addresses[name]

    def master(self, name: str) -> str | None:
        """Where to write."""
        members = self._addresses.get(name)
        return members.get(MASTER_ID) if members is not None else None

    def reader(self, name: str, preferred_id: int = MASTER_ID, only_this: bool = False) -> tuple[str, int] | None:
        """Where to read, and the id of that member: the preferred one, else a neighbour, else any."""
        members = self._addresses.get(name)
        if not members:
            return None
        wanted = [preferred_id, preferred_id + 1] if preferred_id != MASTER_ID else [preferred_id]
        for number in wanted:
            if number in members:
                return members[number], number
        if only_this:
            return None
        number, address = next(iter(members.items()))
        return address, number

    def any_of(self, route: Route) -> str | None:
        """A random broker of a topic, its master if it has one: for what any of them can answer."""
        brokers = [broker.broker_addrs for broker in route.data.broker_datas if broker.broker_addrs]
        if not brokers:
            return None
        members = random.choice(brokers)  # noqa: S311 - spreads load, keeps no secret
        return members.get(MASTER_ID) or random.choice(list(members.values()))  # noqa: S311

    def members(self) -> list[tuple[str, int, str]]:
        """(name, id, address) of all."""
        return [(name, number, address) for name, members in self._addresses.items()
                for number, address in members.items()]  # fmt: skip

    def name_at(self, address: str) -> str | None:
        for name, _, known in self.members():
            if known == address:
                return name
        return None


def vip_address(address: str) -> str:
    """The port that a broker keeps for requests which shall not wait behind pulls: two below."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"
