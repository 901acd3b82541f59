"""A record whose body does not fit its CRC, in the log of a real broker: its queue goes on behind it."""

import logging
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client, StartFrom
from cometmq.broker.server import Broker
from cometmq.errors import ConfigError
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.message_id import decode_offset_id
from tests.conftest import run
from tests.support.clusters import RealCluster, real_cluster
from tests.support.consuming import Got, quick
from tests.support.net import until

COUNT = 12
BAD = (4, 5, 9)
GOOD = [b"body %d" % number for number in range(COUNT) if number not in BAD]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMETMQ_BAD_RECORDS", str(tmp_path / "bad"))
    return tmp_path / "bad"


def flip(broker: Broker, offset_id: str) -> None:
    """One bit of a body, in the file that the broker has mapped; once more mends it."""
    place = decode_offset_id(offset_id).physical_offset
    (path,) = (Path(broker.store.options.root_dir) / "commitlog").glob("0" * 20)
    with path.open("r+b") as file:
        file.seek(place + 88)
        byte = file.read(1)[0]
        file.seek(place + 88)
        file.write(bytes([byte ^ 1]))


async def fill(cluster: RealCluster, client: Client) -> list[str]:
    async with client.producer("pg") as producer:
        (queue,) = await producer.queues("T")
        sent = [await producer.send("T", b"body %d" % number, queue=queue) for number in range(COUNT)]
    return [receipt.offset_id for receipt in sent]


def committed(cluster: RealCluster, group: str = "cg") -> int:
    return cluster.broker.tables.offsets.query(group, "T", 0)


def told(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR and what in one.getMessage()]


@pytest.mark.parametrize("kind", ["push", "ordered", "iterator", "pull"])
def test_what_cannot_be_read_is_set_aside_and_passed_over(
    tmp_path: Path, kept: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async def main() -> None:
        async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
            ids = await fill(cluster, client)
            for number in BAD:
                flip(cluster.broker, ids[number])
            options: dict[str, Any] = {"bad_record_tries": 2, "start": StartFrom.FIRST}
            if kind == "pull":
                async with client.pull_consumer("cg", **options) as puller:
                    await puller.subscribe("T")
                    pulled: list[bytes] = []
                    while len(pulled) < len(GOOD):
                        pulled += [message.body for message in await puller.poll(timeout=5)]
                    assert pulled == GOOD
            elif kind == "iterator":
                async with client.consumer("cg", "T", error_delay=0.01, first_pull_delay=0.0, **options) as consumer:
                    looped = []
                    async for message in consumer:
                        looped.append(message.body)
                        if len(looped) == len(GOOD):
                            break
                    assert looped == GOOD
            else:
                got = Got()
                app = quick(client, error_delay=0.01, **options)
                app.subscribe("T", got.take, ordered=kind == "ordered")
                async with app:
                    await got.count(len(GOOD))
                    await until(lambda: committed(cluster) == COUNT)
                    assert sorted(got.bodies) == sorted(GOOD)
                    if kind == "ordered":
                        assert got.bodies == GOOD
            assert committed(cluster) == COUNT

    run(main())
    lines = told(caplog, "pass over record")
    assert len(lines) == len(BAD)
    for number, line in zip(BAD, lines, strict=True):
        file = kept / "cg" / f"T-broker-a-0-{number}.record"
        assert f"topic=T broker=broker-a queue=0 offset={number} next={number + 1} tries=2 file={file}" in line
        record = decode_record(file.read_bytes(), check_crc=False)
        assert (record.queue_offset, record.body[1:]) == (number, b"ody %d" % number)
    assert len(list(kept.rglob("*.record"))) == len(BAD)


@pytest.mark.parametrize("kind", ["push", "pull"])
def test_blocking_waits_until_the_log_is_mended_and_says_so_once(
    tmp_path: Path, kept: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async def main() -> None:
        async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
            ids = await fill(cluster, client)
            flip(cluster.broker, ids[4])
            options: dict[str, Any] = {"bad_record_tries": 2, "start": StartFrom.FIRST, "bad_records": "block"}
            everything = [b"body %d" % number for number in range(COUNT)]
            if kind == "pull":
                async with client.pull_consumer("cg", **options) as puller:
                    await puller.subscribe("T")
                    first = await puller.poll(timeout=10)
                    bodies = [message.body for message in first]
                    while len(bodies) < 4:
                        bodies += [message.body for message in await puller.poll(timeout=10)]
                    assert bodies == everything[:4]
                    await until(lambda: told(caplog, "block queue"), "the report")
                    flip(cluster.broker, ids[4])
                    while len(bodies) < COUNT:
                        bodies += [message.body for message in await puller.poll(timeout=10)]
                    assert bodies == everything
            else:
                got = Got()
                app = quick(client, error_delay=0.01, **options)
                app.subscribe("T", got.take)
                async with app:
                    await got.count(4)
                    await until(lambda: told(caplog, "block queue"), "the report")
                    assert sorted(got.bodies) == everything[:4]
                    flip(cluster.broker, ids[4])
                    await got.count(COUNT)
                    got.check_once(everything)

    run(main())
    assert len(told(caplog, "block queue")) == 1
    assert "topic=T broker=broker-a queue=0 offset=4" in told(caplog, "block queue")[0]
    assert not kept.exists()


def test_damage_on_the_way_costs_nothing(tmp_path: Path, kept: Path) -> None:
    """Within the tries: what the way has damaged comes whole the next time."""

    async def main() -> None:
        async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
            ids = await fill(cluster, client)
            flip(cluster.broker, ids[4])
            got = Got()
            app = quick(client, error_delay=0.2, bad_record_tries=100)
            app.subscribe("T", got.take)
            async with app:
                await got.count(4)
                flip(cluster.broker, ids[4])
                await got.count(COUNT)
                got.check_once([b"body %d" % number for number in range(COUNT)])

    run(main())
    assert not kept.exists()


def test_a_place_that_cannot_be_written_does_not_block_the_queue(
    tmp_path: Path, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept.write_text("a file where the directory should be")

    async def main() -> None:
        async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
            ids = await fill(cluster, client)
            flip(cluster.broker, ids[COUNT - 1])
            got = Got()
            app = quick(client, error_delay=0.01, bad_record_tries=1)
            app.subscribe("T", got.take)
            async with app:
                await got.count(COUNT - 1)
                await until(lambda: committed(cluster) == COUNT)

    run(main())
    (line,) = told(caplog, "pass over record")
    assert "file=none, [Errno" in line


def test_the_options_are_checked() -> None:
    client = Client("127.0.0.1:1")
    with pytest.raises(ConfigError, match="bad_records is 'maybe', known are skip, block"):
        client.push_consumer("cg", bad_records="maybe")
    with pytest.raises(ConfigError, match="bad_record_tries is 0"):
        client.push_consumer("cg", bad_record_tries=0)
    with pytest.raises(ConfigError, match="bad_records is 'maybe'"):
        client.pull_consumer("cg", bad_records="maybe")
