"""What RocketMQ's admin tool says about our broker and about RocketMQ's: figures, messages by key and id, settings."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.compat.conftest import Cluster, Clusters
from tests.compat.harness import remoting
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.processes import wait_until
from tests.compat.harness.remoting import Answer

GET_RUNTIME_INFO = 28

pytestmark = pytest.mark.interop


def put(broker: str, topic: str, body: bytes, properties: str = "", queue_id: int = 0) -> Answer:
    ext: dict[str, object] = {
        "producerGroup": "compat",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1000),
        "flag": 0,
        "properties": properties,
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }
    answer = remoting.call(broker, 10, ext, body)
    assert answer.code == 0, answer.remark
    return answer


def broker_status(mqadmin: MqAdmin, cluster: Cluster) -> dict[str, str]:
    # RocketMQ's broker cannot say before its statistics have a first sample, a second after its start.
    address = cluster.broker.address
    wait_until(lambda: remoting.call(address, GET_RUNTIME_INFO).code == 0, "a broker that tells its figures")
    lines = mqadmin("brokerStatus", "-b", cluster.broker.address, namesrv=cluster.namesrv.address).lines
    pairs = [line.partition(":") for line in lines]
    return {key.strip(): value.strip() for key, _, value in pairs}


PUT_FIGURES = (
    "putMessageTimesTotal", "msgPutTotalTodayNow", "putMessageSizeTotal", "commitLogMaxOffset", "putMessageFailedTimes",
)  # fmt: skip


@pytest.mark.mission("MO-01")
def test_broker_status_prints_what_was_done(mqadmin: MqAdmin, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=2)
    put(cluster.broker.address, topic, b"first")  # RocketMQ says 1 for none
    after = broker_status(mqadmin, cluster)
    # What another test has left to come later, or the end of a file, may be between two looks.
    for _ in range(3):
        before = after
        for number in range(7):
            put(cluster.broker.address, topic, b"x" * 1000, queue_id=number % 2)
        after = broker_status(mqadmin, cluster)
        grown = {key: int(after[key]) - int(before[key]) for key in PUT_FIGURES}
        if grown["putMessageTimesTotal"] == 7 and grown["putMessageSizeTotal"] == grown["commitLogMaxOffset"]:
            break
    assert grown["putMessageTimesTotal"] == grown["msgPutTotalTodayNow"] == 7
    assert grown["putMessageSizeTotal"] == grown["commitLogMaxOffset"] > 7 * 1000
    assert grown["putMessageFailedTimes"] == 0
    assert re.fullmatch(r"\[ 0 days, \d+ hours, \d+ minutes, \d+ seconds ]", after["runtime"])
    assert after["brokerVersionDesc"] == "V5_5_0"
    assert int(after["earliestMessageTimeStamp"]) <= time.time() * 1000


@pytest.mark.mission("MO-01")
def test_our_broker_has_every_figure_that_rocketmq_has(mqadmin: MqAdmin, clusters: Clusters) -> None:
    theirs, ours = (broker_status(mqadmin, cluster) for cluster in clusters.both)
    by_path = "commitLogDiskRatio_"
    assert {key for key in theirs if not key.startswith(by_path)} <= ours.keys()
    assert any(key.startswith(by_path) for key in ours)


def test_the_cluster_list_can_be_printed(mqadmin: MqAdmin, cluster: Cluster) -> None:
    for option in ((), ("-m",)):
        rows = mqadmin("clusterList", *option, namesrv=cluster.namesrv.address).table()
        assert [row["Broker Name"] for row in rows] == ["broker-a"]


@pytest.mark.mission("RD-06")
def test_a_message_is_found_by_key_by_unique_key_and_by_id(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    unique = f"7F0000010001{int(time.time()):08X}{'0' * 12}"
    for number in range(3):
        properties = f"KEYS\x01order{number}\x02UNIQ_KEY\x01{unique[:-1]}{number}\x02"
        answer = put(cluster.broker.address, topic, b"%d" % number, properties)
    cluster.broker.await_dispatch()
    namesrv = cluster.namesrv.address
    mqadmin = MqAdmin(tmp_path)  # a fresh one: queryMsgByUniqueKey remembers the name server of its first use
    rows = mqadmin("queryMsgByKey", "-t", topic, "-k", "order1", namesrv=namesrv).table()
    places = [(row["Message ID"], row["QID"], row["Offset"].split()[0]) for row in rows]
    assert places == [(f"{unique[:-1]}1", "0", "1")]
    for command, message_id in (("queryMsgByUniqueKey", f"{unique[:-1]}2"), ("queryMsgById", answer.ext["msgId"])):
        text = mqadmin(command, "-t", topic, "-i", message_id, namesrv=namesrv).stdout
        assert re.search(r"Keys: +\[order2]", text), command
        assert re.search(r"Queue Offset: +2\b", text), command
    mqadmin.close()


def test_nothing_is_found_by_a_key_that_no_message_has(mqadmin: MqAdmin, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    ext: dict[str, object] = {"topic": topic, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}
    assert remoting.call(cluster.broker.address, 12, ext).code == 22
    far = remoting.call(cluster.broker.address, 33, {"offset": 2**50})
    middle = remoting.call(cluster.broker.address, 33, {"offset": 3})
    assert (far.code, middle.code) == (1, 1)


def test_settings_can_be_read_and_changed(mqadmin: MqAdmin, cluster: Cluster) -> None:
    address, namesrv = cluster.broker.address, cluster.namesrv.address

    def trace_on() -> str:
        # A setting is called timerSkipUnknownError: not a failure of the tool.
        lines = mqadmin("getBrokerConfig", "-b", address, namesrv=namesrv, check=False).lines
        return next(line.partition("=")[2].strip() for line in lines if line.startswith("traceOn "))

    assert trace_on() == "true"
    try:
        mqadmin("updateBrokerConfig", "-b", address, "-k", "traceOn", "-v", "false", namesrv=namesrv)
        assert trace_on() == "false"
    finally:
        mqadmin("updateBrokerConfig", "-b", address, "-k", "traceOn", "-v", "true", namesrv=namesrv)
    assert trace_on() == "true"
    assert remoting.call(address, 25, body=b"brokerConfigPath=/tmp/x").code == 16


def test_queues_of_a_topic_are_shown_alike(mqadmin: MqAdmin, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=2)
    for tag in ("A", "B"):
        put(cluster.broker.address, topic, b"x", f"TAGS\x01{tag}\x02", queue_id=1)
    cluster.broker.await_dispatch()
    namesrv = cluster.namesrv.address
    rows = mqadmin("topicStatus", "-t", topic, namesrv=namesrv).table()
    bounds = [(row["QID"], row["Min Offset"], row["Max Offset"]) for row in rows if row.get("Max Offset")]
    assert bounds == [("0", "0", "0"), ("1", "0", "2")]
    text = mqadmin("queryCq", "-t", topic, "-q", 1, "-i", 0, "-c", 5, namesrv=namesrv).stdout
    assert re.search(r"max: 2, min: 0", text)
    assert re.findall(r"tagsCode=(\d+)", text) == ["65", "66"]
