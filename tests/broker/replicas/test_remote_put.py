"""Checks what becomes of delays, timers and open transactions while a replica acts for its master."""

import asyncio
from pathlib import Path

from cometmq.broker.replicas.remote_put import _freed
from cometmq.names import HALF_TOPIC, TIMER_TOPIC
from cometmq.store.log.append import AppendRequest
from cometmq.wire.record.properties import decode
from cometmq.wire.record.sysflag import TRANSACTION_PREPARED
from tests.nameserver.support import nameserver
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker, stored
from tests.support.groups import follow_now, replica
from tests.support.net import until

SETTINGS: dict[str, object] = {
    "enableSlaveActingMaster": True,
    "brokerHeartbeatInterval": 100,
    "syncBrokerMemberGroupPeriod": 50,
    "messageDelayLevel": "6s 1h",
    "transactionCheckInterval": 300,
    "transactionTimeOut": 6_000,
}


def test_what_is_due_meanwhile_goes_to_another_broker_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with nameserver(tmp_path) as names:
            common = {"namesrvAddr": names.address, "enableRemoteEscape": True, **SETTINGS}
            async with (
                running_broker(tmp_path / "b", **{**common, "brokerName": "broker-b"}) as other,
                running_broker(tmp_path / "replica", **replica(**common)) as acting,
            ):
                add_topic(other, "TopicA", 1)
                async with running_broker(tmp_path / "a", **common) as master, Peer.of(master) as peer:
                    add_topic(master, "TopicA", 1)
                    await peer.heartbeat()
                    for properties in ({"DELAY": "1"}, {"DELAY": "2"}, {"TIMER_DELAY_SEC": "6"}):
                        name = "".join(properties.keys() | properties.values())
                        unique = {"UNIQ_KEY": f"id {name}"}
                        answer = await peer.send("TopicA", f"{properties}".encode(), properties=properties | unique)
                        assert answer.code == 0, answer.remark
                    half = await peer.send(
                        "TopicA",
                        b"half",
                        sys_flag=TRANSACTION_PREPARED,
                        born_timestamp=master.clock.now_ms(),
                        properties={"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "id half"},
                    )
                    assert half.code == 0, half.remark
                    await until(lambda: acting.store.log.max_offset == master.store.log.max_offset)
                    await follow_now(acting)
                assert stored(other, "TopicA") == []
                await until(lambda: acting.rooms.replicas.group.is_acting)
                await until(lambda: len(stored(other, "TopicA")) == 2, "the delayed and the timer message")
                await until(lambda: stored(other, HALF_TOPIC), "the half")
                await until(lambda: acting.rooms.replicas.remote_put.sent == 3)
                await asyncio.sleep(0.5)
                bodies = {message.body for message in stored(other, "TopicA")}
                assert bodies == {b"{'DELAY': '1'}", b"{'TIMER_DELAY_SEC': '6'}"}
                assert len(stored(other, "TopicA")) == 2
                assert stored(other, HALF_TOPIC)[0].body == b"half"
                assert acting.tables.delays.offsets[1] == 1
                assert acting.store.queue_bounds("TopicA", 0) == (0, 0)

    run(scene(), timeout_s=60)


def test_without_remote_escape_all_waits_for_the_master(tmp_path: Path) -> None:
    async def scene() -> None:
        async with nameserver(tmp_path) as names:
            common = {"namesrvAddr": names.address, **SETTINGS, "messageDelayLevel": "2s 1h"}
            async with (
                running_broker(tmp_path / "b", **{**common, "brokerName": "broker-b"}) as other,
                running_broker(tmp_path / "replica", **replica(**common)) as acting,
            ):
                add_topic(other, "TopicA", 1)
                async with running_broker(tmp_path / "a", **common) as master, Peer.of(master) as peer:
                    add_topic(master, "TopicA", 1)
                    await peer.send("TopicA", b"later", properties={"DELAY": "1"})
                    await until(lambda: acting.store.log.max_offset == master.store.log.max_offset)
                await until(lambda: acting.rooms.replicas.group.is_acting)
                await asyncio.sleep(2.5)
                assert stored(other, "TopicA") == []
                async with running_broker(tmp_path / "a", **common) as master:
                    await until(lambda: [message.body for message in stored(master, "TopicA")] == [b"later"])

    run(scene(), timeout_s=60)


def test_a_timer_that_is_far_keeps_its_time_at_another_broker() -> None:
    text = "REAL_TOPIC\x01T\x02REAL_QID\x013\x02TIMER_OUT_MS\x015000\x02TIMER_DELAY_SEC\x0199\x02K\x01v\x02"
    freed = _freed(AppendRequest(TIMER_TOPIC, 0, b"body", text))
    assert freed.topic == "T"
    assert decode(freed.properties.encode()) == {"TIMER_DELIVER_MS": "5001", "K": "v"}
