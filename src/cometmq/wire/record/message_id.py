"""The two ids of a message.

The offset id is made by the broker and says where the record lies:

    store host address:4|16  port:4  physical offset:8                      32 or 56 hex digits, upper case

The unique id is made by the producer (property UNIQ_KEY) and stays the same when the message is sent again:

    address:4|16  process id:2  salt:4  ms of the month:4  counter:2        32 or 56 hex digits, upper case

"ms of the month" counts from local midnight of the first day of the current month, so the time of a unique
id is only known to a reader who knows the month and shares the time zone. The salt is a hash of the class
loader in Java; any number will do that another process on the host is not likely to choose.

The ids of a batch are joined with commas.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

from cometmq.errors import WireError

BATCH_IDS_MAX: Final = 65_536

_DIGITS_V4: Final = 32
_DIGITS_V6: Final = 56
_CLOCK_STEP_BACK_MS: Final = 1_000_000


class OffsetId(NamedTuple):
    address: bytes
    port: int
    physical_offset: int


class UniqueId(NamedTuple):
    address: bytes
    process_id: int
    salt: int
    month_ms: int
    counter: int


def offset_id_prefix(address: bytes, port: int) -> str:
    """The part of an offset id that one broker has to make only once."""
    assert len(address) in (4, 16), f"an IP address has 4 or 16 bytes, not {len(address)}"
    return f"{address.hex().upper()}{port:08X}"


def encode_offset_id(prefix: str, physical_offset: int) -> str:
    # 0.25 us; a format with 016X in it takes 0.4 us.
    return prefix + physical_offset.to_bytes(8, "big").hex().upper()


def encode_offset_ids(prefix: str, physical_offset: int, lengths: tuple[int, ...]) -> str:
    """The ids of records that lie back to back."""
    ids: list[str] = []
    for length in lengths:
        ids.append(encode_offset_id(prefix, physical_offset))
        physical_offset += length
    return join_ids(ids)


def decode_offset_id(text: str) -> OffsetId:
    data = _decode_hex("offset id", text)
    port = int.from_bytes(data[-12:-8], "big")
    physical_offset = int.from_bytes(data[-8:], "big")
    if port > 0xFFFF:
        raise WireError(f"offset id {text!r} has port {port}, the limit is 65535")
    if physical_offset >= 1 << 63:
        raise WireError(f"offset id {text!r} has a negative physical offset")
    return OffsetId(data[:-12], port, physical_offset)


def join_ids(ids: Iterable[str]) -> str:
    return ",".join(ids)


def split_ids(text: str) -> list[str]:
    """The ids of a batch reply, or the one id of a single send."""
    if text.count(",") >= BATCH_IDS_MAX:
        raise WireError(f"batch reply has {text.count(',') + 1} ids, the limit is {BATCH_IDS_MAX}")
    return text.split(",")


class UniqueIds:
    """Makes the unique ids of one process: at most 65536 different ones in a millisecond.

    `zone` is the time zone of the month, by default the local one.
    """

    def __init__(self, address: bytes, process_id: int, salt: int, zone: tzinfo | None = None) -> None:
        assert len(address) in (4, 16), f"an IP address has 4 or 16 bytes, not {len(address)}"
        self._prefix = f"{address.hex().upper()}{process_id & 0xFFFF:04X}{salt & 0xFFFFFFFF:08X}"
        self._zone = zone
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._counter = 0

    def next(self, now_ms: int) -> str:
        if now_ms >= self._month_end_ms:
            self._month_start_ms, self._month_end_ms = month_bounds_ms(now_ms, self._zone)
        month_ms = now_ms - self._month_start_ms
        # A clock set back a little at the turn of the month; after a big step the number wraps, as in Java.
        if -_CLOCK_STEP_BACK_MS < month_ms < 0:
            month_ms = 0
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._prefix}{month_ms & 0xFFFFFFFF:08X}{counter:04X}"


def decode_unique_id(text: str) -> UniqueId:
    """Raises WireError for other text: a UNIQ_KEY may be whatever an application chose."""
    data = _decode_hex("unique id", text)
    return UniqueId(
        data[:-12],
        int.from_bytes(data[-12:-10], "big"),
        int.from_bytes(data[-10:-6], "big"),
        int.from_bytes(data[-6:-2], "big"),
        int.from_bytes(data[-2:], "big"),
    )


def unique_id_time_ms(text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """When the id was made, seen at `now_ms`: this month if that is in the past, else the month before."""
    month_ms = decode_unique_id(text).month_ms
    month_start_ms, _ = month_bounds_ms(now_ms, zone)
    if month_start_ms + month_ms >= now_ms:
        month_start_ms, _ = month_bounds_ms(month_start_ms - 1, zone)
    return month_start_ms + month_ms


def month_bounds_ms(now_ms: int, zone: tzinfo | None = None) -> tuple[int, int]:
    """Midnight of the first day of the month around `now_ms`, and of the month after it."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone)
    year, month = today.year, today.month
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    return _midnight_ms(year, month, zone), _midnight_ms(*following, zone)


def _midnight_ms(year: int, month: int, zone: tzinfo | None) -> int:
    # Without a zone the datetime is naive on purpose: timestamp() then applies the local zone of that day.
    return int(datetime(year, month, 1, tzinfo=zone).timestamp()) * 1000


def _decode_hex(what: str, text: str) -> bytes:
    if len(text) not in (_DIGITS_V4, _DIGITS_V6):
        raise WireError(
            f"{what} {text[:64]!r} has {len(text)} digits: IPv4 ids have {_DIGITS_V4}, IPv6 ids {_DIGITS_V6}"
        )
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise WireError(f"{what} {text!r} is not hexadecimal") from None
    if len(data) * 2 != len(text):
        raise WireError(f"{what} {text!r} has blanks between its digits")
    return data
