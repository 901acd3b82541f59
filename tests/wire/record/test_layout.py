"""One table says where the fields of a record lie, and every reader finds in them what the writer put there."""

from struct import calcsize, unpack_from
from typing import Any

import pytest
from hypothesis import given

from cometmq.spark.decode import Records, Rows, record_starts
from cometmq.store.record import properties_at
from cometmq.wire.hashing import crc31
from cometmq.wire.record.layout import BODY_AT, FIELDS, HOST_PARTS, V6_SHIFT, place_of, struct_of, structs_of
from cometmq.wire.record.message import decode_record, encode_host, encode_record, encode_topic, store_timestamp_at
from cometmq.wire.record.plain_scan import PlainScan
from cometmq.wire.record.scan import OK, scan_record
from tests.support.records import FIELDS as DRAWN
from tests.support.records import GOLDEN_RECORD, Fields

V4 = encode_host((b"\x7f\0\0\1", 10911))
V6 = encode_host((bytes(range(16)), 10911))
HOSTS = [(V4, V4), (V6, V4), (V4, V6), (V6, V6)]
# What Rows calls the fields of the table.
COLUMN_OF = {
    "record_bytes": "storeSize",
    "body_crc": "bodyCRC",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "physical_offset": "commitLogOffset",
    "sys_flag": "sysFlag",
    "born_timestamp_ms": "bornTimestamp",
    "store_timestamp_ms": "storeTimestamp",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
    "body_bytes": "bodyLength",
}


def a_record(born: bytes = V4, store: bytes = V4) -> bytes:
    """Every field has a value of its own."""
    body = b"hello"
    return encode_record(
        encode_topic("TopicA"), body, b"KEYS\x01k\x02", crc31(body), 3, 7, 42, 1 << 40, 1, 5, born, 1 << 41, store, 2, 9
    )


def by_the_table(record: bytes) -> dict[str, Any]:
    hosts_v6 = record[39] >> 4 & 3
    names = tuple(field.name for field in FIELDS)
    return dict(zip(names, struct_of(names, hosts_v6).unpack_from(record), strict=True))


def test_fields_lie_side_by_side_up_to_the_body() -> None:
    end = 0
    for field in FIELDS:
        assert field.at == end
        end += calcsize(">" + field.code)
    assert end == BODY_AT


@pytest.mark.parametrize("hosts_v6", range(4))
def test_a_wide_host_moves_what_follows(hosts_v6: int) -> None:
    end = 0
    for field in FIELDS:
        wide = (field.name == "born_host" and hosts_v6 & 1) or (field.name == "store_host" and hosts_v6 & 2)
        assert place_of(field.name, hosts_v6) == end
        end += calcsize(">" + field.code) + (V6_SHIFT if wide else 0)


def test_parts_of_a_host_are_its_address_and_its_port() -> None:
    read = struct_of(tuple(field.name for field in HOST_PARTS), 2)
    record = a_record(V4, V6)
    assert read.unpack_from(record) == (b"\x7f\0\0\1", 10911, bytes(range(16)), 10911)


def test_the_golden_record_by_the_table() -> None:
    found = by_the_table(GOLDEN_RECORD)
    assert found["record_bytes"] == 123 == len(GOLDEN_RECORD)
    assert (found["queue_id"], found["flag"], found["reconsume_times"], found["body_bytes"]) == (1, 7, 3, 5)
    assert found["born_host"] == bytes.fromhex("0a01020300001234")
    assert found["store_host"] == V4
    assert found["born_timestamp_ms"] == 1_700_000_000_000


@pytest.mark.parametrize(("born", "store"), HOSTS)
def test_every_reader_finds_the_same_fields(born: bytes, store: bytes) -> None:
    check_readers(a_record(born, store))


@given(DRAWN)
def test_every_reader_finds_the_same_fields_in_any_record(fields: Fields) -> None:
    check_readers(fields.encode())


def check_readers(record: bytes) -> None:
    table = by_the_table(record)
    view = memoryview(record)
    message = decode_record(record)
    for name in table.keys() - {"magic", "born_host", "store_host", "body_bytes"}:
        assert getattr(message, name) == table[name], name
    assert len(message.body) == table["body_bytes"]
    assert encode_host(message.born_host) == table["born_host"]
    assert encode_host(message.store_host) == table["store_host"]

    at = store_timestamp_at(record, 0)
    assert unpack_from(">q", record, at)[0] == table["store_timestamp_ms"]
    assert record[properties_at(view, 0, len(record)) :] == message.properties

    scan = scan_record(record, 0, len(record), True)
    plain = PlainScan()
    scans = [scan] * (scan.kind == OK) + [plain.scan] * plain.take(record, 0, True)
    for one in scans:
        assert one.size == table["record_bytes"]
        for name in ("queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp_ms"):
            assert getattr(one, name) == table[name], name
        assert one.prepared_transaction_offset == table["prepared_transaction_offset"]

    columns = Rows(Records(record, record_starts(record))).fields
    for name, column in COLUMN_OF.items():
        assert int(columns[column][0]) == table[name], name


def test_all_four_readers_take_a_common_record() -> None:
    record = a_record()
    assert scan_record(record, 0, len(record), True).kind == OK
    assert PlainScan().take(record, 0, True)


def test_structs_are_by_the_bits_of_the_hosts() -> None:
    ends = [one.size for one in structs_of(("body_bytes",))]
    assert ends == [BODY_AT, BODY_AT + V6_SHIFT, BODY_AT + V6_SHIFT, BODY_AT + 2 * V6_SHIFT]
