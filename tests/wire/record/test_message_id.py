"""Offset ids and unique ids, against ids that RocketMQ made."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import WireError
from cometmq.wire.record.message_id import (
    BATCH_IDS_MAX,
    OffsetId,
    UniqueId,
    UniqueIds,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    join_ids,
    month_bounds_ms,
    offset_id_prefix,
    split_ids,
    unique_id_time_ms,
)
from tests.support.golden import StoreName, golden_messages

ADDRESSES = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
# Made by a Java client in a process with id 17385, at fd00::2.
JAVA_ID = "FD00000000000000000000000000000243E930946E09498FCB990000"
IPV6 = bytes.fromhex("fd000000000000000000000000000002")


def ms(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


def test_offset_id_is_hex_of_address_port_and_offset() -> None:
    text = encode_offset_id(offset_id_prefix(bytes([10, 0, 6, 82]), 8123), 0)
    assert text == "0A00065200001FBB0000000000000000"
    assert decode_offset_id(text) == OffsetId(bytes([10, 0, 6, 82]), 8123, 0)


@given(ADDRESSES, st.integers(0, 65535), st.integers(0, 2**63 - 1))
def test_offset_id_decodes_to_what_was_encoded(address: bytes, port: int, physical_offset: int) -> None:
    text = encode_offset_id(offset_id_prefix(address, port), physical_offset)
    assert len(text) == (32 if len(address) == 4 else 56)
    assert text == text.upper()
    assert decode_offset_id(text) == (address, port, physical_offset)
    assert decode_offset_id(text.lower()) == (address, port, physical_offset)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has 0 digits"),
        ("0A00065200001FBB000000000000000", "has 31 digits"),
        ("0A00065200001FBB000000000000000G", "not hexadecimal"),
        ("0A 0065200001FBB00000000000000 00", "has 33 digits"),
        ("0A 065200001FBB0000000000000000 ", "blanks|not hexadecimal"),
        ("0A00065200011FBB0000000000000000", "port 73659"),
        ("0A00065200001FBB8000000000000000", "negative"),
        ("０A00065200001FBB0000000000000000"[:32], "not hexadecimal"),
    ],
)
def test_malformed_offset_id_is_refused(text: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode_offset_id(text)


def test_ids_of_a_batch_are_joined_by_commas() -> None:
    assert join_ids(["A1", "B2"]) == "A1,B2"
    assert split_ids("A1,B2") == ["A1", "B2"]
    assert split_ids("A1") == ["A1"]
    assert len(split_ids("," * (BATCH_IDS_MAX - 1))) == BATCH_IDS_MAX
    with pytest.raises(WireError, match="65537 ids, the limit is 65536"):
        split_ids("," * BATCH_IDS_MAX)


def test_unique_id_of_java_is_read() -> None:
    assert decode_unique_id(JAVA_ID) == UniqueId(IPV6, 17385, 0x30946E09, 0x498FCB99, 0)
    assert unique_id_time_ms(JAVA_ID, ms(2026, 11, 20), UTC) == ms(2026, 11, 15, 6, 49, 20) + 537


def test_unique_id_is_made_like_java_makes_it() -> None:
    ids = UniqueIds(IPV6, 17385, 0x30946E09, UTC)
    assert ids.next(ms(2026, 11, 15, 6, 49, 20) + 537) == JAVA_ID
    assert ids.next(ms(2026, 11, 15, 6, 49, 20) + 537) == JAVA_ID[:-4] + "0001"


def test_counter_and_process_id_keep_16_bits() -> None:
    ids = UniqueIds(b"\x7f\0\0\1", 0x12345, -1, UTC)
    made = [ids.next(0) for _ in range(65537)]
    assert made[0] == "7F0000012345FFFFFFFF000000000000"
    assert made[65535].endswith("FFFF")
    assert made[65536] == made[0]
    assert len(set(made)) == 65536


def test_month_turns_when_the_clock_reaches_it() -> None:
    ids = UniqueIds(b"\x7f\0\0\1", 1, 1, UTC)
    last = decode_unique_id(ids.next(ms(2026, 12, 1) - 1))
    first = decode_unique_id(ids.next(ms(2026, 12, 1)))
    assert last.month_ms == 30 * 86_400_000 - 1
    assert first.month_ms == 0


def test_clock_that_steps_back_over_the_month_gives_zero_or_wraps() -> None:
    ids = UniqueIds(b"\x7f\0\0\1", 1, 1, UTC)
    ids.next(ms(2026, 12, 1))
    assert decode_unique_id(ids.next(ms(2026, 12, 1) - 999_999)).month_ms == 0
    assert decode_unique_id(ids.next(ms(2026, 12, 1) - 1_000_000)).month_ms == 2**32 - 1_000_000


def test_time_of_an_id_from_the_end_of_last_month() -> None:
    made_ms = ms(2026, 12, 31, 23, 59, 59)
    text = UniqueIds(b"\x7f\0\0\1", 1, 1, UTC).next(made_ms)
    assert unique_id_time_ms(text, ms(2027, 1, 2), UTC) == made_ms


@given(st.integers(ms(2000, 1, 1), ms(2100, 1, 1)), st.integers(0, 27 * 86_400_000))
def test_time_of_an_id_is_found_within_the_month(made_ms: int, age_ms: int) -> None:
    zone = timezone(timedelta(hours=8))
    text = UniqueIds(b"\x7f\0\0\1", 1, 1, zone).next(made_ms)
    assert unique_id_time_ms(text, made_ms + age_ms + 1, zone) == made_ms


class SummerTimeFromApril(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1) + self.dst(moment)

    def dst(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=1 if moment is not None and moment.month >= 4 else 0)

    def tzname(self, moment: datetime | None) -> str:
        return "test"


def test_month_bounds_follow_the_zone_through_summer_time() -> None:
    start_ms, end_ms = month_bounds_ms(ms(2026, 3, 15), SummerTimeFromApril())
    assert start_ms == ms(2026, 2, 28, 23)
    assert end_ms == ms(2026, 3, 31, 22)


def test_month_bounds_without_a_zone_are_local() -> None:
    now_ms = ms(2026, 11, 15)
    start_ms, end_ms = month_bounds_ms(now_ms)
    assert start_ms <= now_ms < end_ms
    for bound_ms in (start_ms, end_ms):
        local = datetime.fromtimestamp(bound_ms / 1000, UTC).astimezone()
        assert (local.day, local.hour, local.minute, local.second) == (1, 0, 0, 0)


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_ids_in_the_golden_stores_tell_when_their_message_was_born(name: StoreName) -> None:
    for message in golden_messages(name):
        made_ms = unique_id_time_ms(message["msgId"], message["storeTimestamp"] + 1, UTC)
        assert abs(made_ms - message["bornTimestamp"]) < 1000
