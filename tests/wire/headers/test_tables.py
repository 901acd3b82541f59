"""The tables of headers: complete, and right about frames that real programs sent."""

from typing import Any

import pytest

from cometmq.wire.codes import REQUEST_NAMES, TIER, Request
from cometmq.wire.command import Command, decode
from cometmq.wire.headers import HEADERLESS_REQUESTS, REQUEST_HEADERS, RESPONSE_HEADERS, HeaderCodec
from tests.support.golden import golden_frames

# Ext fields that belong to no single header: namespace, routing and accounting that any request may carry, and
# additions of 5.5.0 that a broker may ignore.
COMMON = {"ns", "nsd", "bname", "oway", "lo", "ReqT", "indexType", "liteTopic"}
# Requests whose answer has the fields of its header only when it succeeds.
SUCCESS = 0

SERVED = [code for code, tier in TIER.items() if tier in "AB"]


@pytest.mark.parametrize("code", SERVED, ids=[REQUEST_NAMES[code] for code in SERVED])
def test_every_served_request_has_a_header_or_is_known_to_have_none(code: int) -> None:
    assert (code in REQUEST_HEADERS) != (code in HEADERLESS_REQUESTS)


def test_no_table_names_a_request_that_nobody_serves() -> None:
    of_replica_groups = {
        Request.GET_BROKER_MEMBER_GROUP,
        Request.NOTIFY_MIN_BROKER_ID_CHANGE,
        Request.EXCHANGE_BROKER_HA_INFO,
    }
    for table in (REQUEST_HEADERS, RESPONSE_HEADERS, HEADERLESS_REQUESTS):
        assert set(table) <= {*SERVED, *of_replica_groups}


def check_same_meaning(codec: HeaderCodec, ext: dict[str, str]) -> None:
    header: Any = codec.decode(ext)
    encoded = codec.encode(header)
    for name, value in ext.items():
        if value:  # an empty text and an absent one mean the same
            assert encoded.get(name, value if name in COMMON else None) == value, name
    again = codec.decode(encoded)
    assert codec.encode(again) == encoded


def golden(kind: str) -> list[tuple[int, Command]]:
    frames = [(row, bytes.fromhex(row["frame_hex"])) for row in golden_frames() if row["kind"] == kind]
    return [(row["request_code"], decode(frame, 4, len(frame))) for row, frame in frames]


@pytest.mark.parametrize(("code", "command"), golden("request"), ids=lambda value: str(value)[:40])
def test_a_recorded_request_keeps_its_meaning(code: int, command: Command) -> None:
    if code in REQUEST_HEADERS:
        check_same_meaning(REQUEST_HEADERS[code], command.ext)
    else:
        assert code in HEADERLESS_REQUESTS
        assert not command.ext


@pytest.mark.parametrize(("code", "command"), golden("response"), ids=lambda value: str(value)[:40])
def test_a_recorded_response_keeps_its_meaning(code: int, command: Command) -> None:
    if code in RESPONSE_HEADERS and (command.code == SUCCESS or command.ext):
        check_same_meaning(RESPONSE_HEADERS[code], command.ext)
    else:
        assert not command.ext
