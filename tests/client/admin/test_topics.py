"""Topics through the administration, against real brokers in the test's process."""

from pathlib import Path

import pytest

from cometmq.client.admin import QueueStats
from cometmq.errors import ConfigError, NoRoute, NotFound
from tests.support.clusters import real_cluster


async def test_a_topic_is_created_described_altered_and_deleted_on_every_broker(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, brokers=2) as cluster, cluster.client() as client, client.admin() as admin:
        made = await admin.create_topic("orders", queues=3, kind="NORMAL")
        assert [(on.broker, on.read_queues, on.write_queues, on.permissions) for on in made.brokers] == [
            ("broker-a", 3, 3, "rw"),
            ("broker-b", 3, 3, "rw"),
        ]
        assert made.kind == "NORMAL"
        assert await admin.topics() == ["orders"]
        assert "SCHEDULE_TOPIC_XXXX" in await admin.topics(system=True)

        altered = await admin.alter_topic("orders", queues=5, permissions="r", attributes={"message.type": None})
        assert {(on.write_queues, on.permissions) for on in altered.brokers} == {(5, "r")}
        assert altered.kind == "UNSPECIFIED"
        assert altered == await admin.describe_topic("orders")

        assert await admin.delete_topic("orders") == ["broker-a", "broker-b"]
        assert await admin.topics() == []
        with pytest.raises(NoRoute, match="cometmq topic create orders"):
            await admin.describe_topic("orders")
        with pytest.raises(NoRoute):
            await admin.delete_topic("orders")


async def test_a_topic_can_be_on_one_broker_only(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, brokers=2) as cluster, cluster.client() as client, client.admin() as admin:
        made = await admin.create_topic("small", queues=1, broker="broker-b")
        assert [on.broker for on in made.brokers] == ["broker-b"]
        assert [queue.broker_name for queue in await admin.topic_queues("small")] == ["broker-b"]
        assert "small" in await admin.topic_configs("broker-b")
        assert "small" not in await admin.topic_configs("broker-a")
        with pytest.raises(NotFound, match="no master of broker nobody: the name server knows broker-a"):
            await admin.create_topic("small", broker="nobody")


async def test_an_ordered_topic_has_its_queues_fixed_in_the_name_server(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, brokers=2) as cluster, cluster.client() as client, client.admin() as admin:
        made = await admin.create_topic("ledger", queues=2, ordered=True)
        assert made.order_config == "broker-a:2;broker-b:2"
        assert await admin.key_value("ORDER_TOPIC_CONFIG", "ledger") == "broker-a:2;broker-b:2"
        await admin.delete_topic("ledger")
        assert await admin.key_values("ORDER_TOPIC_CONFIG") == {}


async def test_stats_count_the_messages_of_every_queue(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_topic("orders", queues=2)
        queues = await admin.topic_queues("orders")
        async with client.producer("pg") as producer:
            for _ in range(3):
                receipt = await producer.send("orders", b"x", queue=queues[1])
        stats = await admin.topic_stats("orders")
        assert stats[queues[0]].count == 0
        assert stats[queues[1]] == QueueStats(0, 3, stats[queues[1]].updated_ms)
        assert stats[queues[1]].updated_ms > 0
        assert receipt.offset == 2
        assert await admin.topic_groups("orders") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "no good"}, "characters other than"),
        ({"topic": "T", "permissions": "x"}, "use r, w, rw or nothing"),
        ({"topic": "T", "kind": "ODD"}, "known are NORMAL"),
    ],
)
async def test_wrong_arguments_are_refused_before_anybody_is_asked(options: dict[str, str], message: str) -> None:
    from cometmq import Client

    async with Client("127.0.0.1:1") as client, client.admin() as admin:
        with pytest.raises(ConfigError, match=message):
            await admin.create_topic(**options)  # type: ignore[arg-type]


# Never fewer queues by accident


async def test_create_keeps_the_queues_and_permissions_that_a_topic_has(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_topic("orders", queues=2)
        await admin.alter_topic("orders", queues=6, permissions="r")
        again = await admin.create_topic("orders", queues=4, kind="NORMAL")
        assert [(on.read_queues, on.write_queues, on.permissions) for on in again.brokers] == [(6, 6, "r")]
        assert again.kind == "NORMAL"
        wider = await admin.create_topic("orders", queues=8, permissions="rw")
        assert [(on.read_queues, on.write_queues, on.permissions) for on in wider.brokers] == [(8, 8, "rw")]


async def test_alter_refuses_to_hide_queues(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_topic("orders", queues=4)
        with pytest.raises(ConfigError, match="cometmq topic narrow orders --queues 2"):
            await admin.alter_topic("orders", queues=2)
        with pytest.raises(ConfigError, match="cometmq topic narrow orders --queues 2"):
            await admin.alter_topic("orders", read_queues=2)
        assert (await admin.describe_topic("orders")).brokers[0].read_queues == 4
        draining = await admin.alter_topic("orders", queues=2, read_queues=4)
        assert (draining.brokers[0].write_queues, draining.brokers[0].read_queues) == (2, 4)


async def test_a_topic_is_narrowed_when_groups_have_read_what_would_be_hidden(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_topic("orders", queues=4)
        last = (await admin.topic_queues("orders"))[3]
        await admin.create_group("billing")
        await admin.commit_offset("billing", last, 0)
        async with client.producer("pg") as producer:
            for _ in range(3):
                await producer.send("orders", b"x", queue=last)
        plan = await admin.plan_narrowing("orders", queues=2)
        assert [(one.queue.queue_id, one.messages, dict(one.unread)) for one in plan] == [
            (2, 0, {}),
            (3, 3, {"billing": 3}),
        ]
        left = await admin.narrow_topic("orders", queues=2, drain_s=0)
        assert [one.queue for one in left] == [last]
        on = (await admin.describe_topic("orders")).brokers[0]
        assert (on.write_queues, on.read_queues) == (2, 4)
        await admin.commit_offset("billing", last, 3)
        assert await admin.narrow_topic("orders", queues=2, drain_s=0) == []
        on = (await admin.describe_topic("orders")).brokers[0]
        assert (on.write_queues, on.read_queues) == (2, 2)


async def test_messages_outside_the_readable_queues_are_counted(tmp_path: Path) -> None:
    """As a tool of RocketMQ's may leave a topic: narrower, with messages behind."""
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_topic("orders", queues=4)
        last = (await admin.topic_queues("orders"))[3]
        await admin.create_group("billing")
        await admin.commit_offset("billing", last, 0)
        async with client.producer("pg") as producer:
            await producer.send("orders", b"x", queue=last)
        (master,) = await admin.masters()
        config = await admin._get_topic(master, "orders")
        config.attributes, config.read_queue_nums, config.write_queue_nums = {}, 2, 2
        await admin._put_topic(master, config)
        assert (await admin.topic_stats("orders"))[last].count == 1
        assert (await admin.group_lag("billing", "orders"))[last].behind == 1


@pytest.mark.parametrize("argument", ["queues", "read_queues"])
async def test_a_topic_without_queues_is_refused(argument: str) -> None:
    from cometmq import Client

    async with Client("127.0.0.1:1") as client, client.admin() as admin:
        with pytest.raises(ConfigError, match=f"{argument} is 0: a topic needs at least one"):
            await admin.create_topic("T", **{argument: 0})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"{argument} is 0: a topic needs at least one"):
            await admin.alter_topic("T", **{argument: 0})  # type: ignore[arg-type]
