"""Replays, audits, and pipelines from the command line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.cli.main import main
from cometmq.spark.pipelines import archive, audit, replay
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill
from tests.support.golden import copy_golden_store, golden_messages, golden_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_replay_sends_each_message_once_however_often_it_runs(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 120)
    archive(spark, namesrv=cluster.namesrv, topics=topic, root=str(tmp_path))
    target = f"{topic}_again"
    cluster.create_topic(target, queues=2)
    options: dict[str, Any] = {"root": str(tmp_path), "namesrv": cluster.namesrv, "to": target, "by": "queue"}
    done = replay(spark, run="first", where="tags = 'third'", **options)
    assert done.figures["rows"] == 40
    replay(spark, run="first", where="tags = 'third'", **options)
    found = cluster.messages(target)
    assert Counter(int(message.body) for message in found) == Counter(range(0, 120, 3))
    assert {message.properties["n"] for message in found} == {str(n) for n in range(0, 120, 3)}
    assert {message.tag for message in found} == {"third"}
    per_queue: dict[Any, list[int]] = {}
    for message in sorted(found, key=lambda one: one.offset):
        origin = int(message.body) % 4
        per_queue.setdefault((message.queue, origin), []).append(int(message.body))
    assert all(bodies == sorted(bodies) for bodies in per_queue.values())
    replay(spark, run="second", **options)
    assert len(cluster.messages(target)) == 160


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_an_audit_of_a_good_store_finds_nothing_in_the_log(spark: SparkSession, name: Any) -> None:
    summary, findings = audit(spark, store=str(golden_store(name)))
    assert summary.figures["messages"] > 300
    assert [one for one in findings if one.kind == "damaged log"] == []
    if name == "clean":
        assert findings == []


def test_an_audit_finds_exactly_what_was_broken(spark: SparkSession, tmp_path: Path) -> None:
    store = copy_golden_store("clean", tmp_path / "store")
    messages = [one for one in golden_messages("clean") if one["bodyHex"]]
    bent, gone, moved = messages[3], messages[20], messages[40]

    file = [one for one in sorted((store / "commitlog").iterdir()) if int(one.name) <= bent["commitLogOffset"]][-1]
    content = bytearray(file.read_bytes())
    content[bent["commitLogOffset"] - int(file.name) + 88] ^= 0xFF
    file.write_bytes(content)
    for message, change in ((gone, bytes(20)), (moved, None)):
        queue = store / "consumequeue" / message["topic"] / str(message["queueId"])
        first = sorted(queue.iterdir())[0]
        units = bytearray(first.read_bytes())
        at = message["queueOffset"] * 20 - int(first.name)
        wrong = bytes(units[at : at + 8]) + b"\x00\x00\x00\x07" + bytes(units[at + 12 : at + 20])
        units[at : at + 20] = wrong if change is None else change
        first.write_bytes(units)

    _, findings = audit(spark, store=str(store))
    found = {(one.kind, one.topic, one.queue_id, one.queue_offset) for one in findings}

    def place(message: dict[str, Any]) -> tuple[Any, ...]:
        return message["topic"], message["queueId"], message["queueOffset"]

    assert ("damaged log", None, None, None) in found
    assert ("unit without message", *place(bent)) in found
    assert ("unit with a wrong size", *place(moved)) in found
    lost = [one for one in findings if (one.topic, one.queue_id, one.queue_offset) == place(gone)]
    assert [one.kind for one in lost] in (["missing unit"], ["unit points elsewhere"])
    assert {one.commit_log_offset for one in findings if one.kind == "damaged log"} == {bent["commitLogOffset"]}


# The command line


def test_pipelines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list", "-o", "json"]) == 0
    assert "archive" in {row["name"] for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is no pipeline nothing; there are archive, audit, "),
        (["audit"], "pipeline audit needs store=..."),
        (["audit", "store=x", "colour=red"], "pipeline audit has no colour; it takes store, partition_mib"),
        (["audit", "store=x", "partition_mib=many"], "partition_mib=many is no number"),
        (["archive", "topics"], "topics is no KEY=VALUE"),
        (["missing.toml"], "cannot read missing.toml: No such file"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["pipeline", "run", *arguments]) != 0
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""
    assert "Traceback" not in told.err
