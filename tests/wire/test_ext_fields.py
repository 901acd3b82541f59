"""Ext fields of the binary header: the quick ways give what reading and writing field by field gives."""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import WireError
from cometmq.wire import ext_fields
from cometmq.wire.ext_fields import RUN_BYTES_MAX, RUNS_MAX, decode_ext, encode_ext

LETTERS = "abcdefghijklmn"


def packed(fields: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value for key, value in fields)


def read_one_by_one(data: bytes) -> dict[str, str] | None:
    """None for what is no list of fields."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        key_end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        value_end = key_end + 4 + int.from_bytes(data[key_end : key_end + 4], "big")
        if key_end + 4 > len(data) or value_end > len(data):
            return None
        key, value = data[at + 2 : key_end], data[key_end + 4 : value_end]
        if key and value:
            try:
                found[key.decode()] = value.decode()
            except UnicodeDecodeError:
                return None
        at = value_end
    return found


def read(data: bytes) -> dict[str, str] | None:
    try:
        return decode_ext(b"before" + data + b"behind", 6, 6 + len(data))
    except WireError:
        return None


def send(topic: str = "T", queue: str = "3", born: str = "1794725598148", properties: str = "KEYS\x01k\x02") -> bytes:
    values = ["group", topic, "TBW102", "4", queue, "0", born, "0", properties, "0", "false", "", "false", "broker-a"]
    fields = zip(LETTERS, values, strict=True)
    return packed([(letter.encode(), value.encode()) for letter, value in fields if value])


def test_a_send_reads_the_same_for_the_first_and_the_next_time() -> None:
    for number in range(3):
        data = send(queue=str(number % 2), born=str(1794725598148 + number), properties=f"UNIQ_KEY\x01{number}\x02")
        assert read(data) == read_one_by_one(data)
        assert read(data) == read_one_by_one(data)


LOOK_ALIKES = [
    b"", b"0", b"12", b"1794725598148", b"\x00\x01e\x00\x00\x00\x013", b"\x00\x01g\x00\x00\x00\x0d1794725598148",
    b"\x00\x01i\x00\x00\x00\x01x", b"\x00\x01j\x00\x00\x00\x010", "\u540d\u5b57".encode(), b"\xff",
    b"x" * RUN_BYTES_MAX,
]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(list(LETTERS)), st.sampled_from(LOOK_ALIKES)), max_size=16))
def test_values_that_look_like_fields_do_not_mislead(fields: list[tuple[str, bytes]]) -> None:
    data = packed([(b"a", b"group"), *((letter.encode(), value) for letter, value in fields)])
    for _ in range(2):
        assert read(data) == read_one_by_one(data)


def test_a_send_that_is_cut_or_spoilt_is_refused_even_when_its_parts_are_known() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    data = send()
    read(data)
    for end in range(len(data)):
        assert read(data[:end]) == read_one_by_one(data[:end])
    for _ in range(2_000):
        spoilt = bytearray(data)
        spoilt[dice.randrange(len(data))] = dice.randrange(256)
        assert read(bytes(spoilt)) == read_one_by_one(bytes(spoilt)), bytes(spoilt)


def test_what_is_kept_of_sends_is_bounded() -> None:
    for number in range(RUNS_MAX + 10):
        read(send(topic=f"topic-{number}"))
    assert len(ext_fields._runs) <= RUNS_MAX
    read(send(topic="x" * RUN_BYTES_MAX))
    assert not any(len(run) > RUN_BYTES_MAX for run in ext_fields._runs)


NAMES = st.sampled_from(["queueId", "msgId", "", "\u540d", "n" * 127, "n" * 128, "x\x80"]) | st.text(max_size=4)
VALUES = st.sampled_from(["", "0", "v" * 127, "v" * 128, "\u503c", "\x80"]) | st.text(max_size=8)


@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_fields_are_written_as_if_one_by_one(fields: dict[str, str]) -> None:
    expected = b""
    with suppress(UnicodeEncodeError):
        expected = packed([(name.encode(), value.encode()) for name, value in fields.items() if name and value])
        for _ in range(2):
            assert encode_ext(fields) == expected
        assert decode_ext(expected, 0, len(expected)) == {n: v for n, v in fields.items() if n and v}
        return
    with pytest.raises(UnicodeEncodeError):
        encode_ext(fields)
