"""Brokers, settings, permissions and key values through the administration."""

from pathlib import Path

import pytest

from cometmq import Admin, Client
from cometmq.errors import BrokerError, NotFound, NotRunning
from tests.support.clusters import real_cluster


async def test_brokers_say_their_version_and_a_dead_one_why_not(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, brokers=2) as cluster, cluster.client() as client, client.admin() as admin:
        states = await admin.cluster_state()
        assert [(it.member.name, it.member.role, it.is_up) for it in states] == [
            ("broker-a", "master", True),
            ("broker-b", "master", True),
        ]
        assert all(it.version for it in states)
        assert (await admin.broker_figures("broker-a"))["brokerActive"] == "true"
        assert (await admin.replication("broker-a")).master
        await cluster.brokers[1].server.stop(0)
        up, down = await admin.cluster_state("DefaultCluster")
        assert (up.is_up, down.is_up) == (True, False)
        assert down.error
        assert await admin.brokers("elsewhere") == []


async def test_settings_of_brokers_are_read_and_changed(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, brokers=2) as cluster, cluster.client() as client, client.admin() as admin:
        assert (await admin.broker_config("broker-a"))["fileReservedTime"] == "72"
        assert await admin.set_broker_config({"fileReservedTime": "5"}) == ["broker-a", "broker-b"]
        assert (await admin.broker_config("broker-b"))["fileReservedTime"] == "5"
        with pytest.raises(NotFound, match="no setting fileReservedTmie"):
            await admin.set_broker_config({"fileReservedTmie": "5"}, broker="broker-a")
        with pytest.raises(BrokerError):
            await admin.set_broker_config({"brokerName": "other"}, broker="broker-a")


async def test_settings_of_name_servers_are_read_and_changed(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        assert await admin.set_name_server_config({"orderMessageEnable": "true"}) == [cluster.namesrv]
        config = await admin.name_server_config()
        assert config[cluster.namesrv]["orderMessageEnable"] == "true"


async def test_a_broker_without_write_permission_gets_no_messages(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "orders", brokers=2) as cluster,
        cluster.client() as client,
        client.admin() as admin,
    ):
        assert await admin.wipe_write_permission("broker-a") > 0
        async with client.producer("pg") as producer:
            receipts = [await producer.send("orders", b"x") for _ in range(8)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}
        assert await admin.add_write_permission("broker-a") > 0
        route = await client.instance.refresh_route("orders")
        assert {queue.broker_name for queue in route.publish} == {"broker-a", "broker-b"}
        with pytest.raises(NotFound, match="no master of broker nobody"):
            await admin.wipe_write_permission("nobody")


async def test_key_values_are_put_read_listed_and_deleted(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        assert await admin.key_values("mine") == {}
        await admin.put_key_value("mine", "a", "1")
        assert await admin.key_value("mine", "a") == "1"
        assert await admin.key_values("mine") == {"a": "1"}
        await admin.delete_key_value("mine", "a")
        assert await admin.key_value("mine", "a") is None


async def test_counters_and_cleaning_reach_the_broker(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        with pytest.raises(NotFound, match="no counter TOPIC_PUT_NUMS of orders"):
            await admin.broker_stats("broker-a", "TOPIC_PUT_NUMS", "orders")
        for clean in (admin.delete_expired_files, admin.clean_expired_queues, admin.clean_unused_topics):
            assert await clean() == ["broker-a"]


async def test_it_can_have_a_client_of_its_own_and_needs_one_that_runs(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster:
        async with Admin(namesrv=cluster.namesrv) as admin:
            assert len(await admin.brokers()) == 1
        assert not admin.instance.is_running
        with pytest.raises(NotRunning, match="the client is not running"):
            await Client(cluster.namesrv).admin().start()
