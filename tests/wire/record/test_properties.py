"""Message properties: what Java's decoder makes of odd text, and what we refuse to write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import WireError
from cometmq.wire.record.failure import FAILURE_NAMES
from cometmq.wire.record.properties import (
    PROPERTIES_BYTES_MAX,
    RESERVED_NAMES,
    Property,
    TextProperties,
    decode,
    decode_text,
    encode,
    encode_text,
    find,
    with_property,
    without,
)

PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
# Small alphabet: separators in every odd place, names that are parts of each other.
ODD = st.text(alphabet="ab\x01\x02é")


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        ("a\x01\x02b\x01x\x02", {"b": "x"}),
        ("\x01v\x02k\x01v\x02", {"k": "v"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01\x02", {"a": "b"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("\x02\x02ab\x02a\x01b", {"a": "b"}),
        ("", {}),
        ("ab", {}),
        ("k\x01v", {"k": "v"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
    ],
)
def test_odd_text_decodes_as_in_java(text: str, properties: dict[str, str]) -> None:
    assert decode_text(text) == properties
    assert decode(text.encode()) == properties
    assert {name: find(text, name) for name in properties} == properties


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    assert decode(b"k\x01\xff\x02") == {"k": "\ufffd"}


@given(st.dictionaries(PLAIN, PLAIN))
def test_what_is_encoded_decodes_to_the_same(properties: dict[str, str]) -> None:
    assert decode(encode(properties)) == properties


@given(st.dictionaries(PLAIN, PLAIN))
def test_the_text_form_is_the_same_as_bytes(properties: dict[str, str]) -> None:
    assert encode_text(properties).encode() == encode(properties)


@pytest.mark.parametrize("value", ["", "\x01", "\x02", "\ud800", "é" * 16_384, "x" * 32_768])
def test_the_text_form_is_refused_where_bytes_are(value: str) -> None:
    with pytest.raises(WireError):
        encode_text({"k": value})


def test_encoding_ends_every_pair_with_a_separator() -> None:
    assert encode({"KEYS": "k1 k2", "名字": "值"}) == "KEYS\x01k1 k2\x02名字\x01值\x02".encode()


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"": "v"}, "empty name or value"),
        ({"a": "b", "": "v"}, "empty name or value"),
        ({"a": "b", "k": ""}, "'k' has value ''"),
        ({"k\x01": "v"}, "0x01 or 0x02"),
        ({"a": "b", "k": "v\x02"}, "'k' holds 0x01"),
        ({"k": "\x01"}, "0x01 or 0x02"),
        ({"k": "\ud800"}, "surrogate"),
    ],
)
def test_what_could_not_be_read_back_is_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        encode(properties)


def test_encoded_length_is_limited_in_bytes() -> None:
    room = PROPERTIES_BYTES_MAX - len("k\x01\x02")
    assert len(encode({"k": "v" * room})) == PROPERTIES_BYTES_MAX
    with pytest.raises(WireError, match="32768 bytes, the limit is 32767"):
        encode({"k": "v" * (room + 1)})
    with pytest.raises(WireError, match="limit is 32767"):
        encode({"k": "值" * 11_000})


@given(ODD, st.sampled_from(["a", "b", "ab", "é", "aa"]))
def test_find_agrees_with_decoding_everything(text: str, name: str) -> None:
    assert find(text, name) == decode_text(text).get(name)


@given(ODD)
def test_names_that_are_asked_for_one_by_one_are_found_as_in_a_dict(text: str) -> None:
    names = ["a", "b", "ab", "é", "aa"] * 2
    properties = TextProperties(text)
    assert [properties.get(name) for name in names] == [decode_text(text).get(name) for name in names]


@given(ODD, st.sampled_from(["a", "b", "ab", "é", "aa"]))
def test_without_removes_one_name_and_nothing_else(text: str, name: str) -> None:
    expected = decode_text(text)
    expected.pop(name, None)
    assert decode_text(without(text, name)) == expected


def test_without_keeps_order_and_last_separator() -> None:
    text = "a\x011\x02__CRC32#\x010123456789\x02b\x012\x02"
    assert without(text, Property.CRC32) == "a\x011\x02b\x012\x02"
    assert without("a\x011\x02", Property.CRC32) == "a\x011\x02"


@given(ODD, st.sampled_from(["a", "b", "ab", "é", "aa"]))
def test_a_property_that_is_set_replaces_its_name_and_nothing_else(text: str, name: str) -> None:
    changed = with_property(text, name, "new")
    assert decode_text(changed) == {**decode_text(text), name: "new"}
    assert changed.endswith(f"{name}\x01new\x02")


def test_reserved_names_are_known_names() -> None:
    names = {value for key, value in vars(Property).items() if key.isupper()}
    assert names > RESERVED_NAMES
    assert names - RESERVED_NAMES == {
        *FAILURE_NAMES,
        "INNER_NUM",
        "INNER_BASE",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "__SHARDINGKEY",
        "PROPERTY_FORWARD_QUEUE_ID",
        "REDIRECT",
        "INNER_MULTI_DISPATCH",
        "TRACE_CONTEXT",
        "__RMQ.TRANSIENT.",
        "_SYS_MSG_PRIORITY_",
    }
