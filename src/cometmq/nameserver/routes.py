"""Who serves what: the tables of the name server and the rules that change them.

    topics      topic -> broker name -> Queues     how many queues there, with what permission
    brokers     broker name -> Broker              cluster, and addresses by broker id (0 is the master)
    clusters    cluster -> broker names
    presences   (cluster, address) -> Presence     last sign of life, data version, and the link it came by
    mappings    topic -> broker name -> mapping    of static topics, passed on as it came

Pure state: no sockets, no clock. The time comes as an argument (monotonic milliseconds), a link is any object that
identifies a connection, and what must be sent to brokers is returned as a `Notice`.

Every change that can alter the route of a topic calls `changed(topic)`; whoever keeps encoded routes drops them there.

A broker goes when it says so, when its link closes, or when it was silent for its timeout. With its last address the
broker name goes, and with the last broker a topic.

What touches every topic of a broker is done in steps of TOPICS_A_STEP. The first is made immediately, the others wait
for `work`, which the server calls while `has_work`; `unfinished` is called when something waits. A broker that has gone
is in no new route from the first step on.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import Final

from cometmq.errors import RequestError
from cometmq.nameserver.registration import (
    ADDRESSES_MAX,
    BROKERS_A_LINK_MAX,
    BROKERS_MAX,
    TOPICS_A_BROKER_MAX,
    Broker,
    Notice,
    Presence,
    Queues,
    Registered,
    Registration,
    check,
    check_topic,
    presence,
    too_many,
)
from cometmq.wire.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    QueueMapping,
    TopicRoute,
)
from cometmq.wire.codes import MASTER_ID, Response

PERMISSION_READ: Final = 4
PERMISSION_WRITE: Final = 2

UNIT_FLAG: Final = 1
UNIT_SUBSCRIPTION_FLAG: Final = 2

# Replica groups find each other by these topics; an acting master in their routes would mislead them.
MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"

# Taken from a registration, or changed, before others have a turn: 5 ms.
TOPICS_A_STEP: Final = 2_000
# 10 ms.
SORTED_MAX: Final = 30_000

Key = tuple[str, str]


class Routes:
    def __init__(self, changed: Callable[[str], object], unfinished: Callable[[], object] | None = None) -> None:
        self._changed = changed
        self._unfinished = unfinished or self._finish
        self._work: deque[Iterator[None]] = deque()
        self.topics: dict[str, dict[str, Queues]] = {}
        self.brokers: dict[str, Broker] = {}
        self.clusters: dict[str, set[str]] = {}
        self.presences: dict[Key, Presence] = {}
        # Whose last registration came by which link; may name some that have left.
        self._behind: dict[object, set[Key]] = {}
        self.mappings: dict[str, dict[str, QueueMapping]] = {}

    # Work of more than one step

    @property
    def has_work(self) -> bool:
        return bool(self._work)

    def work(self) -> None:
        """One step of the work that has waited longest."""
        if self._work and next(self._work[0], self._work) is self._work:
            self._work.popleft()

    def _begin(self, work: Iterator[None]) -> None:
        """The first step now, unless older work waits: it goes first."""
        self._work.append(work)
        if len(self._work) == 1:
            self.work()
        if self._work:
            self._unfinished()

    def _finish(self) -> None:
        while self._work:
            self.work()

    # Registration

    def register(self, new: Registration, now_ms: int, *, drop_missing_topics: bool = False) -> Registered:
        """Take a broker in, or refresh it. RequestError if it must send its whole topic table first."""
        steps = self.registering(new, now_ms, drop_missing_topics=drop_missing_topics)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                registered: Registered = done.value
                return registered

    def registering(
        self, new: Registration, now_ms: int, *, drop_missing_topics: bool = False
    ) -> Generator[None, None, Registered]:
        """The same in steps, between which others may be served; one registration at a time."""
        check(new)
        broker = self.brokers.get(new.name) or Broker(new.name, new.cluster)
        self._check_room(broker, new)
        holder = broker.addresses.get(new.broker_id)
        if self._is_outdated(new, holder):
            self.presences.pop((new.cluster, new.address), None)
            return Registered()
        if holder is None and len(new.topics) == 1:
            raise RequestError(
                Response.SYSTEM_ERROR,
                f"broker {new.name} id {new.broker_id} is not registered and sent one topic only, which looks like "
                "a change to a table that this name server does not have: send the whole topic table",
            )
        id_min_before = broker.id_min if broker.addresses else MASTER_ID
        self._place(broker, new)
        if new.broker_id == MASTER_ID or self._is_prime_replica(broker, new):
            first = holder is None
            changed = first or not self._has_version(new)
            if drop_missing_topics and not new.mappings:
                yield from self._dropping(broker, broker.topics - new.topics.keys())
            yield from self._take_topics(broker, new, changed)
        self.presences[new.cluster, new.address] = presence(new, now_ms)
        self._behind.setdefault(new.link, set()).add((new.cluster, new.address))
        notice = None
        if new.broker_id < id_min_before:
            notice = _notice(broker, offline_address=None, ha_address=new.ha_address)
        return self._registered(broker, new, notice)

    def _is_outdated(self, new: Registration, holder: str | None) -> bool:
        """Another address holds the id, is alive, and was made master later than the one that asks."""
        if holder is None or holder == new.address:
            return False
        alive = self.presences.get((new.cluster, holder))
        return alive is not None and alive.data_version.state_version > new.data_version.state_version

    def _place(self, broker: Broker, new: Registration) -> None:
        """Steps that give the broker its name, its cluster and its address."""
        self.brokers[new.name] = broker
        self.clusters.setdefault(new.cluster, set()).add(new.name)
        addresses = _without(broker.addresses, new.address) | {new.broker_id: new.address}
        filter_servers = dict(broker.filter_servers)
        filter_servers.pop(new.address, None)
        if new.filter_servers:
            filter_servers[new.address] = new.filter_servers
        before = (broker.addresses, broker.filter_servers, broker.zone, broker.acting_master)
        after = (addresses, filter_servers, new.zone, bool(new.acting_master))
        if before != after:
            broker.addresses, broker.filter_servers, broker.zone, broker.acting_master = after
            self._touch(broker)

    @staticmethod
    def _is_prime_replica(broker: Broker, new: Registration) -> bool:
        return new.acting_master is not None and new.broker_id == broker.id_min

    def _has_version(self, new: Registration) -> bool:
        known = self.presences.get((new.cluster, new.address))
        return known is not None and known.data_version == new.data_version

    def _check_room(self, broker: Broker, new: Registration) -> None:
        addresses = len(broker.addresses.keys() | {new.broker_id})
        if addresses > ADDRESSES_MAX:
            raise too_many(f"broker {new.name} has {addresses} addresses", ADDRESSES_MAX)
        if new.name not in self.brokers and len(self.brokers) >= BROKERS_MAX:
            raise too_many(f"{len(self.brokers)} brokers are registered", BROKERS_MAX)
        behind = self._behind.get(new.link, set())
        if (new.cluster, new.address) not in behind and len(behind) >= BROKERS_A_LINK_MAX:
            raise too_many(f"this connection has registered {len(behind)} brokers", BROKERS_A_LINK_MAX)
        new_topics = 0 if new.topics.keys() <= broker.topics else len(new.topics.keys() - broker.topics)
        if len(broker.topics) + new_topics > TOPICS_A_BROKER_MAX:
            raise too_many(f"broker {new.name} has {len(broker.topics) + new_topics} topics", TOPICS_A_BROKER_MAX)

    def _take_topics(self, broker: Broker, new: Registration, changed: bool) -> Iterator[None]:
        mask = ~PERMISSION_WRITE if new.broker_id != MASTER_ID and broker.acting_master else ~0
        name = broker.name
        # Most topics of a broker look alike: one object for all of one shape saves 60 MB in a cluster of 50 x 5,000.
        shapes: dict[tuple[int, int, int, int], Queues] = {}
        for number, (topic, config) in enumerate(new.topics.items()):
            if number % TOPICS_A_STEP == TOPICS_A_STEP - 1:
                yield
                if self.brokers.get(name) is not broker:
                    raise RequestError(Response.SYSTEM_ERROR, f"broker {name} left while it was being registered")
            if changed or name not in self.topics.get(topic, ()):
                shape = (config.read_queue_nums, config.write_queue_nums, config.perm & mask, config.topic_sys_flag)
                self._set_queues(topic, broker, shapes.get(shape) or shapes.setdefault(shape, Queues(*shape)))
        if changed:
            for topic in new.mappings.keys() & self.topics.keys():
                self.mappings.setdefault(topic, {})[name] = new.mappings[topic]
                self._changed(topic)

    def _registered(self, broker: Broker, new: Registration, notice: Notice | None) -> Registered:
        master = broker.addresses.get(MASTER_ID)
        if new.broker_id == MASTER_ID or master is None:
            return Registered(notice=notice)
        alive = self.presences.get((new.cluster, master))
        if alive is None:
            return Registered(notice=notice)
        return Registered(alive.ha_address, master, notice)

    # Signs of life

    def heartbeat(self, cluster: str, address: str, now_ms: int) -> None:
        alive = self.presences.get((cluster, address))
        if alive is not None:
            alive.seen_ms = now_ms

    def data_version(self, cluster: str, address: str, now_ms: int) -> DataVersion | None:
        """The version of the topics that a broker registered, None for an unknown one; a sign of life too."""
        self.heartbeat(cluster, address, now_ms)
        alive = self.presences.get((cluster, address))
        return alive.data_version if alive is not None else None

    def expired(self, now_ms: int) -> list[Key]:
        """Who was silent for longer than it promised to be."""
        return [key for key, alive in self.presences.items() if now_ms - alive.seen_ms > alive.timeout_ms]

    def behind(self, link: object) -> list[Key]:
        """Whose last registration came by this link."""
        keys = self._behind.get(link, ())
        return [key for key in keys if key in self.presences and self.presences[key].link is link]

    def forget_link(self, link: object) -> None:
        self._behind.pop(link, None)

    # Leaving

    def unregister(self, cluster: str, name: str, address: str, broker_id: int) -> Notice | None:
        """Take an address out, and with the last one the broker. Unknown ones are no error."""
        self.presences.pop((cluster, address), None)
        broker = self.brokers.get(name)
        if broker is None or address not in broker.addresses.values():
            return None
        was_min = broker_id == broker.id_min
        broker.addresses = _without(broker.addresses, address)
        broker.filter_servers.pop(address, None)
        if not broker.addresses:
            self._remove(broker)
            return None
        self._touch(broker)
        if not broker.acting_master:
            return None
        if MASTER_ID not in broker.addresses:
            self._begin(self._keep_from_writing(broker))
        return _notice(broker, offline_address=address, ha_address=None) if was_min else None

    def leave(self, key: Key) -> Notice | None:
        """Unregister whoever is present under this key."""
        alive = self.presences[key]
        return self.unregister(key[0], alive.broker_name, key[1], alive.broker_id)

    def _remove(self, broker: Broker) -> None:
        del self.brokers[broker.name]
        for cluster in [cluster for cluster, held in self.clusters.items() if broker.name in held]:
            self.clusters[cluster].remove(broker.name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]
        self._begin(self._dropping(broker, broker.topics))

    # Administration

    def wipe_write_permission(self, name: str) -> int:
        """No producer shall write to this broker any more. How many topics it has."""
        return self._change_broker_permissions(name, lambda permission: permission & ~PERMISSION_WRITE)

    def add_write_permission(self, name: str) -> int:
        return self._change_broker_permissions(name, lambda _: PERMISSION_READ | PERMISSION_WRITE)

    def _change_broker_permissions(self, name: str, change: Callable[[int], int]) -> int:
        broker = self.brokers.get(name)
        if broker is None:
            return 0
        count = len(broker.topics)
        self._begin(self._changing_permissions(broker, change))
        return count

    def _keep_from_writing(self, broker: Broker) -> Iterator[None]:
        """Until a master is back, which has registered its topics as it wants them."""
        steps = self._changing_permissions(broker, lambda permission: permission & ~PERMISSION_WRITE)
        while MASTER_ID not in broker.addresses and next(steps, steps) is not steps:
            yield

    def _changing_permissions(self, broker: Broker, change: Callable[[int], int]) -> Iterator[None]:
        changed: dict[Queues, Queues] = {}
        for topics in _steps(broker.topics):
            if self.brokers.get(broker.name) is not broker:
                return
            for topic in topics:
                if topic in broker.topics:
                    queues = self.topics[topic][broker.name]
                    after = changed.get(queues)
                    if after is None:
                        after = changed[queues] = replace(queues, permission=change(queues.permission))
                    self._set_queues(topic, broker, after)
            yield

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, on the brokers of one cluster or on all, until they register it again."""
        holders = self.topics.get(topic, {}).keys() if cluster is None else self.clusters.get(cluster, ())
        for name in list(holders):
            if self._serves(name, topic):
                self._drop_queues(topic, self.brokers[name])

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Add queues of brokers that are known; one unknown broker and nothing happens."""
        for data in queues:
            check_topic(topic, data.read_queue_nums, data.write_queue_nums)
        if all(data.broker_name in self.brokers for data in queues):
            for data in queues:
                shape = Queues(data.read_queue_nums, data.write_queue_nums, data.perm, data.topic_sys_flag)
                self._set_queues(topic, self.brokers[data.broker_name], shape)

    # Lists

    def topics_of_cluster(self, cluster: str) -> set[str]:
        brokers = [self.brokers[name] for name in self.clusters.get(cluster, ())]
        return {topic for broker in brokers for topic in broker.topics}

    def system_topics(self) -> set[str]:
        """Every broker serves a topic of its own name and one of its cluster's."""
        return set(self.clusters).union(*self.clusters.values())

    def topics_with_flags(self, mask: int, flags: int) -> list[str]:
        """Topics whose flags under `mask` are `flags` on the first of their brokers."""
        return [topic for topic, held in self.topics.items() if next(iter(held.values())).flags & mask == flags]

    def served_topics(self) -> list[str]:
        """In the order of names, unless there are so many that sorting would hold the loop."""
        return sorted(self.topics) if len(self.topics) <= SORTED_MAX else list(self.topics)

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: _broker_data(self.brokers[name]) for name in sorted(self.brokers)},
            cluster_addr_table={cluster: sorted(self.clusters[cluster]) for cluster in sorted(self.clusters)},
        )

    # Routes

    def pick_up(self, topic: str, *, acting_masters: bool) -> TopicRoute | None:
        """The route of a topic, brokers by name; None if no broker has it.

        With `acting_masters` a group without master shows its smallest id as 0 where the topic cannot be written to,
        so that clients find someone to read from, lock and ask for offsets.
        """
        held = self.topics.get(topic)
        if held is None:
            return None
        serving = [name for name in sorted(held) if self._serves(name, topic)]
        if not serving:
            return None
        route = TopicRoute(topic_queue_mapping_by_broker=self.mappings.get(topic))
        acting = acting_masters and not topic.startswith(MEMBER_TOPIC_PREFIX)
        for name in serving:
            broker, queues = self.brokers[name], held[name]
            data = _broker_data(broker)
            if acting and broker.acting_master and not queues.permission & PERMISSION_WRITE:
                data.broker_addrs = _with_master(data.broker_addrs)
            route.broker_datas.append(data)
            route.queue_datas.append(QueueData(name, queues.permission, queues.read, queues.flags, queues.write))
            route.filter_server_table.update(broker.filter_servers)
        return route

    # The two places where a topic's queues change

    def _set_queues(self, topic: str, broker: Broker, queues: Queues) -> None:
        held = self.topics.setdefault(topic, {})
        if held.get(broker.name) != queues or topic not in broker.topics:  # left by one of the same name that has gone
            held[broker.name] = queues
            broker.topics.add(topic)
            self._changed(topic)

    def _drop_queues(self, topic: str, broker: Broker) -> None:
        broker.topics.discard(topic)
        if self._serves(broker.name, topic):  # one of the same name has come since
            return
        held = self.topics.get(topic)
        if held is None:
            return
        held.pop(broker.name, None)
        if not held:
            del self.topics[topic]
            self.mappings.pop(topic, None)
        self._changed(topic)

    def _serves(self, name: str, topic: str) -> bool:
        broker = self.brokers.get(name)
        return broker is not None and topic in broker.topics

    # What touches many topics

    def _dropping(self, broker: Broker, doomed: Iterable[str]) -> Iterator[None]:
        for topics in _steps(doomed):
            for topic in topics:
                self._drop_queues(topic, broker)
            yield

    def _touch(self, broker: Broker) -> None:
        self._begin(self._touching(broker))

    def _touching(self, broker: Broker) -> Iterator[None]:
        for topics in _steps(broker.topics):
            for topic in topics:
                self._changed(topic)
            yield


def _steps(topics: Iterable[str]) -> Iterator[list[str]]:
    """A copy of what is there now, in parts."""
    waiting = list(topics)
    for start in range(0, len(waiting), TOPICS_A_STEP):
        yield waiting[start : start + TOPICS_A_STEP]


def _notice(broker: Broker, *, offline_address: str | None, ha_address: str | None) -> Notice:
    """To everyone in the group when somebody left; else to all but the newcomer, unless it is alone."""
    id_min = broker.id_min
    tell_all = offline_address is not None or len(broker.addresses) == 1
    targets = [address for number, address in broker.addresses.items() if tell_all or number != id_min]
    return Notice(targets, id_min, broker.addresses[id_min], offline_address, ha_address)


def _broker_data(broker: Broker) -> BrokerData:
    return BrokerData(
        broker_name=broker.name,
        broker_addrs=dict(sorted(broker.addresses.items())),
        cluster=broker.cluster,
        enable_acting_master=broker.acting_master,
        zone_name=broker.zone,
    )


def _with_master(addresses: dict[int, str]) -> dict[int, str]:
    if MASTER_ID in addresses:
        return addresses
    acting = addresses[min(addresses)]
    return {MASTER_ID: acting} | _without(addresses, acting)


def _without(addresses: dict[int, str], address: str) -> dict[int, str]:
    return {broker_id: held for broker_id, held in addresses.items() if held != address}


def only_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """What a client in `zone` shall see: brokers of its zone, and groups without a master, wherever they are."""
    wanted = zone.lower()
    kept = [
        data
        for data in route.broker_datas
        if (data.zone_name or "").lower() == wanted or MASTER_ID not in data.broker_addrs
    ]
    zoned = {data.broker_name for data in kept}
    addresses = {address for data in kept for address in data.broker_addrs.values()}
    return TopicRoute(
        broker_datas=kept,
        queue_datas=[data for data in route.queue_datas if data.broker_name in zoned],
        filter_server_table={at: servers for at, servers in route.filter_server_table.items() if at in addresses},
        order_topic_conf=route.order_topic_conf,
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )
