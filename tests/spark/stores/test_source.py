"""The format cometmq_store: what is in a store directory, row for row."""

from __future__ import annotations

import gc
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import StoreError
from cometmq.spark.columns import COLUMNS, NAMES
from cometmq.spark.runtime.gc_freeze import settle
from cometmq.spark.stores.partitions import StoreDirectory, mapped_once
from cometmq.spark.stores.source import Reading, _options, directories
from tests.support.golden import copy_golden_store, golden_messages, golden_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NUMBERS = (
    "queueId", "queueOffset", "flag", "sysFlag", "reconsumeTimes", "preparedTransactionOffset", "commitLogOffset",
    "storeSize", "bodyCRC",
)  # fmt: skip


@pytest.fixture
def read(spark: SparkSession) -> Callable[..., DataFrame]:
    def load(path: Path | str, **options: Any) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        return spark.read.format("cometmq_store").options(**texts).load(str(path))

    return load


def identity(row: Any) -> tuple[str, int, int]:
    return row["topic"], row["queueId"], row["queueOffset"]


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_a_java_store_has_the_rows_that_a_java_consumer_read(read: Callable[..., DataFrame], name: Any) -> None:
    recorded = {identity(message): message for message in golden_messages(name)}
    topics = ",".join(sorted({topic for topic, _, _ in recorded}))
    rows = read(golden_store(name), subscribe=topics).collect()
    assert {identity(row) for row in rows} == set(recorded)
    assert len(rows) == len(recorded)
    assert sorted(map(as_recorded, rows), key=identity) == sorted(map(without_added, recorded.values()), key=identity)


def as_recorded(row: Any) -> dict[str, Any]:
    """A row in the words of the record; every column that the record speaks of."""
    told = {name: row[name] for name in ("topic", "msgId", "properties")}
    told |= {name: row[name] for name in NAMES if name in NUMBERS}
    told |= {name: int(row[name].timestamp() * 1000) for name in ("bornTimestamp", "storeTimestamp")}
    told |= {name: f"/{row[name]}" for name in ("bornHost", "storeHost")}
    return {**told, "bodyHex": bytes(row["body"]).hex()}


def without_added(message: dict[str, Any]) -> dict[str, Any]:
    """A record without what the Java consumer adds to every message it gets."""
    kept = {key: value for key, value in message["properties"].items() if key not in ("MIN_OFFSET", "MAX_OFFSET")}
    return {**message, "properties": kept}


def test_by_log_every_record_is_a_row_and_ranges_share_none(read: Callable[..., DataFrame]) -> None:
    whole = read(golden_store("clean"), split="log", columns="commitLogOffset,storeSize").collect()
    cut = read(golden_store("clean"), split="log", columns="commitLogOffset,storeSize", maxBytesPerPartition=10_007)
    assert cut.rdd.getNumPartitions() > 20
    assert sorted(cut.collect()) == sorted(whole)
    assert len(whole) == 345


def test_a_cut_queue_has_each_message_once(read: Callable[..., DataFrame]) -> None:
    wanted = {identity(message) for message in golden_messages("clean")}
    topics = ",".join({topic for topic, _, _ in wanted})
    frame = read(golden_store("clean"), subscribe=topics, maxBytesPerPartition=3000, batchRows=3)
    rows = [identity(row) for row in frame.collect()]
    assert sorted(rows) == sorted(wanted)


def test_columns_may_be_chosen(read: Callable[..., DataFrame], spark: SparkSession) -> None:
    assert read(golden_store("clean")).columns == list(NAMES)
    assert read(golden_store("clean"), columns="body, queueId").columns == ["body", "queueId"]
    projected = spark.read.format("cometmq_store").schema("queueOffset BIGINT, body BINARY")
    given = projected.load(str(golden_store("clean")))
    assert given.columns == ["queueOffset", "body"]
    assert given.count() > 100


def test_several_stores_are_read_at_once(read: Callable[..., DataFrame]) -> None:
    paths = json.dumps({"broker-a": str(golden_store("clean")), "broker-b": str(golden_store("crash"))})
    counts = {row["brokerName"]: row["count"] for row in read(paths).groupBy("brokerName").count().collect()}
    assert set(counts) == {"broker-a", "broker-b"}
    assert sum(counts.values()) == read(golden_store("clean")).count() + read(golden_store("crash")).count()


def test_filters_leave_partitions_out_and_rows_right(read: Callable[..., DataFrame]) -> None:
    frame = read(golden_store("clean"), filterPushdown=True)
    topic = golden_messages("clean")[0]["topic"]
    some = frame.filter((frame.topic == topic) & (frame.queueId == 1) & (frame.queueOffset >= 2))
    wanted = [one for one in golden_messages("clean") if identity(one)[:2] == (topic, 1) and one["queueOffset"] >= 2]
    assert some.rdd.getNumPartitions() == 1
    assert sorted(row["msgId"] for row in some.collect()) == sorted(one["msgId"] for one in wanted)


def test_time_bounds_hold(read: Callable[..., DataFrame]) -> None:
    times = sorted(message["storeTimestamp"] for message in golden_messages("clean"))
    middle = times[len(times) // 2]
    topics = ",".join({message["topic"] for message in golden_messages("clean")})
    below = read(golden_store("clean"), subscribe=topics, endingTimestamp=middle).count()
    above = read(golden_store("clean"), subscribe=topics, startingTimestamp=middle).count()
    assert below == sum(time < middle for time in times)
    assert below + above == len(times)


def test_log_files_stay_mapped_for_those_who_read_on_and_no_longer(tmp_path: Path) -> None:
    store = StoreDirectory.at(str(copy_golden_store("clean", tmp_path / "store")), "broker-a")
    (ranges,) = store.queue_shares(lambda topic: True, 1 << 30)
    reading = Reading(COLUMNS, True, False, False, 8192, 16 << 20)
    assert len(ranges) > 1

    def read() -> list[Any]:
        return [row for one in ranges for batch in store.read(one, reading) for row in batch.to_pylist()]

    alone = read()
    assert mapped(tmp_path) == 0
    with mapped_once():
        with mapped_once():
            assert read() == alone
        assert read() == alone
        assert mapped(tmp_path) == len({path for _, path, _ in store.log_files()})
        # Another file of that name is not taken for the one before.
        (_, first, _), *_ = store.log_files()
        Path(first).unlink()
        Path(first).write_bytes(bytes(1 << 20))
        with pytest.raises(StoreError, match="has no magic number"):
            read()
    assert mapped(tmp_path) == 0


@pytest.mark.parametrize("bytes_max", [1, 3000, 1 << 16, 1 << 30])
def test_shares_have_every_message_once_and_each_a_stretch_of_the_log(tmp_path: Path, bytes_max: int) -> None:
    store = StoreDirectory.at(str(copy_golden_store("clean", tmp_path / "store")), "broker-a")
    reading = Reading(COLUMNS, True, False, False, 7, 16 << 20)
    shares = list(store.queue_shares(lambda topic: True, bytes_max))
    assert (len(shares) == 1) == (bytes_max == 1 << 30)
    assert any(len(share) > 1 for share in shares) == (bytes_max > 1)
    read = [[row for batch in store.read_queues(share, reading) for row in batch.to_pylist()] for share in shares]
    places = [row["commitLogOffset"] for rows in read for row in rows]
    assert places == sorted(set(places)), "in the order of the log, in a share and from one to the next"
    expected: list[tuple[str, int, int]] = []
    for topic, queue_id in store.queues(lambda topic: True):
        first, units = store.units(topic, queue_id)
        expected += [(topic, queue_id, first + number) for number in range(len(units))]
    assert sorted(identity(row) for rows in read for row in rows) == sorted(expected)
    heavy = [sum(row["storeSize"] for row in rows) for rows in read]
    largest = max(row["storeSize"] for rows in read for row in rows)
    assert max(heavy) <= 1.3 * bytes_max + largest


def test_a_record_that_several_queues_name_is_a_row_of_each(tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    topic = golden_messages("clean")[0]["topic"]
    shutil.copytree(root / "consumequeue" / topic, root / "consumequeue" / "%LMQ%light")
    store = StoreDirectory.at(str(root), "broker-a")
    reading = Reading(COLUMNS, True, False, False, 8192, 16 << 20)
    (share,) = store.queue_shares(lambda name: name in (topic, "%LMQ%light"), 1 << 30)
    rows = [identity(row) for batch in store.read_queues(share, reading) for row in batch.to_pylist()]
    once = {identity(message) for message in golden_messages("clean") if message["topic"] == topic}
    assert sorted(rows) == sorted([*once, *once])


def test_queues_without_messages_have_no_rows(read: Callable[..., DataFrame], tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    (unit_file,) = (root / "consumequeue" / golden_messages("clean")[0]["topic"] / "0").iterdir()
    for topic, content in (("Zeros", bytes(unit_file.stat().st_size)), ("NoFile", None)):
        (root / "consumequeue" / topic / "0").mkdir(parents=True)
        if content:
            (root / "consumequeue" / topic / "0" / unit_file.name).write_bytes(content)
    assert read(root, subscribe="Zeros,NoFile").collect() == []
    assert read(root, subscribe="Missing").collect() == []


def test_units_that_name_no_message_are_told_or_left_out(tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    topic = golden_messages("clean")[0]["topic"]
    (unit_file,) = (root / "consumequeue" / topic / "0").iterdir()
    units = bytearray(unit_file.read_bytes())
    units[20:40] = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    unit_file.write_bytes(units)
    store = StoreDirectory.at(str(root), "broker-a")

    def offsets(skip_bad: bool) -> list[int]:
        reading = Reading(COLUMNS, True, skip_bad, False, 8192, 16 << 20)
        (share,) = store.queue_shares(lambda name: name == topic, 1 << 30)
        rows = [row for batch in store.read_queues(share, reading) for row in batch.to_pylist()]
        return [row["queueOffset"] for row in rows if row["queueId"] == 0]

    recorded = map(identity, golden_messages("clean"))
    everything = {offset for name, queue_id, offset in recorded if (name, queue_id) == (topic, 0)}
    with pytest.raises(StoreError, match=f"unit 1 of {topic} queue 0 .* names no record ..0, 2147483647, 0.."):
        offsets(False)
    assert offsets(True) == sorted(everything - {1})
    units[0:20] = units[20:40]
    unit_file.write_bytes(units)
    assert offsets(False) == sorted(everything - {0, 1}), "those before the first one say that the queue begins there"
    units[40:60] = bytes(20)
    unit_file.write_bytes(units)
    with pytest.raises(StoreError, match=f"unit 2 of {topic} queue 0 .* is empty .* rebuild the queue"):
        offsets(False)
    assert offsets(True) == sorted(everything - {0, 1, 2})


def test_log_files_that_are_deleted_after_planning_are_told(tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    store = StoreDirectory.at(str(root), "broker-a")
    (share,) = store.queue_shares(lambda name: True, 1 << 30)
    log, *_ = store.log_ranges(1 << 40)
    min((root / "commitlog").iterdir()).unlink()

    def read(skip_bad: bool) -> tuple[list[Any], list[Any]]:
        reading = Reading(COLUMNS, True, skip_bad, False, 8192, 16 << 20)
        return list(store.read_queues(share, reading)), list(store.read(log, reading))

    with pytest.raises(StoreError, match="deleted meanwhile; read again"):
        read(False)
    reading = Reading(COLUMNS, True, False, False, 8192, 16 << 20)
    with pytest.raises(StoreError, match="begins after 0 now: its oldest files were deleted meanwhile"):
        list(store.read(log, reading))
    assert read(True) == ([], []), "all messages were in that file"


def test_a_worker_sets_aside_what_it_has_loaded_and_a_driver_does_not(spark: SparkSession) -> None:
    settle()
    assert gc.get_freeze_count() == 0

    def work(batches: Any) -> Any:
        import pyarrow as pa

        settle()
        yield from (pa.record_batch({"frozen": [gc.get_freeze_count()]}) for _ in batches)

    (row,) = spark.range(1).coalesce(1).mapInArrow(work, "frozen LONG").collect()
    assert row["frozen"] > 10_000


def mapped(folder: Path) -> int:
    """How many maps of files below it this process has."""
    gc.collect()
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_damaged_record_is_named_or_left_out(read: Callable[..., DataFrame], tmp_path: Path) -> None:
    store = copy_golden_store("clean", tmp_path / "store")
    victim = golden_messages("clean")[5]
    files = sorted((store / "commitlog").iterdir())
    file = [one for one in files if int(one.name) <= victim["commitLogOffset"]][-1]
    content = bytearray(file.read_bytes())
    at = victim["commitLogOffset"] - int(file.name)
    content[at + 4 : at + 8] = b"oops"
    file.write_bytes(content)
    with pytest.raises(Exception, match=rf"byte {at} has no magic number of a message; check the store"):
        read(store, subscribe=victim["topic"]).collect()
    left = read(store, subscribe=victim["topic"], badRecords="skip").collect()
    all_of_it = [identity(one) for one in golden_messages("clean") if one["topic"] == victim["topic"]]
    assert {identity(row) for row in left} == set(all_of_it) - {identity(victim)}
    by_log = read(store, split="log", badRecords="skip", columns="commitLogOffset").collect()
    assert len(by_log) == 344
    assert victim["commitLogOffset"] not in {row[0] for row in by_log}


def test_a_wrong_body_is_found_with_its_crc(read: Callable[..., DataFrame], tmp_path: Path) -> None:
    store = copy_golden_store("clean", tmp_path / "store")
    victim = next(one for one in golden_messages("clean") if len(one["bodyHex"]) > 20)
    file = [one for one in sorted((store / "commitlog").iterdir()) if int(one.name) <= victim["commitLogOffset"]][-1]
    content = bytearray(file.read_bytes())
    content[victim["commitLogOffset"] - int(file.name) + 90] ^= 0xFF
    file.write_bytes(content)
    assert read(store, subscribe=victim["topic"], columns="queueId").count() > 0
    with pytest.raises(Exception, match="does not match its CRC"):
        read(store, subscribe=victim["topic"], checkCrc=True, columns="queueId").collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscibe": "T"}, "no option subscibe: do you mean subscribe"),
        ({"split": "half"}, "split=half is none of queue, log"),
        ({"columns": "bdoy"}, "no columns bdoy"),
        ({"subscribePattern": "["}, "no regular expression"),
        ({"batchRows": "0"}, "batchRows=0 is below 1"),
    ],
)
def test_a_wrong_option_is_named(read: Callable[..., DataFrame], options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        read(golden_store("clean"), **options).collect()


def test_what_is_no_store_is_named(read: Callable[..., DataFrame], tmp_path: Path) -> None:
    with pytest.raises(Exception, match="is no store directory"):
        read(tmp_path).collect()
    assert directories(_options({"path": str(golden_store("clean"))}))[0].broker_name == "store"
