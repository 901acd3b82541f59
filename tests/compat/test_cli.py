"""Checks the command line against RocketMQ's own servers: the same questions, the same shapes of answers.

The commands are those of tests/cli; here a Java name server and broker answer them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli.main import main
from cometmq.sync import Client as SyncClient
from tests.compat.conftest import Cluster
from tests.compat.harness.processes import wait_until

pytestmark = pytest.mark.interop


class Comet:
    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.namesrv = cluster.namesrv.address
        self._broker = cluster.broker
        self._capsys = capsys

    def __call__(self, *arguments: str, form: str = "json") -> tuple[int, str, str]:
        code = main([*arguments, "--namesrv", self.namesrv, "--timeout", "20s", *(["-o", form] if form else [])])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def complete(self, *words: str) -> list[str]:
        *before, begun = words
        assert main(["complete", "--", *before, "--namesrv", self.namesrv, begun]) == 0
        return self._capsys.readouterr().out.split()

    def mqadmin(self, name: str, *letters: str) -> tuple[int, str, str]:
        code = main(["mqadmin", name, "-n", self.namesrv, *letters])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def json(self, *arguments: str) -> Any:
        code, out, err = self(*arguments)
        assert code == 0, err
        return json.loads(out)

    def lines(self, *arguments: str) -> list[Any]:
        code, out, err = self(*arguments)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def send(self, *arguments: str) -> list[Any]:
        """What was sent can be read when this returns."""
        sent = self.lines("send", *arguments)
        self._broker.await_dispatch()
        return sent


@pytest.fixture
def comet(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Comet:
    return Comet(cluster, capsys)


def test_messages_are_sent_found_and_shown(comet: Comet, topic: str) -> None:
    made = comet.json("topic", "create", topic, "--queues", "2")
    assert made["queues"] == 2
    sent = comet.send(topic, "one", "two", "three", "--key", "k1", "--tag", "t", "-p", "region=eu")
    assert [one["status"] for one in sent] == ["SEND_OK"] * 3
    found = comet.lines("tail", topic, "--from", "earliest", "--no-follow")
    assert sorted(one["body"] for one in found) == ["one", "three", "two"]
    assert all((one["tag"], one["keys"], one["properties"]) == ("t", ["k1"], {"region": "eu"}) for one in found)
    assert comet.json("message", "get", sent[0]["id"], "--topic", topic)["body"] == "one"
    assert comet.json("message", "get", sent[1]["offset_id"])["body"] == "two"
    assert len(comet.json("message", "find", topic, "--key", "k1")) == 3
    assert len(comet.json("message", "find", topic, "--from", "-1h")) == 3
    told = comet.json("topic", "describe", topic)
    assert (told["messages"], len(told["queue_stats"])) == (3, 2)
    assert topic in [row["topic"] for row in comet.json("topic", "list")]
    (route,) = comet.json("topic", "route", topic)
    assert route["write_queues"] == 2


def test_groups_are_made_moved_and_measured(comet: Comet, topic: str) -> None:
    group = f"cli-{topic}"
    comet.json("topic", "create", topic, "--queues", "1")
    comet.send(topic, "1", "2", "3")
    comet.json("group", "create", group, "--retries", "2")
    assert comet.json("group", "describe", group)["retries_max"] == 2
    assert group in [row["group"] for row in comet.json("group", "list")]
    plan = comet.json("group", "seek", group, topic, "--to", "1")
    assert [(row["queue"], row["after"]) for row in plan] == [(0, 1)]
    code, _, err = comet("group", "seek", group, topic, "--to", "1", "--yes")
    assert code == 0, err
    lag = comet.json("group", "lag", group)
    assert [(row["topic"], row["committed"], row["end"], row["behind"]) for row in lag["queues"]] == [(topic, 1, 3, 2)]
    assert lag["members"] == []
    assert comet.json("group", "delete", group, "--yes")["deleted_from"]


def test_servers_are_listed_measured_and_asked_for_settings(comet: Comet) -> None:
    # RocketMQ's broker has no rate to report until it has taken its second sample.
    wait_until(lambda: comet.json("cluster", "list")[0]["in_tps"] is not None, "a rate")
    (row,) = comet.json("cluster", "list")
    assert row["state"] == "up"
    assert row["version"].startswith("V5_5_0")
    assert isinstance(row["in_tps"], float)
    health = comet.json("cluster", "health")
    servers = [one["state"] for one in health if one["what"].startswith(("name server", "broker"))]
    assert servers == ["ok", "ok"]
    assert "fail" not in {one["state"] for one in health}
    assert comet.json("cluster", "figures", row["broker"])["brokerVersionDesc"] == row["version"]
    assert len(comet.json("config", "get")) > 200
    assert comet.json("config", "get", "listenPort", "--nameserver")[0]["key"] == "listenPort"
    assert [one["error"] for one in comet.json("rtt", "-n", "2")] == [None, None]
    (picture,) = comet.lines("cluster", "top", "-n", "1")
    assert picture["brokers"][0]["broker"] == row["broker"]
    assert isinstance(comet.json("dlq", "list"), list)


def test_what_reads_only_has_the_same_shapes_everywhere(comet: Comet, topic: str, tmp_path: Path) -> None:
    comet.json("topic", "create", topic, "--queues", "1")
    comet.send(topic, "1", "2", "--key", "k")
    file = tmp_path / "exported.jsonl"
    code, _, err = comet("export", topic, "--file", str(file), form="")
    assert (code, err) == (0, "exported 2 messages\n")
    assert [json.loads(line)["body"] for line in file.read_text().splitlines()] == ["1", "2"]
    whole = comet.json("bench", "consume", "--topic", topic, "-n", "2")
    assert (whole["mode"], whole["messages"], whole["failed"]) == ("consume", 2, 0)
    assert comet.json("dlq", "list", f"group-{topic}") == []
    code, _, err = comet("message", "trace", "7F0000010000000000000000DEADBEEF")
    assert (code, err.count("\n")) == (6, 1)
    code, _, err = comet("message", "get", "0A000001000000500000000000000000")
    assert code == 6
    assert "topics has the id" in err
    for form in ("table", "wide", "yaml"):
        assert topic in comet("topic", "list", form=form)[1]


def test_producers_are_listed_and_names_completed(comet: Comet, topic: str) -> None:
    comet.json("topic", "create", topic, "--queues", "1")
    with SyncClient(comet.namesrv) as client, client.producer(f"pg-{topic}") as producer:
        producer.send(topic, b"x")
        # Its heartbeat goes out beside what it sends.
        wait_until(lambda: comet("group", "producers", f"pg-{topic}")[0] == 0, "the producer at the broker")
        (row,) = comet.json("group", "producers", f"pg-{topic}")
        assert (row["group"], set(row)) == (f"pg-{topic}", {"group", "client_id", "address", "language"})
    assert comet.complete("topic", "describe", topic[:-1]).count(topic) == 1
    code, out, err = comet.mqadmin("topicStatus", "-t", topic)
    assert code == 0, err
    assert "MESSAGES" in out


def test_what_is_not_there_or_not_permitted_is_one_line(comet: Comet, topic: str) -> None:
    for arguments, codes in (
        (("topic", "describe", f"no-{topic}"), {6}),
        (("group", "describe", f"no-{topic}"), {6}),
        (("message", "get", "7F000001000000000000000000000001", "--topic", f"no-{topic}"), {6}),
        (("config", "get", "noSuchKey"), {6}),
        (("config", "set", "brokerConfigPath=/tmp/x", "--yes"), {1, 6, 7}),
    ):
        code, _, err = comet(*arguments)
        assert code in codes, (arguments, err)
        assert "Traceback" not in err
        assert len([line for line in err.splitlines() if line.startswith("cometmq ")]) == 1
    comet.json("topic", "create", topic, "--queues", "1")
    code, _, err = comet("tail", topic, "--filter", "a > 1", "--no-follow")
    if code:  # switched off, as it is by default
        assert (code, err.count("\n")) == (2, 1)
        assert "enablePropertyFilter" in err


@pytest.mark.parametrize("mode", ["sync", "oneway", "batch"])
def test_bench_loads_it(mode: str, comet: Comet, topic: str) -> None:
    whole = comet.json("bench", "send", "--topic", topic, "--mode", mode, "-n", "100", "--queues", "2")
    assert (whole["messages"], whole["failed"]) == (100, 0)
