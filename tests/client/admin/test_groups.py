"""Groups through the administration: their settings, and who is connected."""

from pathlib import Path

import pytest

from cometmq import Message, StartFrom
from cometmq.errors import ConfigError, NotFound
from tests.support.brokers import Peer
from tests.support.clusters import real_cluster
from tests.support.net import until


async def test_a_group_is_created_described_altered_and_deleted(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, brokers=2) as cluster, cluster.client() as client, client.admin() as admin:
        made = await admin.create_group("billing", retries_max=3, ordered=True)
        assert made.brokers == ("broker-a", "broker-b")
        assert (made.retries_max, made.ordered, made.enabled, made.broadcast_allowed) == (3, True, True, True)
        assert await admin.groups() == ["billing"]
        assert "TOOLS_CONSUMER" in await admin.groups(system=True)
        altered = await admin.alter_group("billing", enabled=False)
        assert (altered.retries_max, altered.ordered, altered.enabled) == (3, True, False)
        assert await admin.delete_group("billing", broker="broker-a") == ["broker-a"]
        assert (await admin.describe_group("billing")).brokers == ("broker-b",)
        assert await admin.delete_group("billing") == ["broker-b"]
        for missing in (admin.describe_group, admin.delete_group, admin.alter_group):
            with pytest.raises(NotFound, match="cometmq group create billing"):
                await missing("billing")


async def test_a_bad_group_name_is_refused(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        with pytest.raises(ConfigError, match="group name"):
            await admin.create_group("no good")


async def test_members_and_their_subscriptions_are_shown_while_they_are_online(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "orders") as cluster, cluster.client() as client, client.admin() as admin:
        with pytest.raises(NotFound, match="no member of consumer group billing is online"):
            await admin.group_connections("billing")
        async with Peer.of(cluster.broker) as peer:
            await peer.heartbeat("billing", topics={"orders": "created || paid"}, client_id="me@1")
            found = await admin.group_connections("billing")
            assert [member.client_id for member in found.connections] == ["me@1"]
            assert found.message_model == "CLUSTERING"
            assert [(it.topic, it.expression, it.kind) for it in found.subscriptions] == [
                ("orders", "created || paid", "TAG")
            ]
            assert await admin.topic_groups("orders") == ["billing"]


async def test_producers_are_shown_while_they_are_online(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "orders") as cluster, cluster.client() as client, client.admin() as admin:
        with pytest.raises(NotFound, match="no producer of group shop is online"):
            await admin.producer_connections("shop")
        async with client.producer("shop") as producer:
            await producer.send("orders", b"x")
            await client.instance.heartbeat()
            (member,) = await admin.producer_connections("shop")
            assert (member.client_id, member.language) == (client.client_id, "PYTHON")
            assert [it.client_id for it in (await admin.producer_groups())["shop"]] == [client.client_id]


async def test_a_member_that_is_not_there_cannot_be_asked(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "orders") as cluster, cluster.client() as client, client.admin() as admin:
        with pytest.raises(NotFound, match="member ghost of group billing did not answer"):
            await admin.consumer_state("billing", "ghost")


async def test_a_member_tells_of_itself_and_handles_what_it_is_handed(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "orders", queues=1) as cluster,
        cluster.client() as client,
        client.admin() as admin,
        client.producer("pg") as producer,
    ):
        app = client.push_consumer("billing", start=StartFrom.FIRST)
        handled: list[bytes] = []

        @app.on("orders")
        async def handle(message: Message[bytes]) -> None:
            handled.append(message.body)
            if message.body == b"bad":
                raise ValueError("on purpose")

        receipts = [await producer.send("orders", body) for body in (b"good", b"bad")]
        async with app:
            await until(lambda: len(handled) == 2)
            (queue,) = await admin.topic_queues("orders")
            state = await admin.consumer_state("billing", client.client_id)
            assert queue in state.queues
            assert "orders" in [it.topic for it in state.subscriptions]
            assert (await admin.group_lag("billing", "orders", owners=True))[queue].owner == client.client_id
            good = await admin.consume_directly("billing", client.client_id, receipts[0].offset_id, "orders")
            bad = await admin.consume_directly("billing", client.client_id, receipts[1].offset_id, "orders")
            assert (good.is_success, bad.is_success) == (True, False)
            assert "on purpose" in bad.remark
            assert handled == [b"good", b"bad", b"good", b"bad"]
