"""What a broker shows after traffic that is known message by message, read over HTTP by Prometheus' parser."""

import asyncio
import random
from pathlib import Path

import pytest

from cometmq import StartFrom, Tx
from cometmq.broker.metrics.families import ROWS
from cometmq.clock import ManualClock
from cometmq.settings import SettingError
from cometmq.store.fake_disk import FakeDisk
from cometmq.testing import Cluster
from cometmq.wire.codes import Request
from tests.support.brokers import Peer, add_topic, running_broker, send_request
from tests.support.scraping import Scrape, fetch, raw, scrape

LONG = random.Random(1).randbytes(5000)  # cannot be compressed
PROM: dict[str, str | int | float | bool] = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}


def port_of(cluster: Cluster) -> int:
    return cluster.broker.server.seen.port


async def traffic(cluster: Cluster) -> Scrape:
    """20 singles, a batch of 20, 3 of 5,000 bytes, 10 ordered; 5 delayed, 3 on the wheel; 11 transactions."""
    async with cluster.client() as client:
        async with client.producer("pg") as producer:
            for number in range(20):
                await producer.send("T", b"small %d" % number)
            await producer.send_many("T", [b"batch %d" % number for number in range(20)])
            for _ in range(3):
                await producer.send("T", LONG)
            for _ in range(10):
                await producer.send("T", b"ordered", properties={"__SHARDINGKEY": "k"})
            for _ in range(5):
                await producer.send("T", b"delayed", delay_level=1)
            for _ in range(3):
                await producer.send("T", b"late", delay=3600)
        async with client.transaction_producer("tpg", check=lambda message: Tx.UNKNOWN) as producer:
            for number in range(11):
                async with producer.begin("TX", b"half") as transaction:
                    if number >= 9:
                        transaction.unknown()
                    elif number >= 6:
                        transaction.rollback()
        async with client.consumer("cg", "T", start=StartFrom.FIRST) as consumer:
            seen = 0
            async for _ in consumer:
                seen += 1
                if seen == 53:
                    break
            await cluster.advance(2)
            return await scrape(port_of(cluster))


@pytest.mark.mission("ME-01")
async def test_known_traffic_gives_rocketmqs_families_with_its_labels_and_counts() -> None:
    async with Cluster(topics=["T", "TX"], settings=PROM) as cluster:
        found = await traffic(cluster)
        normal = {"topic": "T", "message_type": "normal", "is_system": "false"}
        assert found.value("rocketmq_messages_in_total", **normal) == 43
        assert found.value("rocketmq_messages_in_total", topic="T", message_type="fifo") == 10
        delayed = {"topic": "SCHEDULE_TOPIC_XXXX", "message_type": "delay", "is_system": "true"}
        assert found.value("rocketmq_messages_in_total", **delayed) == 5
        assert found.value("rocketmq_messages_in_total", topic="T", message_type="delay") == 5, "once more when due"
        assert found.value("rocketmq_messages_in_total", topic="rmq_sys_wheel_timer", message_type="delay") == 3
        half = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "message_type": "transaction", "is_system": "true"}
        assert found.value("rocketmq_messages_in_total", **half) == 11
        assert not found.values("rocketmq_messages_in_total", topic="TX"), "a commit adds nothing"
        # A batch is one observation of its average; only the three long ones are above a kilobyte.
        assert found.value("rocketmq_message_size_count", **normal) == 24
        assert found.value("rocketmq_message_size_bucket", le="1024.0", **normal) == 21
        assert found.value("rocketmq_message_size_bucket", le="4096.0", **normal) == 21
        assert found.value("rocketmq_message_size_bucket", le="524288.0", **normal) == 24
        assert found.value("rocketmq_message_size_sum", **normal) < found.value(
            "rocketmq_throughput_in_total", **normal
        )
        assert found.value("rocketmq_commit_messages_total", topic="TX") == 6
        assert found.value("rocketmq_rollback_messages_total", topic="TX") == 3
        assert found.value("rocketmq_finish_message_latency_milliseconds_count", topic="TX") == 6
        assert found.value("rocketmq_half_messages", topic="TX") == 2
        assert found.value("rocketmq_timer_enqueue_total", topic="T") == 3
        assert found.value("rocketmq_timing_messages", topic="T") == 3
        assert found.value("rocketmq_timer_message_snapshot", timer_bound_s="3600") == 3
        assert found.value("rocketmq_delay_message_latency_seconds_sum", topic="T") == 3 * 3599
        out = found.value("rocketmq_messages_out_total", consumer_group="cg", topic="T", is_system="false")
        assert out >= 53
        connected = {"consumer_group": "cg", "consume_mode": "push", "language": "python"}
        assert found.value("rocketmq_consumer_connections", protocol_type="remoting", **connected) == 1
        sends = {"request_code": "send_message_v2", "response_code": "success", "result": "success"}
        assert found.value("rocketmq_rpc_latency_milliseconds_count", is_long_polling="false", **sends) == 52
        common = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
        assert found.value("rocketmq_broker_permission", otel_scope_name="broker-meter", **common) == 6


async def test_every_family_of_the_table_that_has_something_to_say_is_there_in_both_formats() -> None:
    async with Cluster(topics=["T", "TX"], settings=PROM | {"cometmqQueueLagMetrics": True}) as cluster:
        found = await traffic(cluster)
        missing = {row.name for row in ROWS} - {name.removesuffix("_info") for name in found.families}
        assert missing == {
            "rocketmq_send_to_dlq_messages",
            "rocketmq_timer_dequeue",
            "rocketmq_consumer_group_create_execution_time_milliseconds",
            "cometmq_replica_behind_bytes",
        }
        opened = await scrape(port_of(cluster), is_open=True)
        infos = {"target", "target_info", "cometmq_build", "cometmq_build_info"}
        assert (await scrape(port_of(cluster))).families.keys() ^ opened.families.keys() <= infos
        only = await fetch(port_of(cluster), "/metrics?name[]=rocketmq_messages_in_total")
        assert set(Scrape(only[2].decode()).families) == {"rocketmq_messages_in"}


@pytest.mark.mission("ME-02")
async def test_lag_is_what_is_stored_and_not_committed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, None, FakeDisk(), **PROM) as broker, Peer.of(broker) as peer:
        add_topic(broker, "T", 1)
        for _ in range(30):
            await peer.ask(send_request("T", b"x"))
        await peer.heartbeat("cg", topics={"T": "*"})
        lag = {"consumer_group": "cg", "topic": "T", "is_retry": "false", "is_system": "false"}
        found = await scrape(broker.seen.port)
        assert found.value("rocketmq_consumer_lag_messages", **lag) == 0, "a group that never committed shows no lag"
        broker.tables.offsets.commit("cg", "T", 0, 10, "test")
        broker.tables.offsets.pull_commit("cg", "T", 0, 25)
        found = await scrape(broker.seen.port)
        assert found.value("rocketmq_consumer_lag_messages", **lag) == 20
        assert found.value("rocketmq_consumer_inflight_messages", **lag) == 15
        assert found.value("rocketmq_consumer_ready_messages", **lag) == 5
        assert found.value("rocketmq_consumer_lag_latency_milliseconds", **lag) >= 0
        broker.tables.offsets.commit("cg", "T", 0, 30, "test")
        found = await scrape(broker.seen.port)
        assert found.value("rocketmq_consumer_lag_messages", **lag) == 0
        assert found.value("rocketmq_consumer_lag_latency_milliseconds", **lag) == 0


async def test_what_is_deleted_is_gone_at_the_next_scrape(tmp_path: Path) -> None:
    async with running_broker(tmp_path, None, FakeDisk(), **PROM) as broker, Peer.of(broker) as peer:
        add_topic(broker, "T", 1)
        await peer.ask(send_request("T", b"x"))
        assert (await scrape(broker.seen.port)).values("rocketmq_messages_in_total", topic="T")
        await peer.call(Request.DELETE_TOPIC_IN_BROKER, topic="T")
        assert not (await scrape(broker.seen.port)).values("rocketmq_messages_in_total", topic="T")


async def test_series_beyond_the_limit_are_added_up_in_one(tmp_path: Path) -> None:
    settings = {**PROM, "metricsOtelCardinalityLimit": 2}
    async with running_broker(tmp_path, None, FakeDisk(), **settings) as broker, Peer.of(broker) as peer:
        for topic in ("A", "B", "C", "D"):
            add_topic(broker, topic, 1)
            await peer.ask(send_request(topic, b"x"))
        found = await scrape(broker.seen.port)
        assert len(found.values("rocketmq_messages_in_total")) == 3
        assert found.value("rocketmq_messages_in_total", otel_metric_overflow="true") == 2
        assert found.value("rocketmq_message_size_count", otel_metric_overflow="true") == 2


async def test_groups_of_families_can_be_left_out_and_labels_added(tmp_path: Path) -> None:
    settings = {
        **PROM,
        "enableRequestMetrics": False,
        "enableRemotingMetrics": False,
        "metricsLabel": "zone:a,bad,x:y:z",
    }
    async with running_broker(tmp_path, None, FakeDisk(), **settings) as broker, Peer.of(broker) as peer:
        add_topic(broker, "T", 1)
        await peer.ask(send_request("T", b"x"))
        found = await scrape(broker.seen.port)
        assert not {"rocketmq_messages_in", "rocketmq_rpc_latency_milliseconds"} & found.families.keys()
        assert found.value("rocketmq_topic_number", zone="a") > 0


async def test_a_code_that_nobody_knows_is_counted_by_its_number_and_a_thousand_of_them_as_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path, None, FakeDisk(), **PROM) as broker, Peer.of(broker) as peer:
        for code in range(20_000, 21_200):
            await peer.call(code)
        found = await scrape(broker.seen.port)
        rows = found.values("rocketmq_rpc_latency_milliseconds_count")
        assert found.value("rocketmq_rpc_latency_milliseconds_count", request_code="20000") == 1
        assert len(rows) <= 1_002
        assert found.value("rocketmq_rpc_latency_milliseconds_count", request_code="other") == 200


async def test_without_the_setting_there_is_no_port_and_requests_are_not_timed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, None, FakeDisk()) as broker:
        assert not broker.seen.is_served
        assert broker.server.endpoint.meter is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metricsExporterType": "FOO"}, "metricsExporterType=FOO is not one of DISABLE"),
        ({"metricsExporterType": "OTLP_GRPC"}, "PROM"),
    ],
)
async def test_a_type_that_cannot_be_is_refused_at_the_start(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        async with running_broker(tmp_path, None, FakeDisk(), **settings):
            pass


async def test_types_can_be_numbers_and_log_writes_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    caplog.set_level("INFO", "cometmq.net.seen")
    async with running_broker(tmp_path, clock, FakeDisk(), metricsExporterType=3) as broker:
        assert not broker.seen.is_served
        clock.advance(10)
        while "metrics {" not in caplog.text:  # noqa: ASYNC110 - the line is made by a thread
            await asyncio.sleep(0.001)
    assert '"rocketmq_broker_permission":{' in caplog.text


async def test_names_from_the_wire_stay_values(tmp_path: Path) -> None:
    settings = {**PROM, "cometmqQueueLagMetrics": True}
    async with running_broker(tmp_path, None, FakeDisk(), **settings) as broker:
        add_topic(broker, "T", 1)
        broker.tables.offsets.commit('g"} 1\n# EOF', "T", 0, 0, "test")
        found = await scrape(broker.seen.port)
        assert found.values("cometmq_consumer_lag_messages", consumer_group='g"} 1\n# EOF')
        assert (await raw(broker.seen.port, b"DELETE /metrics HTTP/1.1\r\n\r\n"))[0] == 405
