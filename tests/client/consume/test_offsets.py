"""Offsets of consumers: at the broker, and in the file that broadcasting keeps."""

import asyncio
from pathlib import Path

import pytest

from cometmq.client.consume.offsets import LocalOffsets, RemoteOffsets
from cometmq.errors import BrokerUnknown, StoreError
from cometmq.wire.bodies import MessageQueue
from tests.support.clusters import real_cluster
from tests.support.net import until

FIRST = MessageQueue("broker-a", 0, "T")
SECOND = MessageQueue("broker-a", 1, "T")


async def test_the_broker_keeps_what_is_persisted(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        cluster.broker.tables.groups.find("g")
        await client.instance.route("T")
        offsets = RemoteOffsets(client.instance, "g")
        offsets.update(FIRST, 5)
        await offsets.persist([FIRST, SECOND])
        other = RemoteOffsets(client.instance, "g")
        assert await other.query(FIRST) == 5
        assert other.read(FIRST) == 5
        offsets.update(FIRST, 7)
        await offsets.persist([FIRST], answered=False)
        await until(lambda: cluster.broker.tables.offsets.query("g", "T", 0) == 7, "a one-way commit")
        await offsets.commit(SECOND, 3)
        assert await other.query(SECOND) == 3


async def test_a_queue_of_an_unknown_broker_cannot_be_asked(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        offsets = RemoteOffsets(client.instance, "g")
        with pytest.raises(BrokerUnknown):
            await offsets.query(MessageQueue("elsewhere", 0, "T"))
        offsets.update(MessageQueue("elsewhere", 0, "T"), 1)
        await offsets.persist([MessageQueue("elsewhere", 0, "T")])  # logged only


def test_memory_can_be_made_to_grow_only_and_frozen(tmp_path: Path) -> None:
    offsets = LocalOffsets("c", "g", tmp_path)
    offsets.update(FIRST, 5)
    offsets.update(FIRST, 3, increase_only=True)
    assert offsets.read(FIRST) == 5
    offsets.update(FIRST, 3)
    assert offsets.read(FIRST) == 3
    offsets.freeze(FIRST, 9)
    offsets.update(FIRST, 100, increase_only=True)
    assert offsets.read(FIRST) == 9
    offsets.forget(FIRST)
    assert offsets.read(FIRST) is None
    offsets.update(FIRST, 1)
    assert offsets.read(FIRST) == 1


def test_the_file_is_the_one_of_java(tmp_path: Path) -> None:
    async def main() -> None:
        offsets = LocalOffsets("10.0.0.1@DEFAULT", "g", tmp_path)
        offsets.update(FIRST, 12)
        offsets.update(SECOND, 7)
        await offsets.persist([FIRST, SECOND])

    asyncio.run(main())
    text = (tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json").read_text()
    assert "".join(text.split()) == (
        '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:12,'
        '{"brokerName":"broker-a","queueId":1,"topic":"T"}:7}}'
    )
    assert text.startswith('{\n\t"offsetTable":{')


def test_a_restart_reads_the_file_and_keeps_what_it_does_not_own(tmp_path: Path) -> None:
    async def main() -> None:
        first = LocalOffsets("c", "g", tmp_path)
        await first.load()
        assert await first.query(FIRST) is None
        first.update(FIRST, 12)
        await first.persist([FIRST])
        second = LocalOffsets("c", "g", tmp_path)
        await second.load()
        assert await second.query(FIRST) == 12
        second.update(SECOND, 1)
        await second.persist([SECOND])
        third = LocalOffsets("c", "g", tmp_path)
        await third.load()
        assert (await third.query(FIRST), await third.query(SECOND)) == (12, 1)

    asyncio.run(main())


def test_a_broken_file_is_replaced_by_the_copy_before_it(tmp_path: Path) -> None:
    async def main() -> None:
        offsets = LocalOffsets("c", "g", tmp_path)
        for value in (1, 2):
            offsets.update(FIRST, value)
            await offsets.persist([FIRST])
        offsets.path.write_text('{"offsetTable":{{"broker')
        again = LocalOffsets("c", "g", tmp_path)
        await again.load()
        assert await again.query(FIRST) == 1
        offsets.path.write_text("{")
        offsets.path.with_name("offsets.json.bak").write_text("{")
        with pytest.raises(StoreError):
            await LocalOffsets("c", "g", tmp_path).load()

    asyncio.run(main())
