"""The quick scan of recovery takes what is plain, reads it as the full scan does, and leaves the rest to that one.

tests/fuzz/test_messages.py compares the two on mutated records.
"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.hashing import crc31, hash_on
from cometmq.wire.integers import i32_at, i64_at, u32_at
from cometmq.wire.record.message import encode_blank, encode_host, encode_record, encode_topic
from cometmq.wire.record.plain_scan import KeyPositions, PlainScan
from cometmq.wire.record.properties import find
from cometmq.wire.record.scan import OK, scan_record
from tests.support.records import SCANNED

HOST = encode_host((b"\x7f\0\0\1", 10911))
V6_HOST = encode_host((bytes(15) + b"\1", 10911))


def record(
    topic: str = "TopicA",
    properties: bytes = b"KEYS\x01k\x02",
    body: bytes = b"hello",
    sys_flag: int = 0,
    host: bytes = HOST,
) -> bytes:
    return encode_record(
        encode_topic(topic), body, properties, crc31(body), 3, 7, 42, 1 << 40, sys_flag, 5, host, 1 << 41, host, 0, 9
    )


@given(st.binary(min_size=8, max_size=30), st.integers(0, 22))
def test_numbers_are_those_of_a_struct(data: bytes, at: int) -> None:
    at = min(at, len(data) - 8)
    assert i64_at(data, at) == struct.unpack_from(">q", data, at)[0]
    assert i32_at(data, at) == struct.unpack_from(">i", data, at)[0]
    assert u32_at(data, at) == struct.unpack_from(">I", data, at)[0]


@pytest.mark.parametrize("body", [b"", b"x", bytes(1000)])
@pytest.mark.parametrize("properties", [b"KEYS\x01k\x02", b"\xff\xfe", "TAGS\x01ä\x02".encode()])
def test_a_plain_record_is_read_like_any_other(body: bytes, properties: bytes) -> None:
    data = b"\xaa" * 11 + record(properties=properties, body=body) + record("TopicB")
    plain = PlainScan()
    for _ in range(2):
        assert plain.take(data, 11, True)
        scan = scan_record(data, 11, len(data), True)
        assert [getattr(plain.scan, name) for name in SCANNED] == [getattr(scan, name) for name in SCANNED]
    assert plain.take(data, 11 + scan.size, True)
    assert plain.scan.topic == "TopicB"


@pytest.mark.parametrize(
    "data",
    [
        record(host=V6_HOST, sys_flag=0x30),
        record("T" * 200),
        record("SCHEDULE_TOPIC_XXXX", b"DELAY\x013\x02"),
        record(properties=b"INNER_NUM\x012\x02INNER_BASE\x017\x02"),
        encode_blank(200) + bytes(192),
    ],
    ids=["IPv6", "long topic", "delayed", "inner batch", "blank"],
)
def test_other_records_are_left_to_the_full_scan(data: bytes) -> None:
    assert not PlainScan().take(data, 0, True)


def test_what_is_torn_or_cut_is_never_taken() -> None:
    whole = record()
    for count in range(len(whole)):
        assert not PlainScan().take(whole[:count], 0, True)
    assert not PlainScan().take(whole[:-1] + b"\0", 0, True)
    assert not PlainScan().take(record("Top\0c"), 0, True)
    spoilt = whole[:90] + b"X" + whole[91:]
    assert not PlainScan().take(spoilt, 0, True)
    assert PlainScan().take(spoilt, 0, False)
    assert scan_record(spoilt, 0, len(spoilt), False).kind == OK


def check_spots(properties: bytes, before: bytes = b"??") -> bool:
    """Whether key_positions are found; if so, they must say what a reader of the text finds."""
    key_positions = KeyPositions()
    data = before + properties + b"KEYS\x01behind\x02"
    if not key_positions.look(data, len(before), len(before) + len(properties)):
        return False
    text = properties.decode("utf-8", "replace")
    assert data[key_positions.unique_at : key_positions.unique_end].decode() == (find(text, "UNIQ_KEY") or "")
    assert data[key_positions.keys_at : key_positions.keys_end].decode() == (find(text, "KEYS") or "")
    assert data[key_positions.tag_at : key_positions.tag_end].decode() == (find(text, "TAGS") or "")
    assert key_positions.unique_hash(-7, data) == hash_on(-7, find(text, "UNIQ_KEY") or "")
    assert key_positions.keys_hash(1 << 31, data) == hash_on(-(1 << 31), find(text, "KEYS") or "")
    assert b"\0" not in properties
    assert "INNER_" not in {pair.split("\x01")[0][:6] for pair in text.split("\x02")}
    return True


PIECES = [
    b"KEYS",
    b"TAGS",
    b"UNIQ_KEY",
    b"INNER_BASE",
    b"WAIT",
    b"KEYSS",
    b"\x01",
    b"\x02",
    b"a",
    b" ",
    b"\0",
    b"\xc3\xa4",
]


@given(st.lists(st.sampled_from(PIECES), max_size=14), st.binary(max_size=3))
def test_keys_in_the_bytes_are_those_of_the_text(pieces: list[bytes], before: bytes) -> None:
    check_spots(b"".join(pieces), before)


def test_keys_of_common_messages_are_found_in_their_bytes() -> None:
    unique, key, tag = b"UNIQ_KEY\x017F0001\x02", b"KEYS\x01order-1\x02", b"TAGS\x01paid\x02"
    others = b"a\x01\xc3\xa4\x02WAIT\x01\x02x\x01y\x01z"
    for properties in (b"", unique, unique + key + tag + others, others + b"\x02" + tag + key, key[:-1]):
        assert check_spots(properties), properties


@pytest.mark.parametrize(
    "properties",
    [
        b"KEYS\x01a b\x02",
        b"KEYS\x01a\x02KEYS\x01b\x02",
        b"TAGS\x01\x02",
        b"TAGS\x01\xc3\xa4\x02",
        b"INNER_MULTI_DISPATCH\x01q\x02",
        b"a\x01b\0c\x02",
        b"a\0\x01b\x02",
        b"KEYS\x01a\x02rest",
    ],
    ids=["two keys", "a name twice", "no value", "not ASCII", "inner", "zero in value", "zero in name", "no pair"],
)
def test_where_the_bytes_are_not_enough_the_text_is_made(properties: bytes) -> None:
    assert not check_spots(properties)
    plain = PlainScan()
    if plain.take(record(properties=properties), 0, True, True):
        assert not plain.has_key_positions
        assert plain.scan.properties == properties.decode()
