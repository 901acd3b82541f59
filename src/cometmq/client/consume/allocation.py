"""Who reads which queues: every member of a group computes the same shares from the same two lists.

    queues   sorted by topic, broker name, queue id        8 queues, 3 members:
    clients  sorted ids of the group's members

    Average          contiguous blocks                     0 1 2 | 3 4 5 | 6 7
    Circle           one after the other                   0 3 6 | 1 4 7 | 2 5
    ConsistentHash   few queues move when a member goes    places on a ring of hashes
    Fixed            what the program says
    MachineRoom      only queues of brokers named room@name
    Nearby           each room among its own members; rooms without members among all

Pure functions of their arguments. A group agrees on its shares only if all its members, in whatever language, use the
same strategy. Who is not in the list of members takes nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from typing import Final, Protocol

from cometmq.errors import ConfigError
from cometmq.wire.bodies import MessageQueue

VIRTUAL_NODES: Final = 10


class Strategy(Protocol):
    """`name` is RocketMQ's own for it; brokers and tools show it."""

    @property
    def name(self) -> str: ...

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """The queues of one topic that `client_id` reads. Both lists are sorted; neither is empty."""


def share(
    strategy: Strategy, client_id: str, queues: Iterable[MessageQueue], clients: Iterable[str]
) -> list[MessageQueue]:
    """Sort both lists and ask the strategy. ConfigError if one is empty: then nobody can tell."""
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    members = sorted(clients)
    if not client_id or not ordered or not members:
        raise ConfigError(f"no shares of {len(ordered)} queues among {len(members)} clients for {client_id!r}")
    return list(strategy.allocate(client_id, ordered, members))


@dataclass(frozen=True, slots=True)
class Average:
    """The default. Earlier members have one queue more where the numbers do not divide."""

    name: str = field(default="AVG", init=False)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if client_id not in clients:
            return []
        index = clients.index(client_id)
        least, more = divmod(len(queues), len(clients))
        start = index * least + min(index, more)
        return queues[start : start + least + (index < more)]


@dataclass(frozen=True, slots=True)
class Circle:
    name: str = field(default="AVG_BY_CIRCLE", init=False)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return queues[clients.index(client_id) :: len(clients)] if client_id in clients else []


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    virtual_nodes: int = VIRTUAL_NODES
    name: str = field(default="CONSISTENT_HASH", init=False)

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise ConfigError(f"virtual_nodes is {self.virtual_nodes}, the least is 1")

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if client_id not in clients:
            return []
        ring = {_hash(f"{client}-{node}"): client for client in clients for node in range(self.virtual_nodes)}
        places = sorted(ring)
        return [queue for queue in queues if ring[places[_clockwise(places, queue)]] == client_id]


def _clockwise(places: list[int], queue: MessageQueue) -> int:
    text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
    return bisect_left(places, _hash(text)) % len(places)


def _hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same queues, whoever else is there."""

    queues: tuple[MessageQueue, ...]
    name: str = field(default="CONFIG", init=False)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return [queue for queue in self.queues if queue in queues]


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Queues of brokers that are named `room@name`, for the rooms given."""

    rooms: Collection[str]
    name: str = field(default="MACHINE_ROOM", init=False)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if client_id not in clients:
            return []
        index = clients.index(client_id)
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        least, more = divmod(len(near), len(clients))
        taken = near[index * least : (index + 1) * least]
        return [*taken, near[least * len(clients) + index]] if index < more else taken

    def _is_near(self, broker: str) -> bool:
        room, at, name = broker.partition("@")
        return bool(at) and "@" not in name and room in self.rooms


@dataclass(frozen=True, slots=True)
class Nearby:
    """`room_of_broker` and `room_of_client` say where a broker's name and a client's id are."""

    inner: Strategy
    room_of_broker: Callable[[str], str]
    room_of_client: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if client_id not in clients:
            return []
        members: dict[str, list[str]] = {}
        for client in clients:
            members.setdefault(self.room_of_client(client), []).append(client)
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            rooms.setdefault(self.room_of_broker(queue.broker_name), []).append(queue)
        own = self.room_of_client(client_id)
        taken: list[MessageQueue] = []
        for room, near in sorted(rooms.items()):
            if room == own:
                taken += self.inner.allocate(client_id, near, members[own])
            elif room not in members:
                taken += self.inner.allocate(client_id, near, clients)
        return taken
