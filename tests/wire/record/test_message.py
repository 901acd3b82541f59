"""The stored record: golden bytes, identity of encoding and decoding, and what is refused."""

import ipaddress
import mmap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import WireError
from cometmq.wire.hashing import crc31
from cometmq.wire.record.layout import BLANK_BYTES, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT, RECORD_BYTES_MIN
from cometmq.wire.record.message import (
    StoredMessage,
    decode_record,
    decode_records,
    encode_blank,
    encode_host,
    encode_record,
    encode_topic,
    fill_record,
    record_size,
    store_timestamp_at,
    write_record,
)
from tests.support.golden import golden_records
from tests.support.records import FIELDS, GOLDEN_RECORD, I64, Fields

LOCALHOST = encode_host((b"\x7f\0\0\1", 10911))


def a_record(body: bytes = b"hello", topic: str = "TopicA", properties: bytes = b"") -> bytes:
    topic_field = encode_topic(topic)
    return encode_record(topic_field, body, properties, crc31(body), 1, 7, 0, 0, 0, 0, LOCALHOST, 0, LOCALHOST, 0, 0)


def changed(record: bytes, at: int, value: bytes) -> bytes:
    return record[:at] + value + record[at + len(value) :]


def test_golden_record_decodes_field_by_field() -> None:
    message = decode_record(GOLDEN_RECORD)
    assert message.record_bytes == 123
    assert message.version == 1
    assert message.body_crc == 0x3610A686
    assert (message.queue_id, message.flag) == (1, 7)
    assert (message.queue_offset, message.physical_offset, message.sys_flag) == (0, 0, 0)
    assert message.born_timestamp_ms == 1_700_000_000_000
    assert message.born_host == (bytes([10, 1, 2, 3]), 0x1234)
    assert message.store_timestamp_ms == 0x1A1DDFD7BB0
    assert message.store_host == (bytes([127, 0, 0, 1]), 10911)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (3, 0)
    assert (message.body, message.topic) == (b"hello", "TopicA")
    assert message.properties == b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02"
    assert message.encode() == GOLDEN_RECORD


def test_body_of_32_and_topic_of_6_make_129_bytes() -> None:
    assert len(a_record(body=bytes(32), topic="TopicA")) == 129
    assert len(a_record(body=b"", topic="")) == RECORD_BYTES_MIN == 91


@pytest.mark.parametrize("golden", [row for row in golden_records() if not row["crc_reserved"]])
def test_record_is_byte_for_byte_what_java_encodes(golden: dict[str, Any]) -> None:
    record = encode_record(
        encode_topic(golden["topic"]),
        b"hello",
        b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02",
        crc31(b"hello"),
        1,
        7,
        5,
        0,
        8,
        1_700_000_000_000,
        encode_host((ipaddress.ip_address(golden["born_host"]).packed, 4660)),
        1_700_000_000_123,
        encode_host((ipaddress.ip_address(golden["store_host"]).packed, 10911)),
        3,
        99,
    )
    assert record.hex() == golden["record_hex"]
    assert decode_record(record).topic == golden["topic"]
    assert decode_record(record).version == (1 if golden["topic"] == "TopicA" else 2)


@given(FIELDS)
def test_decoding_gives_back_every_field(fields: Fields) -> None:
    record = fields.encode()
    message = decode_record(record)
    hosts_v6 = (0x10 if len(fields.born_host[0]) == 16 else 0) | (0x20 if len(fields.store_host[0]) == 16 else 0)
    assert message.sys_flag == fields.sys_flag & ~0x30 | hosts_v6
    fields.sys_flag = message.sys_flag
    assert {name: getattr(message, name) for name in vars(fields)} == vars(fields)
    assert message.record_bytes == len(record)
    assert message.body_crc == crc31(fields.body)
    assert message.encode() == record


@given(FIELDS, st.integers(0, 50), st.sampled_from([bytes, bytearray, memoryview]))
def test_decoding_starts_anywhere_in_any_buffer(fields: Fields, position: int, kind: type) -> None:
    record = fields.encode()
    buffer = kind(bytes(position) + record + b"\xff" * 7)
    message = decode_record(buffer, position)
    assert message.encode() == record
    assert type(message.body) is bytes
    assert type(message.properties) is bytes


@given(FIELDS)
def test_record_ends_before_the_limit(fields: Fields) -> None:
    record = fields.encode()
    assert decode_record(record + record, 0, len(record)).record_bytes == len(record)
    with pytest.raises(WireError):
        decode_record(record + record, 0, len(record) - 1)


def test_writing_into_mapped_memory_touches_only_the_record() -> None:
    message = decode_record(GOLDEN_RECORD)
    topic_field = encode_topic("TopicA")
    size = record_size(topic_field, 5, len(message.properties), LOCALHOST, LOCALHOST)
    memory = mmap.mmap(-1, 4096)
    with memoryview(memory) as buffer:
        buffer[:] = b"\xee" * 4096
        written = write_record(
            buffer,
            1000,
            topic_field,
            b"hello",
            message.properties,
            message.body_crc,
            1,
            7,
            0,
            0,
            0,
            message.born_timestamp_ms,
            encode_host(message.born_host),
            message.store_timestamp_ms,
            encode_host(message.store_host),
            3,
            0,
        )
        assert written == size == 123
        assert bytes(buffer) == b"\xee" * 1000 + GOLDEN_RECORD + b"\xee" * (4096 - 1123)
    memory.close()


@given(FIELDS, I64, I64, I64, st.integers(0, 30))
def test_fields_of_the_commit_log_are_filled_in_later(
    fields: Fields, queue_offset: int, physical_offset: int, store_timestamp_ms: int, position: int
) -> None:
    fields.queue_offset = fields.physical_offset = fields.store_timestamp_ms = 0
    buffer = bytearray(bytes(position) + fields.encode())
    fill_record(buffer, position, queue_offset, physical_offset, store_timestamp_ms)
    fields.queue_offset, fields.physical_offset = queue_offset, physical_offset
    fields.store_timestamp_ms = store_timestamp_ms
    assert buffer[position:] == fields.encode()


def test_offsets_of_those_fields_are_public() -> None:
    record = decode_record(GOLDEN_RECORD)
    record.queue_offset, record.physical_offset, record.store_timestamp_ms = 1, 2, 3
    for address, timestamp_at in ((b"\1\2\3\4", 56), (bytes(16), 68)):
        record.born_host = (address, 1)
        data = record.encode()
        assert data[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8] == (1).to_bytes(8, "big")
        assert data[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] == (2).to_bytes(8, "big")
        assert store_timestamp_at(b"xx" + data, 2) == 2 + timestamp_at
        assert data[timestamp_at : timestamp_at + 8] == (3).to_bytes(8, "big")


def test_blank_record_has_the_rest_of_the_file_and_its_magic() -> None:
    assert encode_blank(300) == bytes.fromhex("0000012ccbd43194")
    assert len(encode_blank(8)) == BLANK_BYTES
    with pytest.raises(WireError, match="blank record"):
        decode_record(encode_blank(300) + bytes(292))


def test_version_follows_the_topic_length_unless_given() -> None:
    assert encode_topic("T" * 127)[:1] == b"\x7f"
    assert encode_topic("T" * 128)[:2] == b"\x00\x80"
    assert encode_topic("T", 2) == b"\x00\x01T"
    assert encode_topic("T" * 255)[:2] == b"\x00\xff"
    with pytest.raises(WireError, match="topic has 256 bytes, the limit of record version 2 is 255"):
        encode_topic("T" * 256)
    with pytest.raises(WireError, match="topic has 128 bytes, the limit of record version 1 is 127"):
        encode_topic("T" * 128, 1)


def test_properties_are_limited_on_writing() -> None:
    assert decode_record(a_record(properties=b"x" * 32767)).properties == b"x" * 32767
    with pytest.raises(WireError, match="properties of 32768 bytes, the limit is 32767"):
        a_record(properties=b"x" * 32768)


def test_number_that_does_not_fit_its_field_is_refused() -> None:
    message = decode_record(GOLDEN_RECORD)
    message.queue_id = 2**31
    with pytest.raises(WireError, match="does not fit its field"):
        message.encode()


@pytest.mark.parametrize(("host", "reason"), [((b"abc", 1), "has 3 bytes"), ((b"abcd", 65536), "port is 65536")])
def test_host_that_is_none_is_refused(host: tuple[bytes, int], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        encode_host(host)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "0 bytes are left"),
        (GOLDEN_RECORD[:90], "90 bytes are left"),
        (GOLDEN_RECORD[:-1], "total size is 123, 122 bytes are left"),
        (changed(GOLDEN_RECORD, 0, b"\0\0\0\x5a"), "total size is 90"),
        (changed(GOLDEN_RECORD, 0, b"\xff\xff\xff\xff"), "total size is -1"),
        (changed(GOLDEN_RECORD, 0, b"\0\0\0\x7a"), "properties of 21 bytes at 105, the record ends at 125"),
        (changed(GOLDEN_RECORD, 4, b"\0\0\0\0"), "magic is 0x00000000"),
        (changed(GOLDEN_RECORD, 8, b"\0\0\0\0"), "body has CRC 907060870, the record says 0"),
        (changed(GOLDEN_RECORD, 52, b"\0\1\0\0"), "ports are 65536 and 10911"),
        (changed(GOLDEN_RECORD, 68, b"\xff\xff\xff\xff"), "ports are 4660 and -1"),
        (changed(GOLDEN_RECORD, 84, b"\xff\xff\xff\xff"), "body of -1 bytes"),
        (changed(GOLDEN_RECORD, 84, b"\x7f\xff\xff\xff"), "body of 2147483647 bytes"),
        (changed(GOLDEN_RECORD, 93, b"\x80"), "topic of 128 bytes: the limit is 127"),
        (changed(GOLDEN_RECORD, 93, b"\x7f"), "topic of 127 bytes: .* the record ends at 126"),
        (changed(GOLDEN_RECORD, 94, b"\xff"), "topic is not UTF-8"),
        (changed(GOLDEN_RECORD, 100, b"\xff\xff"), "properties of -1 bytes"),
        (changed(GOLDEN_RECORD, 100, b"\0\x16"), "properties of 22 bytes at 105"),
        (changed(GOLDEN_RECORD, 88, b"J"), "body has CRC"),
    ],
)
def test_malformed_record_is_refused_with_the_reason(record: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason) as caught:
        decode_record(b"xxx" + record, 3)
    assert "record at byte 3" in str(caught.value)


def test_ipv6_host_that_does_not_fit_is_refused() -> None:
    smallest = changed(a_record(body=b"", topic=""), 36, b"\0\0\0\x30")
    with pytest.raises(WireError, match="91 bytes are left, its fixed part has 112"):
        decode_record(smallest)


def test_body_crc_is_not_checked_when_asked_not_to() -> None:
    assert decode_record(changed(GOLDEN_RECORD, 88, b"J"), check_crc=False).body == b"Jello"


@given(st.lists(FIELDS, max_size=5))
def test_answer_body_is_records_back_to_back(many: list[Fields]) -> None:
    data = b"".join(fields.encode() for fields in many)
    messages = decode_records(data)
    assert b"".join(message.encode() for message in messages) == data
    assert [message.topic for message in messages] == [fields.topic for fields in many]


def test_answer_with_too_many_messages_is_refused() -> None:
    assert len(decode_records(GOLDEN_RECORD * 3, count_max=3)) == 3
    with pytest.raises(WireError, match="over 2 messages, 123 bytes are left"):
        decode_records(GOLDEN_RECORD * 3, count_max=2)


def test_answer_with_bytes_after_the_last_record_is_refused() -> None:
    with pytest.raises(WireError, match="record at byte 123"):
        decode_records(GOLDEN_RECORD + b"\0")


def test_stored_message_can_be_built_and_encoded() -> None:
    message = StoredMessage(0, 1, 0, 3, 0, 0, 0, 0, 0, (bytes(4), 0), 0, (bytes(16), 0), 0, 0, b"", "T", b"a\x01b\x02")
    assert decode_record(message.encode()).sys_flag == 0x20
