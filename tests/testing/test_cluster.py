"""The embedded cluster: starting, talking, killing, restarting, moving time, and leaving nothing behind."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from cometmq import StartFrom
from cometmq.broker.config import BrokerConfig
from cometmq.broker.server import Broker
from cometmq.errors import AccessDenied, CometError, ConfigError, NotRunning
from cometmq.testing import Cluster, EmbeddedBroker, MovableClock, SyncCluster
from tests.conftest import run
from tests.support.length import by_length


async def test_a_cluster_takes_messages_and_shows_them() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            receipt = await producer.send("orders", b"hello", tag="t")
        (message,) = await cluster.messages("orders")
        assert (message.body, message.tag, message.id) == (b"hello", "t", receipt.id)
        place = cluster.broker.directory
        assert (place / "store" / "commitlog").is_dir()
    assert not place.exists(), "temporary files go with the cluster"


async def test_a_given_directory_is_kept_and_can_be_used_again(tmp_path: Path) -> None:
    async with (
        Cluster(topics=["orders"], directory=tmp_path) as cluster,
        cluster.client() as client,
        client.producer("pg") as producer,
    ):
        await producer.send("orders", b"kept")
    async with Cluster(directory=tmp_path) as cluster:
        assert [message.body for message in await cluster.messages("orders")] == [b"kept"]


async def test_several_brokers_share_a_topic() -> None:
    async with Cluster(brokers=3, topics=["orders"], queues=1) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            receipts = [await producer.send("orders", b"x") for _ in range(9)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-a", "broker-b", "broker-c"}
        assert len(await cluster.messages("orders")) == 9


async def test_settings_reach_the_brokers() -> None:
    settings = {"fileReservedTime": 5, "autoCreateTopicEnable": False}
    async with Cluster(settings=settings) as cluster, cluster.client() as client, client.admin() as admin:
        config = await admin.broker_config("broker-a")
        assert (config["fileReservedTime"], config["autoCreateTopicEnable"]) == ("5", "false")


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restarted_broker_has_every_message_that_was_acknowledged(kill: bool) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client:
        broker = cluster.broker
        address = broker.address
        async with client.producer("pg") as producer:
            for number in range(50):
                await producer.send("orders", str(number).encode())
            await broker.restart(kill=kill)
            assert broker.address == address
            assert broker.server.store.crashed is kill
            await producer.send("orders", b"50")
        bodies = sorted(int(message.body) for message in await cluster.messages("orders"))
        assert bodies == list(range(51))


async def test_a_killed_broker_saves_nothing_and_says_nothing() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        broker = cluster.broker
        (queue, *_) = await admin.topic_queues("orders")
        await admin.create_group("cg")
        await admin.commit_offset("cg", queue, 7)  # saved to disk every 5 s, and at a clean stop
        await broker.kill()
        assert not broker.is_running
        assert (broker.directory / "store" / "abort").exists()
        with pytest.raises(NotRunning, match="start it first"):
            _ = broker.server
        with pytest.raises(CometError):
            await admin.broker_figures(broker.address)
        await broker.start()
        assert await admin.committed_offsets("cg", "orders") == dict.fromkeys(
            await admin.topic_queues("orders"), -1
        )


async def test_the_name_server_can_go_and_come_back() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client:
        address = cluster.namesrv
        async with client.producer("pg") as producer:
            await producer.send("orders", b"x")
            await cluster.nameserver.stop()
            await producer.send("orders", b"the route is still known")
            await cluster.nameserver.start()
            assert cluster.namesrv == address
            await cluster.advance(40)  # brokers register every 30 s
            assert len(await cluster.messages("orders")) == 2


async def arrived(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    while True:
        found = await cluster.messages(topic)
        if len(found) >= count:
            return [message.body for message in found]
        await asyncio.sleep(0.01)


async def test_moving_time_ends_delays() -> None:
    async with (
        Cluster(topics=["orders"]) as cluster,
        cluster.client() as client,
        client.producer("pg") as producer,
    ):
        await producer.send("orders", b"level", delay_level=16)  # half an hour
        await producer.send("orders", b"any", delay=600.0)
        assert await cluster.messages("orders") == []
        await cluster.advance(590)
        assert await cluster.messages("orders") == []
        await cluster.advance(20)
        assert await arrived(cluster, "orders", 1) == [b"any"]
        await cluster.advance(1200)
        assert set(await arrived(cluster, "orders", 2)) == {b"level", b"any"}


async def test_moving_time_keeps_brokers_and_clients_known() -> None:
    async with (
        Cluster(topics=["orders"]) as cluster,
        cluster.client() as client,
        client.admin() as admin,
        client.producer("pg") as producer,
    ):
        await producer.send("orders", b"x")
        await cluster.advance(600)
        assert [it.is_up for it in await admin.cluster_state()] == [True]
        assert await admin.producer_connections("pg")
        await producer.send("orders", b"y")


def test_arguments_that_cannot_be_are_refused_and_a_failed_start_leaves_nothing() -> None:
    with pytest.raises(ConfigError, match="allowed are 1 to 26"):
        Cluster(brokers=0)

    async def check() -> None:
        cluster = Cluster(settings={"brokerRole": "NOBODY"})
        with pytest.raises(CometError):
            await cluster.start()
        with pytest.raises(NotRunning):
            _ = Cluster().namesrv

    before = threading.active_count()
    run(check())
    assert threading.active_count() == before


class Unlucky(EmbeddedBroker):
    """Another process takes its port, some times."""

    bad_luck = 2

    async def _started(self) -> Broker:
        if self.bad_luck:
            self.bad_luck -= 1
            raise CometError("cannot listen") from OSError("address in use")
        return await super()._started()


async def test_a_port_that_is_taken_in_the_last_moment_is_not_the_end(tmp_path: Path) -> None:
    broker = Unlucky("broker-a", tmp_path, {}, MovableClock())
    await broker.start()
    address = broker.address
    await broker.stop()
    broker.bad_luck = 1
    with pytest.raises(CometError, match="cannot listen"):
        await broker.start()  # now it is known at its address, and another one would be wrong
    assert broker.address == address


async def test_an_embedded_broker_leaves_the_default_port_to_a_broker_that_runs_here(tmp_path: Path) -> None:
    broker = EmbeddedBroker("broker-a", tmp_path, {}, MovableClock())
    await broker.start()
    try:
        assert not broker.address.endswith(f":{BrokerConfig().listen_port}")
    finally:
        await broker.stop()


def test_the_sync_cluster_serves_without_asyncio() -> None:
    with SyncCluster(topics=["orders"], brokers=2) as cluster:
        cluster.create_topic("more", queues=1)
        assert cluster.messages("more") == []
        before = cluster.now()
        cluster.advance(60)
        assert (cluster.now() - before).total_seconds() >= 60
        cluster.broker.kill()
        assert not cluster.broker.is_running
        cluster.broker.start()
        cluster.broker.restart()
        assert cluster.messages("orders") == []
        cluster.stop_nameserver()
        cluster.start_nameserver()
    cluster.stop()


def test_clients_of_the_sync_cluster_share_its_time() -> None:
    with SyncCluster(topics=["orders"], queues=1) as cluster, cluster.client() as client:
        with client.producer("pg") as producer:
            producer.send("orders", b"later", delay=3600.0)
        with client.consumer("cg", "orders", start=StartFrom.FIRST) as consumer:
            assert consumer.receive(timeout=0) is None
            cluster.advance(3610)
            message = consumer.receive(timeout=600)
            assert message is not None
            assert message.body == b"later"
            message.ack()


# 200 rounds take half a minute.
ROUNDS = by_length(20, 50, 200)


async def first_message() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            await producer.send("orders", b"x")
        assert len(await cluster.messages("orders")) == 1


def held() -> dict[str, int]:
    """What a process holds: files and sockets, threads, and objects of ours."""
    gc.collect()
    kinds = ("Broker", "NameServer", "Cluster", "Client", "Connection", "Store", "MovableClock")
    mine = [type(it).__name__ for it in gc.get_objects() if str(type(it).__module__).startswith("cometmq.")]
    counts = {kind: mine.count(kind) for kind in kinds}
    descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    # The loop's own pool for blocking calls grows to its bound and stays.
    threads = [it for it in threading.enumerate() if not it.name.startswith("asyncio_")]
    return {**counts, "descriptors": descriptors, "threads": len(threads)}


def resident_kib() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    (line,) = [it for it in status.read_text().splitlines() if it.startswith("VmRSS")]
    return int(line.split()[1])


def test_many_clusters_in_one_process_leave_nothing_behind() -> None:
    async def check() -> None:
        for _ in range(5):  # caches, pools and lazy imports fill
            await first_message()
        tasks = len(asyncio.all_tasks())
        before, resident_before = held(), resident_kib()
        for _ in range(ROUNDS):
            await first_message()
        assert len(asyncio.all_tasks()) == tasks
        assert held() == before
        grown_kib = resident_kib() - resident_before
        assert grown_kib < 8 * 1024, f"{grown_kib} KiB more after {ROUNDS} clusters"

    run(check(), timeout_s=300)


async def test_a_secure_cluster_asks_who_is_there(tmp_path: Path) -> None:
    async with Cluster(secure=True, brokers=2, topics=["orders"], directory=tmp_path) as cluster:
        keys = await cluster.create_user("shop", {"Topic:orders": "Pub"})
        async with cluster.client(**keys) as client, client.producer("pg") as producer:
            await producer.send("orders", b"hello")
            with pytest.raises(AccessDenied):
                async with client.admin() as admin:
                    await admin.create_topic("more")
        async with cluster.client(access_key="", secret_key="") as client, client.producer("pg", retries=0) as producer:
            with pytest.raises(AccessDenied, match="username cannot be null"):
                await producer.send("orders", b"nobody")
        assert [message.body for message in await cluster.messages("orders")] == [b"hello"]
        await cluster.broker.restart(kill=True)
        await cluster.create_topic("later")
    async with Cluster(secure=True, brokers=2, directory=tmp_path) as again:
        assert [message.body for message in await again.messages("orders")] == [b"hello"]
        assert again.keys["access_key"] == "admin"
    assert (tmp_path / "keys.json").stat().st_mode & 0o077 == 0


def test_a_secure_cluster_works_without_asyncio() -> None:
    with SyncCluster(secure=True, topics=["orders"]) as cluster:
        keys = cluster.create_user("shop", {"Topic:orders": "Sub"})
        assert cluster.messages("orders") == []
        with (
            cluster.client(**keys) as client,
            client.producer("pg", retries=0) as producer,
            pytest.raises(AccessDenied, match="cometmq acl grant shop Topic:orders Pub"),
        ):
            producer.send("orders", b"x")
        assert cluster.keys["access_key"] == "admin"
    with SyncCluster() as open_to_all, pytest.raises(ConfigError, match="secure=True"):
        _ = open_to_all.keys
