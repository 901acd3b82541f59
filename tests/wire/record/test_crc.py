"""The CRC that a record carries of itself."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.hashing import crc31
from cometmq.wire.record.crc import CRC_PROPERTY_BYTES, crc_matches, encode_digits, reserve_crc, seal_crc
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.properties import decode
from tests.support.golden import golden_records
from tests.support.records import FIELDS, Fields


def test_digits_run_from_the_least_significant() -> None:
    assert encode_digits(488466514) == b"4156648840"
    assert encode_digits(0) == b"0000000000"
    assert encode_digits(0x7FFFFFFF) == b"7463847412"


def test_room_is_made_behind_a_separator() -> None:
    assert len(reserve_crc(b"")) == CRC_PROPERTY_BYTES == 20
    assert reserve_crc(b"a\x01b\x02").startswith(b"a\x01b\x02__CRC32#\x01")
    assert reserve_crc(b"a\x01b").startswith(b"a\x01b\x02__CRC32#\x01")
    assert reserve_crc(b"a\x01b", in_batch=True).startswith(b"a\x01b__CRC32#\x01")


@pytest.mark.parametrize("golden", [row for row in golden_records() if row["crc_reserved"]])
def test_room_is_where_java_reserves_it(golden: dict[str, Any]) -> None:
    java = bytes.fromhex(golden["record_hex"])
    message = decode_record(java, check_crc=True)
    message.properties = reserve_crc(b"KEYS\x01k1")
    ours = message.encode()
    assert len(ours) == len(java)
    assert ours[:-CRC_PROPERTY_BYTES] == java[:-CRC_PROPERTY_BYTES]


@given(FIELDS, st.integers(0, 20))
def test_sealed_record_matches_until_a_bit_of_it_changes(fields: Fields, position: int) -> None:
    fields.properties = reserve_crc(b"k\x01v\x02")
    record = fields.encode()
    buffer = bytearray(bytes(position) + record + bytes(9))
    seal_crc(buffer, position, len(record))
    end = position + len(record)
    assert buffer[:position] == bytes(position)
    assert buffer[end:] == bytes(9)

    sealed = decode_record(buffer, position, end)
    digits = decode(sealed.properties)["__CRC32#"]
    assert int(digits[::-1]) == crc31(record[:-20])
    text = sealed.properties.decode()
    assert crc_matches(buffer, position, end, text)
    for at in (position + 20, position + 28, end - 21):
        buffer[at] ^= 1
        assert not crc_matches(buffer, position, end, text)
        buffer[at] ^= 1


@pytest.mark.parametrize("digits", ["", "415664884", "41566488400", "415664884x", "４156648840", "-156648840"])
def test_crc_that_is_no_ten_digits_never_matches(digits: str) -> None:
    assert not crc_matches(b"", 0, 0, f"__CRC32#\x01{digits}\x02")
    assert not crc_matches(b"", 0, 0, "")
