"""A broker whose state files are gone or older than its log: what has messages can be read, and the log says so."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.tables import rebuild
from cometmq.clock import ManualClock
from cometmq.wire.bodies import TopicConfig
from cometmq.wire.codes import Request
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, batch_request, running_broker, stored

CONFIG = "store/config"


def drop(directory: Path, name: str) -> None:
    for path in (directory / CONFIG).glob(f"{name}*"):
        path.unlink()


def fill(directory: Path, **settings: Any) -> None:
    """A broker that has been used, and has stopped."""

    async def main() -> None:
        async with running_broker(directory, **settings) as broker, Peer.of(broker) as peer:
            await peer.send("TopicA", b"a", queue_id=2)
            await peer.ask(batch_request("TopicB", [(b"b", {})] * 3))
            await peer.send("%RETRY%Group1", b"r", reconsume_times=1, max_reconsume_times=16)
            broker.tables.offsets.commit("Group2", "TopicA", 2, 1, "test")
            await broker.rooms.settled()

    run(main())


@pytest.mark.parametrize("leaves_empty", [False, True])
def test_topics_without_their_file_are_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leaves_empty: bool
) -> None:
    fill(tmp_path)
    drop(tmp_path, "topics.json")
    if leaves_empty:
        (tmp_path / CONFIG / "topics.json").touch()

    async def main() -> None:
        async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
            assert [it.body for it in await peer.pull_messages("TopicA", 2)] == [b"a"]
            assert len(await peer.pull_messages("TopicB")) == 3
            assert [it.body for it in await peer.pull_messages("%RETRY%Group1", group="Group1")] == [b"r"]
            topic = broker.tables.topics.table["TopicA"]
            assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (3, 3, 6)
            await broker.rooms.settled()
            saved = json.loads((tmp_path / CONFIG / "topics.json").read_bytes())["topicConfigTable"]
            assert {"TopicA", "TopicB", "%RETRY%Group1"} <= saved.keys()

    caplog.clear()
    run(main())
    lines = [it.getMessage() for it in caplog.records if it.levelname == "WARNING" and "made topic again" in it.msg]
    for topic, queues in (("TopicA", 3), ("TopicB", 1), ("%RETRY%Group1", 1)):
        assert any(f"topic={topic} queues={queues} " in line for line in lines), lines


def test_a_topic_of_whole_batches_keeps_its_kind(tmp_path: Path) -> None:
    async def before() -> None:
        async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
            add_topic(broker, "Whole", 1, attributes={"queue.type": "BatchCQ"})
            properties = {"INNER_NUM": "2"}
            answer = await peer.send("Whole", b"x", properties=properties, sys_flag=1 << 7)
            assert answer.code == 0, answer.remark
            assert "Whole" in broker.store.queues.batch_topics

    async def after() -> None:
        async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
            assert broker.tables.topics.table["Whole"].attributes == {"queue.type": "BatchCQ"}
            answer = await peer.send("Whole", b"x", properties={"INNER_NUM": "2"}, sys_flag=1 << 7)
            assert answer.code == 0, answer.remark

    run(before())
    drop(tmp_path, "topics.json")
    run(after())


def crashed_copy(directory: Path) -> Path:
    """As a kill would leave it; the broker goes on with the original."""
    copy = directory.with_name(directory.name + "-copy")
    shutil.copytree(directory, copy)
    return copy


def test_a_topic_younger_than_the_table_is_made_again(tmp_path: Path) -> None:
    """As RocketMQ leaves it when its machine loses power right after the first message."""
    copies: list[Path] = []

    async def before() -> None:
        async with running_broker(tmp_path / "a") as broker, Peer.of(broker) as peer:
            await peer.send("Old")
            old = (tmp_path / "a" / CONFIG / "topics.json").read_bytes()
            await peer.send("New", b"new", queue_id=1)
            copies.append(crashed_copy(tmp_path / "a"))
            drop(copies[0], "topics.json")
            (copies[0] / CONFIG / "topics.json").write_bytes(old)

    async def after() -> None:
        async with running_broker(copies[0]) as broker, Peer.of(broker) as peer:
            assert [it.body for it in await peer.pull_messages("New", 1)] == [b"new"]

    run(before())
    run(after())


def test_a_deleted_topic_stays_deleted_after_a_crash(tmp_path: Path) -> None:
    copies: list[Path] = []

    async def before() -> None:
        async with running_broker(tmp_path / "a") as broker, Peer.of(broker) as peer:
            await peer.send("Gone")
            await peer.send("Stays")
            assert (await peer.call(Request.DELETE_TOPIC_IN_BROKER, topic="Gone")).code == 0
            copies.append(crashed_copy(tmp_path / "a"))

    async def after() -> None:
        async with running_broker(copies[0]) as broker, Peer.of(broker) as peer:
            assert "Gone" not in broker.tables.topics.table
            assert len(await peer.pull_messages("Stays")) == 1

    run(before())
    run(after())


def test_queues_that_an_operator_took_away_are_named_and_stay_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)

    async def main() -> None:
        async with running_broker(tmp_path) as broker:
            topic = TopicConfig(topic_name="TopicA", read_queue_nums=1, write_queue_nums=1, perm=6)
            broker.tables.topics.update([topic])
        caplog.clear()
        async with running_broker(tmp_path) as broker:
            assert broker.tables.topics.table["TopicA"].read_queue_nums == 1

    run(main())
    assert any("nobody can read topic=TopicA queue=2 " in it.getMessage() for it in caplog.records)


def test_groups_without_their_file_are_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path)
    drop(tmp_path, "subscriptionGroup.json")

    async def main() -> None:
        async with running_broker(tmp_path, autoCreateSubscriptionGroup=False) as broker:
            assert {"Group1", "Group2"} <= broker.tables.groups.table.keys()

    caplog.clear()
    run(main())
    assert any("made groups again" in it.getMessage() and "Group1" in it.getMessage() for it in caplog.records)


def test_lost_offsets_are_said_and_a_usual_start_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def start() -> None:
        async with running_broker(tmp_path):
            pass

    def said() -> list[str]:
        return [it.getMessage() for it in caplog.records if it.name == rebuild.__name__]

    run(start())
    fill(tmp_path)
    run(start())
    assert said() == []
    drop(tmp_path, "consumerOffset.json")
    run(start())
    assert ["consumerOffset.json" in it for it in said()] == [True]


@pytest.mark.parametrize("delivered", [3, 5, 8])
def test_lost_progress_of_delays_neither_loses_nor_doubles(
    tmp_path: Path, delivered: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages are due a second apart; so many are delivered before the file is lost."""

    async def tick(clock: ManualClock, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            clock.advance(0.1)

    async def before(clock: ManualClock) -> None:
        async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
            for number in range(8):
                assert (await peer.send("Late", b"%d" % number, properties={"DELAY": "2"})).code == 0
                await tick(clock, 1)
            # The first is due 5 s after it was sent.
            await tick(clock, max(0.0, delivered - 3.5))
            assert abs(len(stored(broker, "Late")) - delivered) <= 1

    async def after(clock: ManualClock) -> None:
        async with running_broker(tmp_path, clock) as broker:
            await tick(clock, 30)
            assert [it.body for it in stored(broker, "Late")] == [b"%d" % number for number in range(8)]

    clock = ManualClock()
    run(before(clock))
    drop(tmp_path, "delayOffset.json")
    run(after(clock))
    assert any("found progress of delays again" in it.getMessage() for it in caplog.records)
