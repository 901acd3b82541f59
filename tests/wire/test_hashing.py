"""Java's string hash and the 31-bit CRC, against values that Java computed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.hashing import crc31, hash_on, java_string_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TopicA#k1", -1903240649),
        ("polygenelubricants", -(2**31)),
        ("🚀", 1773027),
        ("日本🚀TagA", -1157791471),
    ],
)
def test_string_hash_is_what_java_computes(text: str, value: int) -> None:
    assert java_string_hash(text) == value


@given(st.text())
def test_string_hash_runs_over_utf16_units(text: str) -> None:
    data = text.encode("utf-16-be")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    value = 0
    for unit in units:
        value = (31 * value + unit) % 2**32
    assert java_string_hash(text) == (value - 2**32 if value >= 2**31 else value)


@given(st.text("0123456789ABCDEF", min_size=28, max_size=60), st.text(min_size=1, max_size=8))
def test_string_hash_of_ids_with_a_common_beginning_is_that_of_the_whole(identifier: str, topic: str) -> None:
    for text in (identifier, f"{identifier[:-4]}0001", identifier):
        whole = hash_on(0, f"{topic}#{text}\u540d")  # not ASCII: taken as a whole
        assert hash_on(hash_on(0, f"{topic}#"), text) * 31 + 0x540D & 0xFFFFFFFF == whole & 0xFFFFFFFF


def test_lone_surrogate_counts_as_one_unit() -> None:
    assert java_string_hash("\ud83d") == 0xD83D


def test_crc_has_31_bits() -> None:
    assert crc31(b"hello") == 0x3610A686
    assert crc31(b"") == 0
    # CRC-32 of these is 0xD202EF8D, with the top bit set.
    assert crc31(memoryview(b"\0")) == 0x5202EF8D
