"""What routes mean, pure; and how long they stay in use."""

from pathlib import Path

import pytest

from cometmq.client.cluster.routes import Brokers, borrow_route, read_route, vip_address
from cometmq.clock import ManualClock
from cometmq.errors import NoRoute
from cometmq.wire.bodies import BrokerData, MessageQueue, QueueData, QueueMapping, TopicRoute
from tests.support.clusters import idle, producing, real_cluster, scripted_cluster
from tests.support.net import until


def route_of(*queues: QueueData, brokers: dict[str, dict[int, str]], **fields: object) -> TopicRoute:
    datas = [BrokerData(broker_name=name, broker_addrs=addresses) for name, addresses in brokers.items()]
    return TopicRoute(broker_datas=datas, queue_datas=list(queues), **fields)  # type: ignore[arg-type]


def queue_data(name: str, read: int = 2, write: int = 2, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, perm=perm, read_queue_nums=read, write_queue_nums=write)


BOTH = {"a": {0: "h:1"}, "b": {0: "h:2"}}


def places(queues: tuple[MessageQueue, ...]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_queues_are_sorted_by_broker() -> None:
    route = read_route("T", route_of(queue_data("b", 1, 3), queue_data("a"), brokers=BOTH))
    assert places(route.publish) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    assert places(route.subscribe) == [("a", 0), ("a", 1), ("b", 0)]
    assert not route.ordered


@pytest.mark.parametrize(("perm", "writes", "reads"), [(6, 2, 2), (4, 0, 2), (2, 2, 0), (0, 0, 0)])
def test_permissions_decide_who_is_listed(perm: int, writes: int, reads: int) -> None:
    route = read_route("T", route_of(queue_data("a", perm=perm), brokers=BOTH))
    assert (len(route.publish), len(route.subscribe)) == (writes, reads)


def test_without_a_master_a_broker_can_only_be_read() -> None:
    route = read_route("T", route_of(queue_data("a"), brokers={"a": {1: "h:3"}}))
    assert route.publish == ()
    assert len(route.subscribe) == 2


def test_an_ordered_topic_has_exactly_the_queues_it_says() -> None:
    data = route_of(queue_data("a", 4, 4), brokers=BOTH, order_topic_conf="b:1;a:2;")
    route = read_route("T", data)
    assert places(route.publish) == [("b", 0), ("a", 0), ("a", 1)]
    assert route.ordered


def test_a_static_topic_has_logical_queues() -> None:
    data = route_of(queue_data("a"), brokers=BOTH)
    data.topic_queue_mapping_by_broker = {
        "a": QueueMapping(bname="a", curr_id_map={0: 0, 1: 1}, epoch=1, topic="T", total_queues=3),
        "b": QueueMapping(bname="b", curr_id_map={1: 7, 2: 8}, epoch=2, topic="T", total_queues=3),
    }
    route = read_route("T", data)
    assert [queue.queue_id for queue in route.publish] == [0, 1, 2]
    assert {queue.broker_name for queue in route.publish} == {"__syslo____global__"}
    assert [route.host(queue) for queue in route.publish] == ["a", "b", "b"]


def test_a_borrowed_route_has_no_more_queues_than_wanted() -> None:
    template = route_of(queue_data("a", 8, 8), queue_data("b", 2, 8), brokers=BOTH)
    route = borrow_route("New", template, 4)
    assert [(name, sum(queue.broker_name == name for queue in route.publish)) for name in "ab"] == [("a", 4), ("b", 2)]
    assert {queue.topic for queue in route.publish} == {"New"}


def test_where_to_write_and_read() -> None:
    brokers = Brokers()
    data = route_of(brokers={"a": {0: "h:1", 1: "h:2", 3: "h:3"}, "b": {2: "h:4"}})
    brokers.learn(data)
    assert (brokers.master("a"), brokers.master("b"), brokers.master("z")) == ("h:1", None, None)
    assert brokers.reader("a", 1) == ("h:2", 1)
    assert brokers.reader("a", 2) == ("h:3", 3)
    assert brokers.reader("a", 9) == ("h:1", 0)
    assert brokers.reader("a", 9, only_this=True) is None
    assert brokers.reader("b", 0) == ("h:4", 2)
    assert brokers.reader("z") is None
    assert brokers.name_at("h:4") == "b"
    brokers.keep([read_route("T", route_of(brokers={"a": {0: "h:1"}}))])
    assert brokers.members() == [("a", 0, "h:1")]


def test_the_vip_port_is_two_below() -> None:
    assert vip_address("10.0.0.1:10911") == "10.0.0.1:10909"


@pytest.mark.mission("PC-03")
async def test_a_route_is_asked_for_once_and_again_every_30_seconds() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster("a") as cluster,
        cluster.client(clock) as client,
        client.producer("pg") as producer,
    ):
        for _ in range(10):
            await producer.send("T", b"x")
        assert cluster.asked == ["T"]
        clock.advance(29)
        await idle(client)
        assert cluster.asked == ["T"]
        cluster.queues = 1
        clock.advance(1)
        await until(lambda: cluster.asked == ["T", "T"])
        await idle(client)
        assert {(await producer.send("T", b"x")).queue.queue_id for _ in range(8)} == {0}


async def test_a_route_stays_in_use_when_nobody_knows_a_newer_one() -> None:
    async with producing("a") as (cluster, producer):
        cluster.missing.add("T")
        with pytest.raises(NoRoute):
            await producer.instance.refresh_route("T")
        await producer.send("T", b"x")
        await cluster.server.stop()
        with pytest.raises(NoRoute):
            await producer.instance.refresh_route("T")
        await producer.send("T", b"x")


async def test_those_who_ask_for_the_same_route_share_one_answer() -> None:
    import asyncio

    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        await asyncio.gather(*[producer.send("T", b"x") for _ in range(50)])
        assert cluster.asked == ["T"]


async def test_a_new_broker_is_used_after_the_next_refresh(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        real_cluster(tmp_path, "T", brokers=2, queues=1) as cluster,
        cluster.client(clock=clock) as client,
        client.producer("pg") as producer,
    ):
        used = {(await producer.send("T", b"x")).queue.broker_name for _ in range(4)}
        assert used == {"broker-a", "broker-b"}
        await cluster.brokers[1].stop()
        clock.advance(30)
        await until(lambda: len(client.instance.known_route("T").publish) == 1)  # type: ignore[union-attr]
        assert {(await producer.send("T", b"x")).queue.broker_name for _ in range(4)} == {"broker-a"}
