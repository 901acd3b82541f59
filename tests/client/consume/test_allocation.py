"""Shares of queues: RocketMQ's own results, and that every queue has one owner."""

import pytest

from cometmq.client.consume.allocation import (
    Average,
    Circle,
    ConsistentHash,
    Fixed,
    MachineRoom,
    Nearby,
    Strategy,
    share,
)
from cometmq.errors import ConfigError
from cometmq.wire.bodies import MessageQueue


def queues(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue(broker, number, "T") for number in range(count)]


def ids(strategy: Strategy, count: int, clients: list[str]) -> list[list[int]]:
    return [[queue.queue_id for queue in share(strategy, client, queues(count), clients)] for client in clients]


@pytest.mark.mission("CG-05")
@pytest.mark.parametrize(
    ("strategy", "count", "shares"),
    [
        (Average(), 8, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (Circle(), 8, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (ConsistentHash(), 8, [[0, 1, 5, 6], [3, 4], [2, 7]]),
        (Average(), 2, [[0], [1], []]),
    ],
)
def test_shares_are_those_of_rocketmq(strategy: Strategy, count: int, shares: list[list[int]]) -> None:
    assert ids(strategy, count, ["c0", "c1", "c2"]) == shares


@pytest.mark.mission("CG-05")
@pytest.mark.parametrize("strategy", [Average(), Circle(), ConsistentHash(3)], ids=lambda it: str(it.name))
def test_every_queue_has_exactly_one_owner(strategy: Strategy) -> None:
    for members in (1, 2, 3, 7, 16, 31, 60) if isinstance(strategy, ConsistentHash) else range(1, 61):
        clients = sorted(f"10.0.0.{member}@{member * 7919}" for member in range(members))
        for count in (1, 2, 3, 5, 8, 13, 50) if isinstance(strategy, ConsistentHash) else range(1, 51):
            taken = sorted(number for one in ids(strategy, count, clients) for number in one)
            assert taken == list(range(count)), f"{members} members, {count} queues"


def test_the_order_of_the_lists_does_not_matter() -> None:
    mixed = [*queues(3, "b"), *queues(3, "a")][::-1]
    taken = share(Average(), "c1", mixed, ["c2", "c1", "c3"])
    assert taken == [MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T")]


def test_who_is_no_member_takes_nothing() -> None:
    room = MachineRoom({"r"})
    near = Nearby(Average(), lambda broker: "r", lambda client: "r")
    for strategy in (Average(), Circle(), ConsistentHash(), room, near):
        assert share(strategy, "stranger", queues(4), ["c0"]) == []


def test_nothing_to_share_is_an_error() -> None:
    for queue_list, clients in ((queues(0), ["c"]), (queues(1), [])):
        with pytest.raises(ConfigError, match="no shares"):
            share(Average(), "c", queue_list, clients)


def test_fixed_queues_are_taken_if_they_exist() -> None:
    strategy = Fixed((MessageQueue("broker-a", 1, "T"), MessageQueue("broker-a", 9, "T")))
    assert [queue.queue_id for queue in share(strategy, "c", queues(4), ["c", "d"])] == [1]


def test_a_machine_room_gives_what_does_not_divide_to_the_first() -> None:
    strategy = MachineRoom({"east"})
    mixed = [*queues(5, "east@a"), *queues(4, "west@b"), *queues(2, "plain")]
    shares = [share(strategy, client, mixed, ["c0", "c1"]) for client in ("c0", "c1")]
    assert [[queue.queue_id for queue in one] for one in shares] == [[0, 1, 4], [2, 3]]
    assert {queue.broker_name for one in shares for queue in one} == {"east@a"}


def test_rooms_without_members_are_shared_by_all() -> None:
    strategy = Nearby(Average(), lambda broker: broker[0], lambda client: client[0])
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    mixed = [*queues(4, "a-1"), *queues(2, "b-1"), *queues(4, "z-1")]
    shares = {client: share(strategy, client, mixed, ["a0", "a1", "b0"]) for client in ("a0", "a1", "b0")}
    counts = {
        client: {room: sum(queue.broker_name[0] == room for queue in taken) for room in "abz"}
        for client, taken in shares.items()
    }
    assert counts == {
        "a0": {"a": 2, "b": 0, "z": 2},
        "a1": {"a": 2, "b": 0, "z": 1},
        "b0": {"a": 0, "b": 2, "z": 1},
    }
    assert len({queue for taken in shares.values() for queue in taken}) == len(mixed)
