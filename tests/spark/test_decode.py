"""Columns made of whole batches say what decoding record by record says."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cometmq.errors import ConfigError, WireError
from cometmq.spark.columns import COLUMNS, NAMES, Column, chosen, viewed
from cometmq.spark.decode import Records, decode, record_starts
from cometmq.store.offline.dump import host_text
from cometmq.wire.compression import compress, decompress
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.layout import MAGIC_BLANK
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.message_id import encode_offset_id, offset_id_prefix
from cometmq.wire.record.sysflag import COMPRESSED, COMPRESSION_LZ4, INNER_BATCH, NEEDS_UNWRAP
from tests.support.golden import golden_commitlog


def expected(message: StoredMessage, broker: str) -> dict[str, Any]:
    properties = wire_properties.decode(message.properties)
    offset_id = encode_offset_id(offset_id_prefix(*message.store_host), message.physical_offset)
    packed = message.sys_flag & COMPRESSED
    return {
        "topic": message.topic,
        "brokerName": broker,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": properties.get("UNIQ_KEY", offset_id),
        "offsetMsgId": offset_id,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "body": decompress(message.body, message.sys_flag) if packed else message.body,
        "properties": properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag & ~COMPRESSED,
        "bornTimestamp": datetime.fromtimestamp(message.born_timestamp_ms / 1000, UTC),
        "storeTimestamp": datetime.fromtimestamp(message.store_timestamp_ms / 1000, UTC),
        "bornHost": host_text(message.born_host).lstrip("/"),
        "storeHost": host_text(message.store_host).lstrip("/"),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.record_bytes,
        "bodyCRC": message.body_crc,
    }


def records(data: bytes) -> Records:
    return Records(data, record_starts(data))


def rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    """As they are decoded with bodies of their own, and with views of them, which must be the same."""
    found, with_lent = (
        [row for batch in decode(records(data), "broker-a", columns, **options) for row in batch.to_pylist()]
        for columns in (COLUMNS, viewed(COLUMNS))
    )
    assert found == with_lent
    for row in found:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return found


def golden_run(name: Any) -> bytes:
    """All records of a golden store one after the other, without the blank ends of its files."""
    run = bytearray()
    for _, content in golden_commitlog(name):
        position = 0
        while position + 8 <= len(content):
            size = int.from_bytes(content[position : position + 4], "big")
            if size == 0 or int.from_bytes(content[position + 4 : position + 8], "big", signed=True) == MAGIC_BLANK:
                break
            run += content[position : position + size]
            position += size
    return bytes(run)


def message(number: int, random_: random.Random) -> StoredMessage:
    def host() -> tuple[bytes, int]:
        return random_.randbytes(random_.choice([4, 4, 16])), random_.randrange(1, 65_536)

    sys_flag = 0
    body = random_.randbytes(random_.randrange(0, 200))
    if random_.random() < 0.2:
        sys_flag, body = COMPRESSED | COMPRESSION_LZ4, compress(body, COMPRESSION_LZ4)
    properties = random_.choice(
        [
            b"",
            b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ABCD\x02",
            b"TAGS\x01A\x02KEYS\x01open at the end",
            b"a\x01b\x01c\x02\x01no name\x02no value\x01\x02no separator\x02TAGS\x01\xc3\xa9\x02",
            b"TAGS\x01first\x02TAGS\x01last\x02",
        ]
    )
    topic = random_.choice(["orders", "T", "a" * 200])
    return StoredMessage(
        0, 2 if len(topic) > 127 else 1, 0, number % 4, number, number // 4, number * 1000, sys_flag,
        1_700_000_000_000 + number, host(), 1_700_000_001_000 + number, host(), number % 3, number * 7, body, topic,
        properties,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_every_record_of_a_java_store_is_as_decoded_one_by_one(name: str) -> None:
    data = golden_run(name)
    wanted = [expected(one, "broker-a") for one in decode_records(data)]
    assert len(wanted) > 300
    assert rows(data) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_odd_records_are_as_decoded_one_by_one(seed: int) -> None:
    random_ = random.Random(seed)
    data = b"".join(message(number, random_).encode() for number in range(200))
    assert rows(data) == [expected(one, "broker-a") for one in decode_records(data, check_crc=False)]


def test_records_may_lie_apart() -> None:
    records = [message(number, random.Random(number)).encode() for number in range(50)]
    data, starts = bytearray(b"\xff" * 10), []
    for record in records:
        starts.append(len(data))
        data += record + b"\xee" * 33
    (batch,) = decode(Records(bytes(data), np.array(starts)), "b", chosen(["queueOffset", "body"]))
    wanted = [expected(one, "b") for one in decode_records(b"".join(records), check_crc=False)]
    assert batch.to_pylist() == [{"queueOffset": row["queueOffset"], "body": row["body"]} for row in wanted]


@pytest.mark.parametrize("columns", [COLUMNS, viewed(COLUMNS)])
def test_only_rows_of_a_tag_and_of_a_range_stay(columns: tuple[Column, ...]) -> None:
    random_ = random.Random(1)
    data = b"".join(message(number, random_).encode() for number in range(200))
    batches = list(decode(records(data), "broker-a", columns, tags=frozenset({"A"}), first=10, last=40))
    found = [(row["queueOffset"], row["body"]) for batch in batches for row in batch.to_pylist()]
    wanted = [row for row in rows(data) if row["tags"] == "A" and 10 <= row["queueOffset"] < 40]
    assert len(wanted) > 30
    assert found == [(row["queueOffset"], row["body"]) for row in wanted]


def test_only_the_columns_asked_for_are_made_in_their_order() -> None:
    data = message(1, random.Random(1)).encode()
    (batch,) = decode(Records(data, record_starts(data)), "b", chosen(["body", " TOPIC"]))
    assert batch.schema.names == ["body", "topic"]


def test_types_are_those_that_spark_takes() -> None:
    data = message(1, random.Random(1)).encode()
    (batch,) = decode(Records(data, record_starts(data)), "b")
    assert batch.schema.names == list(NAMES)
    assert batch.schema.field("properties").type == pa.map_(pa.string(), pa.string())
    assert batch.schema.field("bornTimestamp").type == pa.timestamp("us", tz="UTC")


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no columns bdoy; there are topic, brokerName"):
        chosen(["bdoy"])


def test_compressed_bodies_can_stay_as_they_are() -> None:
    one = message(1, random.Random(1))
    one.sys_flag, one.body = COMPRESSED, compress(b"x" * 100, 0x300)
    (row,) = rows(one.encode(), inflate=False)
    assert (row["body"], row["sysFlag"] & COMPRESSED) == (one.body, COMPRESSED)


def test_an_inner_batch_becomes_its_messages() -> None:
    outer = message(1, random.Random(3))
    outer.queue_offset, outer.sys_flag, outer.properties = 40, INNER_BATCH | NEEDS_UNWRAP, b"INNER_NUM\x013\x02"
    outer.body = encode_batch([(7, b"a", b"TAGS\x01x\x02"), (8, b"bb", b""), (9, b"", b"")])
    before, after = message(0, random.Random(1)), message(2, random.Random(2))
    found = rows(before.encode() + outer.encode() + after.encode())
    assert [row["flag"] for row in found] == [0, 7, 8, 9, 2]
    inner = [(row["queueOffset"], row["body"], row["tags"]) for row in found[1:4]]
    assert inner == [(40, b"a", "x"), (41, b"bb", None), (42, b"", None)]


@pytest.mark.parametrize("seed", range(10))
def test_broken_bytes_are_an_error_that_says_where(seed: int) -> None:
    random_ = random.Random(seed)
    record = bytearray(b"".join(message(number, random_).encode() for number in range(5)))
    starts = record_starts(record)
    victim = int(starts[2])
    record[victim + 4 : victim + 8] = b"oops"
    with pytest.raises(WireError, match=f"byte {victim} has no magic number"):
        list(decode(Records(bytes(record), starts), "b"))


@pytest.mark.parametrize("seed", range(300))
def test_no_bytes_make_it_read_outside(seed: int) -> None:
    random_ = random.Random(seed)
    data = bytearray(b"".join(message(number, random_).encode() for number in range(5)))
    starts = record_starts(data)
    for _ in range(random_.randrange(1, 6)):
        data[random_.randrange(len(data))] = random_.randrange(256)
    if random_.random() < 0.5:
        del data[-random_.randrange(1, 120) :]
    try:
        columns = viewed(COLUMNS) if seed % 2 else COLUMNS
        count = sum(batch.num_rows for batch in decode(Records(bytes(data), starts), "b", columns, inflate=False))
    except WireError:
        return
    assert count >= 5


def test_nothing_makes_nothing() -> None:
    assert list(decode(Records(b"", record_starts(b"")), "b", COLUMNS)) == []
