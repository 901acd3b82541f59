"""RocketMQ's admin tool prints the same with our name server as with RocketMQ's, command by command."""

from __future__ import annotations

import re

import pytest

from tests.compat.conftest import Pair
from tests.compat.harness import remoting
from tests.compat.harness.admin import Completed, MqAdmin
from tests.compat.harness.shell import JavaFailed

pytestmark = pytest.mark.interop


def both(mqadmin: MqAdmin, pair: Pair, *command: str, check: bool = True) -> list[Completed]:
    return [mqadmin(*command, namesrv=address, check=check) for address in pair.addresses]


def alike(mqadmin: MqAdmin, pair: Pair, *command: str, ordered: bool = True) -> list[str]:
    """Run a command against both name servers, compare what they make it print, and return that."""
    java, comet = (
        [line.replace(address, "NAMESRV") for line in done.lines]
        for done, address in zip(both(mqadmin, pair, *command), pair.addresses, strict=True)
    )
    assert java
    assert (comet if ordered else sorted(comet)) == (java if ordered else sorted(java))
    return comet


@pytest.mark.mission("NS-09")
@pytest.mark.parametrize("option", [[], ["-m"]], ids=["plain", "more"])
def test_cluster_list_shows_the_broker(mqadmin: MqAdmin, pair: Pair, option: list[str]) -> None:
    java, comet = both(mqadmin, pair, "clusterList", *option)
    assert comet.lines[0] == java.lines[0]
    # The other columns are measured by the broker and differ from second to second.
    named = ["Cluster Name", "Broker Name", "BID", "Addr", "Version", "ACTIVATED"]
    shown = [[{key: row.get(key) for key in named} for row in done.table()] for done in (java, comet)]
    assert shown[0] == shown[1]
    assert [row["Broker Name"] for row in shown[1]] == ["broker-a"]


@pytest.mark.mission("NS-09")
def test_topic_list_shows_the_topics(mqadmin: MqAdmin, pair: Pair, topic: str) -> None:
    remoting.create_topic(pair.broker.address, topic)
    assert {topic, "TBW102"} <= set(alike(mqadmin, pair, "topicList", ordered=False))
    with_cluster = alike(mqadmin, pair, "topicList", "-c", ordered=False)
    assert any(re.fullmatch(rf"compat\s+{topic}", line) for line in with_cluster)


def test_topic_route_and_cluster(mqadmin: MqAdmin, pair: Pair, topic: str) -> None:
    remoting.create_topic(pair.broker.address, topic, queues=3)
    assert any('"readQueueNums":3' in line for line in alike(mqadmin, pair, "topicRoute", "-t", topic))
    assert any(pair.broker.address in line for line in alike(mqadmin, pair, "topicRoute", "-t", topic, "-l"))
    assert alike(mqadmin, pair, "topicClusterList", "-t", topic) == ["compat"]


def test_the_route_of_an_unknown_topic_fails_alike(mqadmin: MqAdmin, pair: Pair) -> None:
    for address in pair.addresses:
        with pytest.raises(JavaFailed, match=r"CODE: 17  DESC: .*NoSuchTopic"):
            mqadmin("topicRoute", "-t", "NoSuchTopic", namesrv=address)


def test_key_value_settings(mqadmin: MqAdmin, pair: Pair) -> None:
    alike(mqadmin, pair, "updateKvConfig", "-s", "compat", "-k", "color", "-v", "blue")
    for address in pair.addresses:
        assert remoting.call(address, 101, {"namespace": "compat", "key": "color"}).ext["value"] == "blue"
        assert remoting.call(address, 219, {"namespace": "compat"}).json() == {"table": {"color": "blue"}}
    alike(mqadmin, pair, "deleteKvConfig", "-s", "compat", "-k", "color")
    for address in pair.addresses:
        assert remoting.call(address, 101, {"namespace": "compat", "key": "color"}).code == 22


@pytest.mark.mission("NS-10")
def test_write_permission_is_taken_and_given_back(mqadmin: MqAdmin, pair: Pair, topic: str) -> None:
    remoting.create_topic(pair.broker.address, topic)
    pair.broker.register()  # what comes by the clock after this has nothing new, and so changes no permission
    (wiped,) = alike(mqadmin, pair, "wipeWritePerm", "-b", "broker-a")
    assert re.fullmatch(r"wipe write perm of broker\[broker-a\] in name server\[NAMESRV\] OK, [1-9]\d*", wiped)
    assert any('"perm":4' in line for line in alike(mqadmin, pair, "topicRoute", "-t", topic))
    (added,) = alike(mqadmin, pair, "addWritePerm", "-b", "broker-a")
    assert re.fullmatch(r"add write perm of broker\[broker-a\] in name server\[NAMESRV\] OK, [1-9]\d*", added)
    assert any('"perm":6' in line for line in alike(mqadmin, pair, "topicRoute", "-t", topic))


@pytest.mark.mission("NS-11")
def test_order_settings_reach_the_route_when_enabled(mqadmin: MqAdmin, pair: Pair, topic: str) -> None:
    remoting.create_topic(pair.broker.address, topic)
    alike(mqadmin, pair, "updateOrderConf", "-m", "put", "-t", topic, "-v", "broker-a:4")
    (got,) = alike(mqadmin, pair, "updateOrderConf", "-m", "get", "-t", topic)
    assert "orderConf=[broker-a:4]" in got
    assert not any("orderTopicConf" in line for line in alike(mqadmin, pair, "topicRoute", "-t", topic))
    alike(mqadmin, pair, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    try:
        java, comet = (remoting.route(address, topic) for address in pair.addresses)
        assert java.json()["orderTopicConf"] == "broker-a:4"
        assert comet == java
    finally:
        alike(mqadmin, pair, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    alike(mqadmin, pair, "updateOrderConf", "-m", "delete", "-t", topic)


def settings(done: Completed) -> dict[str, str]:
    pairs = (line.partition("=") for line in done.lines if not line.startswith("==="))
    return {key.strip(): value.strip() for key, _, value in pairs}


# Values that are of the process, not of the protocol: where it listens and where it keeps its files. We need no home.
OWN = {"listenPort", "kvConfigPath", "configStorePath", "rocketmqHome"}


@pytest.mark.mission("NS-11")
def test_settings_are_listed_alike(mqadmin: MqAdmin, pair: Pair) -> None:
    java, comet = (settings(done) for done in both(mqadmin, pair, "getNamesrvConfig"))
    assert len(java) > 20
    assert {"listenPort", "kvConfigPath", "configStorePath"} <= comet.keys()
    for of_process in OWN:
        java.pop(of_process)
    assert {key: comet.get(key) for key in java} == java


@pytest.mark.mission("NS-11")
def test_a_path_is_refused_over_the_wire(mqadmin: MqAdmin, pair: Pair) -> None:
    before = [settings(done) for done in both(mqadmin, pair, "getNamesrvConfig")]
    for address in pair.addresses:
        with pytest.raises(JavaFailed, match=r"CODE: 16"):
            mqadmin("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "elsewhere", namesrv=address)
    assert [settings(done) for done in both(mqadmin, pair, "getNamesrvConfig")] == before


@pytest.mark.mission("NS-09")
def test_a_topic_deleted_by_the_admin_tool_is_gone(mqadmin: MqAdmin, pair: Pair, topic: str) -> None:
    for address in pair.addresses:
        remoting.create_topic(pair.broker.address, topic)
        done = mqadmin("deleteTopic", "-c", "compat", "-t", topic, namesrv=address)
        assert done.lines[-1] == f"delete topic [{topic}] from NameServer success."
        assert topic not in mqadmin("topicList", namesrv=address).lines
