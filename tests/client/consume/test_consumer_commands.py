"""What brokers ask of consumers: offsets, running info, resets, direct consumption; and what heartbeats tell them."""

import asyncio
from pathlib import Path

import pytest

from cometmq import Message, MessageQueue, Outcome, Retry
from cometmq.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerList,
    ConsumerRunningInfo,
    ConsumerStatus,
    HeartbeatData,
)
from cometmq.wire.codes import Request
from tests.support.brokers import Peer, stored
from tests.support.clusters import real_cluster
from tests.support.consuming import Asked, Got, cache_of, committed, member_of, quick, send
from tests.support.net import until

QUEUE = MessageQueue("broker-a", 0, "T")


@pytest.mark.mission("CG-01")
async def test_a_heartbeat_registers_the_consumer_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    asked = Asked()
    async with (
        real_cluster(tmp_path, "T") as cluster,
        cluster.client(hooks=[asked]) as client,
        Peer.of(cluster.broker) as peer,
    ):
        app = quick(client)
        app.subscribe("T", Got().take, tag="A || B")
        async with app:
            beats = [command for _, command in asked.commands if command.code == Request.HEART_BEAT]
            data = HeartbeatData.decode(beats[-1].body)
            (consumer,) = data.consumer_data_set
            assert data.client_id == client.client_id
            assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
            assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
            assert {it.topic: it.tags_set for it in consumer.subscription_data_set} == {
                "T": {"A", "B"},
                "%RETRY%cg": set(),
            }
            answer = await peer.call(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="cg")
            assert ConsumerList.decode(answer.body).consumer_id_list == [client.client_id]
            answer = await peer.call(Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="cg")
            connections = ConsumerConnection.decode(answer.body)
            (connection,) = connections.connection_set
            assert (connection.client_id, connection.language) == (client.client_id, "PYTHON")
            assert connections.subscription_table["T"].sub_string == "A || B"


async def test_running_info_tells_queues_settings_and_figures(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "T", "U", queues=1) as cluster,
        cluster.client() as client,
        Peer.of(cluster.broker) as peer,
    ):
        got = Got()
        app = quick(client, concurrency=7)
        app.subscribe("T", got.take)
        app.subscribe("U", got.take, ordered=True)
        async with app:
            await send(client, "T", 3)
            await got.count(3)
            got.gate.clear()
            await send(client, "T", 2)
            await until(lambda: cache_of(app).count == 2)
            answer = await peer.call(
                Request.GET_CONSUMER_RUNNING_INFO,
                consumerGroup="cg", clientId=client.client_id, jstackEnable=True,
            )  # fmt: skip
            info = ConsumerRunningInfo.decode(answer.body)
            table = info.mq_table[QUEUE]
            assert (table.cached_msg_count, table.cached_msg_min_offset, table.cached_msg_max_offset) == (2, 3, 4)
            assert (table.commit_offset, table.dropped, table.locked) == (3, False, False)
            assert info.mq_table[MessageQueue("broker-a", 0, "U")].locked
            assert info.properties["PROP_CONSUMEORDERLY"] == "true"
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
            assert info.properties["PROP_NAMESERVER_ADDR"] == f"{cluster.namesrv};"
            assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 1_700_000_000_000
            assert info.properties["pullBatchSize"] == "32"
            assert info.status_table["T"].consume_ok_tps > 0
            assert {it.topic for it in info.subscription_set} == {"T", "U", "%RETRY%cg"}
            assert "task" in (info.jstack or "")
            got.gate.set()


async def test_the_status_of_a_consumer_is_its_offsets(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "T", queues=1) as cluster,
        cluster.client() as client,
        Peer.of(cluster.broker) as peer,
    ):
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take)
        async with app:
            await send(client, "T", 3)
            await until(lambda: member_of(app).offsets.read(QUEUE) == 3)
            answer = await peer.call(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="cg")
            status = ConsumerStatus.decode(answer.body)
            assert status.consumer_table == {client.client_id: {QUEUE: 3}}


async def test_a_reset_takes_the_queue_anew_and_late_results_do_not_matter(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "T", queues=1, useServerSideResetOffset=False) as cluster,
        cluster.client() as client,
        Peer.of(cluster.broker) as peer,
    ):
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take)
        async with app:
            await send(client, "T", 5)
            await got.count(5)
            got.gate.clear()
            await send(client, "T", 2)
            await until(lambda: got.running == 2)
            before = cache_of(app)
            await peer.call(
                Request.INVOKE_BROKER_TO_RESET_OFFSET,
                topic="T", group="cg", timestamp=0, isForce=True, queueId=-1, offset=-1,
            )  # fmt: skip
            await until(lambda: QUEUE in app.queues and cache_of(app) is not before)
            got.gate.set()
            await got.count(5 + 2 + 7)
            assert [message.offset for message in got.messages[5:]].count(0) == 1
            await until(lambda: committed(cluster.broker) == 7)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("fine", "CR_SUCCESS"),
        ("later", "CR_LATER"),
        ("raise", "CR_THROW_EXCEPTION"),
        ("null", "CR_RETURN_NULL"),
        ("commit", "CR_COMMIT"),
        ("rollback", "CR_ROLLBACK"),
    ],
)
async def test_a_message_can_be_consumed_directly(tmp_path: Path, text: str, result: str) -> None:
    async with (
        real_cluster(tmp_path, "T", queues=1) as cluster,
        cluster.client() as client,
        Peer.of(cluster.broker) as peer,
    ):
        handled: list[str] = []
        app = quick(client)

        @app.on("T", tag="never", ordered=True)
        async def handle(text: str, message: Message[bytes]) -> Outcome:
            handled.append(text)
            if text == "raise":
                raise ValueError("no")
            if text == "later":
                raise Retry
            results = {"commit": Outcome.COMMIT, "rollback": Outcome.ROLLBACK, "fine": Outcome.SUCCESS}
            return results.get(text)  # type: ignore[return-value]  # None says nothing

        async with client.producer("pg") as producer:
            receipt = await producer.send("T", text.encode(), queue=QUEUE)
        async with app:
            answer = await peer.call(
                Request.CONSUME_MESSAGE_DIRECTLY,
                consumerGroup="cg", clientId=client.client_id, msgId=receipt.offset_id, topic="T",
            )  # fmt: skip
            told = ConsumeMessageDirectlyResult.decode(answer.body)
            assert (told.consume_result, told.order, told.auto_commit) == (result, True, True)
            assert ("ValueError" in (told.remark or "")) == (text == "raise")
            assert stored(cluster.broker, "%RETRY%cg") == []
            assert handled == [text]


async def test_commands_for_a_group_or_topic_that_is_not_here_say_so(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        app = quick(client)
        app.subscribe("T", Got().take)
        async with app:
            await until(lambda: QUEUE in app.queues)
            await send(client, "T", 1)
            (record,) = stored(cluster.broker, "T")
            record.topic = "Elsewhere"
            told = await member_of(app).consume_directly(record, "broker-a")
            assert told.consume_result == "CR_THROW_EXCEPTION"
            assert "Elsewhere" in (told.remark or "")
            await member_of(app).on_reset("Elsewhere", {QUEUE: 5})
            await asyncio.sleep(0)
            assert cache_of(app).is_owned
