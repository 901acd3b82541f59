"""Checks commands about servers: cluster, config, rtt, bench, and RocketMQ's names for all of it."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cometmq import settings_file
from cometmq.cli.mqadmin import ALIASES, translate
from cometmq.testing import SyncCluster
from tests.cli.conftest import Comet


def test_the_list_has_every_broker(comet: Comet, cluster: SyncCluster) -> None:
    found = comet.good("cluster", "list", "-o", "json").json
    assert [(row["broker"], row["address"], row["state"]) for row in found] == [
        ("broker-a", cluster.brokers[0].address, "up"),
        ("broker-b", cluster.brokers[1].address, "up"),
    ]
    assert {"cluster", "id", "version", "in_tps", "out_tps", "disk", "messages_today", "wait_ms"} <= set(found[0])
    assert "UNFLUSHED" in comet.good("cluster", "list", "-o", "wide").out


def test_health_is_an_exit_code(comet: Comet, monkeypatch: pytest.MonkeyPatch, cluster: SyncCluster) -> None:
    found = comet.good("cluster", "health", "-o", "json").json
    servers = [one for one in found if one["what"].startswith(("name server", "broker"))]
    assert [one["state"] for one in servers] == ["ok"] * 3
    assert "fail" not in {one["state"] for one in found}
    monkeypatch.setenv("COMETMQ_NAMESRV", f"{cluster.namesrv};127.0.0.1:1")
    ran = comet("cluster", "health", "-o", "json")
    assert ran.code == 1
    assert [one["state"] for one in ran.json].count("fail") == 1


def test_a_broker_that_does_not_answer_is_down_and_named(lonely: Comet) -> None:
    """A name server keeps a broker that was killed until it misses its heartbeats."""
    with SyncCluster(brokers=1) as small:
        small.broker.kill()
        ran = lonely("cluster", "health", "--namesrv", small.namesrv, "-o", "json")
        states = {one["what"]: one for one in ran.json}
        listed = lonely("cluster", "list", "--namesrv", small.namesrv, "-o", "json")
    assert ran.code == 1
    if "broker broker-a 0" in states:
        assert states["broker broker-a 0"]["state"] == "fail"
        if listed.code != 4:  # it was not noticed between the two
            assert [row["state"] for row in listed.json] == ["down"]
    else:  # the name server noticed at once that the connection broke
        assert states["brokers"]["state"] == "fail"
        assert (listed.code, listed.out) == (4, "")


@pytest.mark.mission("DU-04")
def test_health_says_which_promise_is_not_kept(lonely: Comet) -> None:
    with SyncCluster(topics=["T"], settings={"brokerRole": "SYNC_MASTER"}) as small:
        ran = lonely("cluster", "health", "--namesrv", small.namesrv, "-o", "json")
    assert ran.code == 1
    (broken,) = [one for one in ran.json if one["state"] == "fail"]
    assert (broken["what"], broken["found"]) == (
        "broker broker-a 0", "copies: 1 of 2 that an acknowledgement promises",
    )  # fmt: skip


def test_health_says_what_a_master_that_is_gone_costs(lonely: Comet, tmp_path: Path) -> None:
    replica = {"brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": "1"}
    with SyncCluster(topics=["T"]) as small:
        settings = {**replica, "namesrvAddr": small.namesrv, "listenPort": "0", "storePathRootDir": str(tmp_path)}
        command = [sys.executable, "-m", "cometmq.cli.main", "broker", "--log-level", "error"]
        command += [f"--set={key}={value}" for key, value in settings.items()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("ready ")
                asked = ("cluster", "health", "--namesrv", small.namesrv, "-o", "json")
                whole = lonely(*asked)
                while not any(one["what"] == "replica broker-a 1" for one in whole.json):
                    whole = lonely(*asked)
                assert [one["state"] for one in whole.json if one["state"] == "fail"] == [], whole.out
                small.broker.stop()
                ran = lonely(*asked)
                sent = lonely("send", "T", "x", "--namesrv", small.namesrv)
            finally:
                process.terminate()
    assert sent.code == 4
    assert "the master of broker-a is down, only replicas are registered; start it" in sent.err
    states = {one["what"]: (one["state"], one["found"]) for one in ran.json}
    assert ran.code == 1
    assert states["master of broker-a"] == ("fail", "gone, replicas 1 remain: nobody can send")
    assert states["topic T"] == ("fail", "cannot be sent to: no master of broker-a answers")


def test_a_topic_that_somebody_closed_is_a_warning(lonely: Comet) -> None:
    with SyncCluster(topics=["T"]) as small:
        lonely.good("topic", "alter", "T", "--permissions", "r", "--namesrv", small.namesrv)
        ran = lonely.good("cluster", "health", "--namesrv", small.namesrv, "-o", "json")
    assert [(one["what"], one["state"]) for one in ran.json if one["state"] != "ok"] == [("topic T", "warn")]


def test_top_draws_as_many_pictures_as_asked(comet: Comet) -> None:
    pictures = comet.good("cluster", "top", "-n", "2", "--every", "10ms", "-o", "json").lines
    assert len(pictures) == 2
    assert [row["broker"] for row in pictures[0]["brokers"]] == ["broker-a", "broker-b"]
    assert {"in_tps", "out_tps", "wait_ms", "disk", "memory", "memory_bytes"} <= set(pictures[0]["brokers"][0])
    assert all(row["memory_bytes"] > 1 << 20 for row in pictures[0]["brokers"])
    assert "MEMORY" in comet.good("cluster", "top", "-n", "1").out


@pytest.mark.mission("DU-03")
def test_a_setting_is_changed_in_one_line_of_the_file_of_the_operator(lonely: Comet, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    written = "# ours\nfileReservedTime = 72  \n\n# at night\ndeleteWhen=04\n"
    conf.write_text(written)
    with SyncCluster(settings={"brokerConfigPath": str(conf), "fileReservedTime": 72}) as small:
        done = lonely.good("config", "set", "fileReservedTime=48", "--yes", "--namesrv", small.namesrv)
    assert f"keeps it in {conf}" in done.err
    assert conf.read_text() == written.replace("72  ", "48")
    assert [one.read_text() for one in settings_file.backups(conf)] == [written]
    with SyncCluster() as small:
        done = lonely.good("config", "set", "fileReservedTime=48", "--yes", "--namesrv", small.namesrv)
    assert "the change is only in its memory" in done.err


@pytest.mark.mission("DU-04")
def test_a_send_that_no_replica_has_ends_with_a_code_of_its_own(lonely: Comet) -> None:
    with SyncCluster(topics=["T"], settings={"brokerRole": "SYNC_MASTER"}) as small:
        ran = lonely("send", "T", "a", "b", "--namesrv", small.namesrv)
    assert ran.code == 8
    assert [line.split()[0] for line in ran.out.splitlines()] == ["SLAVE_NOT_AVAILABLE"] * 2
    assert "2 stored but not confirmed: SLAVE_NOT_AVAILABLE; the broker promises copies" in ran.err


def test_figures_and_writes_of_one_broker(comet: Comet) -> None:
    assert comet.good("cluster", "figures", "broker-a", "-o", "json").json["brokerVersionDesc"]
    assert "nothing was changed" in comet.good("cluster", "close-writes", "broker-b").err
    closed = comet.good("cluster", "close-writes", "broker-b", "--yes", "-o", "json").json
    assert (closed["broker"], closed["writes"]) == ("broker-b", "closed")
    assert closed["topics"] > 0
    assert comet.good("cluster", "open-writes", "broker-b", "-o", "json").json["writes"] == "open"
    done = comet.good("cluster", "clean", "expired-files", "--yes", "-o", "json").json
    assert done["brokers"] == ["broker-a", "broker-b"]


def test_settings_are_read_changed_and_read_back(comet: Comet) -> None:
    at = ("--broker", "broker-a", "-o", "json")
    found = comet.good("config", "get", "fileReservedTime", "flushDiskType", *at).json
    assert {row["key"]: row["value"] for row in found} == {"fileReservedTime": "72", "flushDiskType": "ASYNC_FLUSH"}
    plan = comet.good("config", "set", "fileReservedTime=48", *at)
    assert [(row["before"], row["after"]) for row in plan.json] == [("72", "48")]
    assert comet.good("config", "get", "fileReservedTime", *at).json[0]["value"] == "72"
    done = comet.good("config", "set", "fileReservedTime=48", "--broker", "broker-a", "--yes")
    assert "read back as planned" in done.err
    comet.good("config", "set", "fileReservedTime=72", "--broker", "broker-a", "--yes")
    assert len(comet.good("config", "get", "-o", "json").json) > 200
    assert comet.good("config", "get", "listenPort", "--nameserver", "-o", "json").json[0]["key"] == "listenPort"


def test_settings_that_are_not_there_or_cannot_change_are_one_line(comet: Comet) -> None:
    for arguments, code in (
        (("config", "get", "noSuchKey"), 6),
        (("config", "set", "noSuchKey=1", "--yes"), 6),
        (("config", "set", "storePathRootDir=/tmp", "--broker", "broker-a", "--yes"), 7),
        (("config", "set", "fileReservedTime", "--yes"), 2),
    ):
        ran = comet(*arguments)
        assert ran.code == code, (arguments, ran.err)
        assert len([line for line in ran.err.splitlines() if line.startswith("cometmq config")]) == 1


def test_rtt_has_every_server(comet: Comet, monkeypatch: pytest.MonkeyPatch, cluster: SyncCluster) -> None:
    found = comet.good("rtt", "-n", "2", "-o", "json").json
    assert [row["kind"] for row in found] == ["name server", "master", "master"]
    assert all(0 < row["min_ms"] <= row["median_ms"] <= row["max_ms"] for row in found)
    monkeypatch.setenv("COMETMQ_NAMESRV", f"{cluster.namesrv};127.0.0.1:1")
    assert comet("rtt", "-n", "1").code == 4


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch"])
def test_bench_sends_in_every_mode_and_says_how_fast(mode: str, comet: Comet) -> None:
    topic = f"TopicBench{mode}"
    comet.good("topic", "create", topic, "--queues", "1")
    send = ("bench", "send", "--topic", topic, "--mode", mode)
    whole = comet.good(*send, "-n", "200", "--size", "100", "-o", "json").json
    assert (whole["mode"], whole["messages"], whole["failed"], whole["size"]) == (mode, 200, 0, 100)
    assert whole["per_second"] > 0
    assert whole["p50_ms"] <= whole["p99_ms"] <= whole["max_ms"]
    assert sum(row["count"] for row in whole["histogram"]) == (200 if mode != "batch" else 7)
    read = comet.good("bench", "consume", "--topic", topic, "-n", "150", "-o", "json").json
    assert read["messages"] == 150
    assert 0 < read["p50_ms"] <= read["max_ms"]
    assert sum(row["count"] for row in read["histogram"]) >= 150 // 32
    assert "#" in comet.good(*send, "-n", "10").out


def test_bench_measures_the_way_there_and_back(comet: Comet) -> None:
    whole = comet.good("bench", "latency", "-n", "20", "--rate", "200", "-o", "json").json
    assert whole["messages"] == 20
    assert 0 < whole["p50_ms"] <= whole["max_ms"]


def test_rocketmqs_names_do_what_they_did(comet: Comet, cluster: SyncCluster) -> None:
    """The most used ones, with their letters; the commands that they become are tested above."""
    at = ("-n", cluster.namesrv)
    comet.good("mqadmin", "updateTopic", *at, "-c", "DefaultCluster", "-t", "TopicByLetters", "-w", "2", "-r", "2")
    assert "TopicByLetters" in comet.good("mqadmin", "topicList", *at).out
    told = comet.good("mqadmin", "topicStatus", *at, "-t", "TopicByLetters")
    assert "broker-b" in told.out
    assert "cometmq topic describe TopicByLetters" in told.err
    comet.good("mqadmin", "updateSubGroup", *at, "-g", "GroupByLetters", "-r", "5", "-c", "DefaultCluster")
    comet.good("mqadmin", "sendMessage", *at, "-t", "TopicByLetters", "-p", "hello", "-k", "k1")
    assert "hello" in comet.good("mqadmin", "queryMsgByKey", *at, "-t", "TopicByLetters", "-k", "k1").out
    comet.good("mqadmin", "resetOffsetByTime", *at, "-g", "GroupByLetters", "-t", "TopicByLetters", "-s", "now")
    assert "TopicByLetters" in comet.good("mqadmin", "consumerProgress", *at, "-g", "GroupByLetters").out
    assert "GroupByLetters" in comet.good("mqadmin", "consumerProgress", *at).out
    comet.good("mqadmin", "deleteSubGroup", *at, "-g", "GroupByLetters", "-c", "DefaultCluster")
    comet.good("mqadmin", "deleteTopic", *at, "-t", "TopicByLetters", "-c", "DefaultCluster")
    assert "broker-a" in comet.good("mqadmin", "clusterList", *at).out
    changed = comet.good(
        "mqadmin", "updateBrokerConfig", *at, "-b", cluster.broker.address, "-k", "fileReservedTime", "-v", "72"
    )
    assert "read back" in changed.err


def test_there_are_twenty_five_names_and_each_becomes_a_command_that_exists(comet: Comet) -> None:
    assert len(ALIASES) >= 25
    assert all(name in comet.good("mqadmin", "--help").out for name in ALIASES)
    for name in ALIASES:
        assert comet(*translate(name, ["-h"])).code == 0, name
    assert translate("resetOffsetByTime", ["-g", "G", "-t", "T", "-s", "2026-11-15#12:30:00:500"]) == [
        "group", "seek", "--yes", "G", "T", "--to=2026-11-15T12:30:00.500",
    ]  # fmt: skip
    unknown = comet("mqadmin", "makeCoffee")
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)
    assert comet("mqadmin", "topicList", "-z", "1").code == 2


def test_completion_knows_commands_verbs_options_topics_and_groups(comet: Comet) -> None:
    comet.good("topic", "create", "TopicToComplete", "--queues", "1")
    comet.good("group", "create", "GroupToComplete")

    def found(*words: str) -> list[str]:
        return comet.good("complete", "--", *words).out.split()

    assert "topic" in found("to")
    assert found("topic", "desc") == ["describe"]
    assert found("topic", "describe", "TopicToC") == ["TopicToComplete"]
    assert found("group", "lag", "GroupToC") == ["GroupToComplete"]
    assert found("group", "seek", "GroupToComplete", "TopicToC") == ["TopicToComplete"]
    assert found("bench", "send", "--mode", "on") == ["oneway"]
    assert "--queues" in found("topic", "create", "x", "--q")
    assert found("mqadmin", "topicL") == ["topicList"]
    assert found("nonsense", "") == []
    for shell in ("bash", "zsh", "fish"):
        assert "cometmq complete --" in comet.good("completion", shell).out


def test_latency_is_measured_beside_another_bench(comet: Comet, cluster: SyncCluster) -> None:
    with cluster.client() as client, client.admin() as admin:
        admin.create_topic("cometmq-bench", queues=2)
        with client.producer("other") as producer:
            stopping = threading.Event()

            def send() -> None:
                while not stopping.is_set():
                    producer.send("cometmq-bench", b"x" * 1024)

            other = threading.Thread(target=send)
            other.start()
            try:
                ran = comet.good("bench", "latency", "-n", "20", "-o", "json").json
            finally:
                stopping.set()
                other.join()
    assert 0 < ran["mean_ms"] <= ran["max_ms"] < 60_000
