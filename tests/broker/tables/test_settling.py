"""A message is acked when a reader would find it after a crash: with its topic and group in their files."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from cometmq import state_file
from cometmq.broker.server import Broker
from cometmq.broker.tables import settling
from cometmq.state_file import Files
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, request
from tests.support.brokers import Peer, batch_request, running_broker, send_request, stored
from tests.support.net import until
from tests.support.transacting import COMMIT, HalfSent, end_request

BACK = Request.CONSUMER_SEND_MSG_BACK


def saved_topics(directory: Path) -> set[str]:
    path = directory / "store" / "config" / "topics.json"
    return set(json.loads(path.read_bytes())["topicConfigTable"]) if path.exists() else set()


def saved_groups(directory: Path) -> set[str]:
    path = directory / "store" / "config" / "subscriptionGroup.json"
    return set(json.loads(path.read_bytes())["subscriptionGroupTable"]) if path.exists() else set()


def back_request(physical_offset: int, group: str, level: int) -> Command:
    fields = {"offset": physical_offset, "group": group, "delayLevel": level, "originTopic": "Old", "unitMode": "false"}
    return request(BACK, {name: str(value) for name, value in fields.items()})


class Gate:
    """Writes of the tables wait for `open`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        save = state_file.save

        def wait_and_save(path: Path, content: bytes, files: Files) -> None:
            assert self.open.wait(30)
            save(path, content, files)

        monkeypatch.setattr(state_file, "save", wait_and_save)


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_what_an_ack_rests_on_is_in_its_file(tmp_path: Path, mode: str) -> None:
    async with running_broker(tmp_path, flushDiskType=mode) as broker, Peer.of(broker) as peer:
        for number in range(3):
            assert (await peer.send(f"Single{number}")).code == 0
            assert f"Single{number}" in saved_topics(tmp_path)
        assert (await peer.ask(batch_request("Batch", [(b"1", {}), (b"2", {})]))).code == 0
        assert "Batch" in saved_topics(tmp_path)
        assert (await peer.send("Late", properties={"DELAY": "3"})).code == 0
        assert "Late" in saved_topics(tmp_path)
        assert (await peer.send("Half", properties={"TRAN_MSG": "true", "PGROUP": "g"}, sys_flag=4)).code == 0
        assert "Half" in saved_topics(tmp_path)
        place = stored(broker, "Single0")[0].physical_offset
        assert (await peer.ask(back_request(place, "Back", 1))).code == 0
        assert "%RETRY%Back" in saved_topics(tmp_path)
        assert "Back" in saved_groups(tmp_path)
        assert (await peer.ask(back_request(place, "Dead", -1))).code == 0
        assert "%DLQ%Dead" in saved_topics(tmp_path)
        assert (await peer.send("%RETRY%Own", reconsume_times=1, max_reconsume_times=16)).code == 0
        assert "%RETRY%Own" in saved_topics(tmp_path)
        assert "Own" in saved_groups(tmp_path)
        assert (await peer.send("%RETRY%Given", reconsume_times=17, max_reconsume_times=16)).code == 0
        assert "%DLQ%Given" in saved_topics(tmp_path)


async def test_nobody_is_acked_while_the_table_is_being_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer, Peer.of(broker) as other:
        assert (await peer.send("Old")).code == 0
        gate.open.clear()
        first = asyncio.create_task(peer.send("New", b"first"))
        await until(lambda: broker.rooms.shared.settling.parked == 1)
        second = asyncio.create_task(other.send("New", b"second"))
        await until(lambda: broker.rooms.shared.settling.parked == 2)
        await other.send_oneway("New", b"third")
        await until(lambda: broker.rooms.shared.settling.parked == 3)
        assert (await peer.send("Old")).code == 0, "a topic that is in the file waits for nobody"
        assert stored(broker, "New") == []
        assert not first.done()
        assert not second.done()
        gate.open.set()
        assert ((await first).code, (await second).code) == (0, 0)
        await until(lambda: len(stored(broker, "New")) == 3)
        assert [it.body for it in stored(broker, "New")] == [b"first", b"second", b"third"]
        assert not broker.tables.topics.unsaved


async def test_a_queue_that_is_being_added_takes_nothing_before_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        assert (await peer.send("Old")).code == 0
        gate.open.clear()
        change: dict[str, Any] = {
            "topic": "Old", "defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        changing = asyncio.create_task(peer.call(Request.UPDATE_AND_CREATE_TOPIC, **change))
        await until(lambda: "Old" in broker.tables.topics.unsaved)
        sending = asyncio.create_task(peer.send("Old", queue_id=7))
        await until(lambda: broker.rooms.shared.settling.parked == 1)
        gate.open.set()
        assert (await sending).code == 0
        assert (await changing).code == 0


async def test_the_sends_of_a_connection_keep_their_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        bodies = [b"%d" % number for number in range(1_000)]
        answers = await asyncio.gather(*(peer.send("New", body, version=513) for body in bodies))
        assert {it.code for it in answers} == {0}
        assert [it.body for it in stored(broker, "New")] == bodies


def _block(directory: Path) -> Path:
    """Nothing can be saved in `config` any more."""
    config = directory / "store" / "config"
    aside = config.with_name("config-aside")
    config.rename(aside)
    config.write_text("a file where the directory should be")
    return aside


async def test_a_table_that_cannot_be_saved_refuses_the_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        assert (await peer.send("Old")).code == 0
        place = stored(broker, "Old")[0].physical_offset
        aside = _block(tmp_path)
        for ask in (send_request("New"), send_request("New"), batch_request("New", [(b"1", {})]),
                    back_request(place, "Back", 1), back_request(place, "Dead", -1)):  # fmt: skip
            answer = await peer.ask(ask)
            assert answer.code == Response.SERVICE_NOT_AVAILABLE
            assert answer.remark is not None
            for part in ("nothing was stored", ".json", "File exists"):
                assert part in answer.remark, answer.remark
        assert (await peer.send("Old")).code == 0
        for topic in ("New", "%RETRY%Back", "%DLQ%Dead"):
            assert stored(broker, topic) == []
        (tmp_path / "store" / "config").unlink()
        aside.rename(tmp_path / "store" / "config")
        assert (await peer.send("New")).code == 0
        assert "New" in saved_topics(tmp_path)


async def test_what_waits_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "PARKED_MAX", 3)
    gate = Gate(monkeypatch)
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        gate.open.clear()
        waiting = [asyncio.create_task(peer.send("New")) for _ in range(3)]
        await until(lambda: broker.rooms.shared.settling.parked == 3)
        answer = await peer.send("New")
        assert answer.code == Response.SYSTEM_BUSY, answer.remark
        gate.open.set()
        assert {(await it).code for it in waiting} == {0}


async def test_a_commit_waits_for_a_topic_that_was_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        half = await _half(broker, peer)
        assert (await peer.call(Request.DELETE_TOPIC_IN_BROKER, topic="Pay")).code == 0
        gate.open.clear()
        again = asyncio.create_task(peer.send("Pay", b"again"))
        await until(lambda: broker.rooms.shared.settling.parked == 1)
        ends = [asyncio.create_task(peer.ask(end_request(half, COMMIT))) for _ in range(2)]
        await until(lambda: broker.rooms.shared.settling.parked == 3)
        gate.open.set()
        assert (await again).code == 0
        assert [(await it).code for it in ends] == [0, 0]
        assert [it.body for it in stored(broker, "Pay")] == [b"again", b"money"], "committed once"


async def _half(broker: Broker, peer: Peer) -> HalfSent:
    properties = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "u"}
    answer = await peer.send("Pay", b"money", properties=properties, sys_flag=4, born_timestamp=broker.clock.now_ms())
    assert answer.code == 0
    (message,) = stored(broker, "RMQ_SYS_TRANS_HALF_TOPIC")
    return HalfSent(int(answer.ext["queueOffset"]), message.physical_offset, "u")


async def test_a_group_of_an_operator_waits_for_its_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        assert (await peer.send("Old")).code == 0
        place = stored(broker, "Old")[0].physical_offset
        gate.open.clear()
        config = SubscriptionGroupConfig(group_name="Made", retry_max_times=0)
        making = asyncio.create_task(peer.call(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config.encode()))
        await until(lambda: "Made" in broker.tables.groups.unsaved)
        back = asyncio.create_task(peer.ask(back_request(place, "Made", 0)))
        await until(lambda: broker.rooms.shared.settling.parked == 1)
        gate.open.set()
        assert ((await making).code, (await back).code) == (0, 0)
        assert {"%RETRY%Made", "%DLQ%Made"} <= saved_topics(tmp_path)
