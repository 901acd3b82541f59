"""Commands in both header forms, judged by frames recorded from real RocketMQ programs."""

import json
from typing import Any

import pytest

from cometmq.errors import WireError
from cometmq.wire import command
from cometmq.wire.codes import LANGUAGE_NAMES
from cometmq.wire.command import JSON, ROCKETMQ, Command, decode, encode, encode_head, reply, request
from cometmq.wire.fastjson.header import EXT_FIELDS_MAX, LANGUAGE_UNKNOWN
from tests.support.golden import golden_frames

GOLDEN = golden_frames()


def read(frame: bytes) -> Command:
    return decode(frame, 4, len(frame))


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def binary_frame(header: bytes, body: bytes = b"") -> bytes:
    word = (ROCKETMQ << 24 | len(header)).to_bytes(4, "big")
    return (4 + len(header) + len(body)).to_bytes(4, "big") + word + header + body


def members(read_command: Command) -> dict[str, Any]:
    return {
        "code": read_command.code,
        "language": LANGUAGE_NAMES[read_command.language],
        "version": read_command.version,
        "opaque": read_command.opaque,
        "flag": read_command.flag,
        "remark": read_command.remark,
        "extFields": read_command.ext,
    }


def expected(row: dict[str, Any]) -> dict[str, Any]:
    header = dict(row["header"])
    header.pop("serializeTypeCurrentRPC", None)
    header.setdefault("remark", None)
    if "languageCode" in header:
        header["language"] = LANGUAGE_NAMES[header.pop("languageCode")]
    header["extFields"] = header.get("extFields") or {}
    return header


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['request_code']}-{row['kind']}-{row['serialize']}")
def test_golden_frame_decodes_to_its_header_and_encodes_back(row: dict[str, Any]) -> None:
    frame = bytes.fromhex(row["frame_hex"])
    got = read(frame)
    assert members(got) == expected(row)
    assert len(got.body) == row["body_len"]
    assert got.form == (JSON if row["serialize"] == "JSON" else ROCKETMQ)
    again = encode(got)
    if got.form == ROCKETMQ:
        assert again == frame
    else:
        assert members(read(again)) == expected(row)
        assert read(again).body == got.body


def test_frames_written_by_java_encode_back_byte_for_byte() -> None:
    """Java orders the members by name, as we do, but writes an empty set of ext fields, which we leave out."""
    json_rows = [row for row in GOLDEN if row["serialize"] == "JSON"]
    java = [row for row in json_rows if row["header"]["language"] == "JAVA" and row["header"].get("extFields") != {}]
    assert len(java) > 50
    for row in java:
        frame = bytes.fromhex(row["frame_hex"])
        assert encode(read(frame)) == frame


@pytest.mark.mission("RM-03")
def test_a_reply_has_the_form_and_opaque_of_its_request() -> None:
    for form in (JSON, ROCKETMQ):
        asked = read(encode(request(105, {"topic": "TopicA"}, opaque=7, form=form)))
        frame = encode(reply(asked, 17, "no"))
        assert frame[4] == form
        answer = read(frame)
        assert (answer.form, answer.opaque, answer.flag, answer.code, answer.remark) == (form, 7, 1, 17, "no")


@pytest.mark.mission("RM-03")
def test_binary_vectors_seen_on_the_wire() -> None:
    asked = Command(105, 0, 479, 7, 0, None, {"topic": "TopicA"}, b"hi", ROCKETMQ)
    assert encode(asked).hex(" ") == (
        "00 00 00 2c 01 00 00 26 00 69 00 01 df 00 00 00 07 00 00 00 00 00 00 00 00 "
        "00 00 00 11 00 05 74 6f 70 69 63 00 00 00 06 54 6f 70 69 63 41 68 69"
    )
    answer = Command(17, 0, 479, 7, 1, "no", {}, b"", ROCKETMQ)
    assert encode(answer).hex(" ") == (
        "00 00 00 1b 01 00 00 17 00 11 00 01 df 00 00 00 07 00 00 00 01 00 00 00 02 6e 6f 00 00 00 00"
    )
    assert read(encode(asked)).ext == {"topic": "TopicA"}


def test_json_vector_seen_on_the_wire() -> None:
    frame = encode(Command(0, 0, 479, 7, 1, None, {}, b"", JSON))
    assert frame[:8].hex() == "000000630000005f"
    assert frame[8:] == (
        b'{"code":0,"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}'
    )


def test_head_and_body_written_apart_are_the_whole_frame() -> None:
    for form in (JSON, ROCKETMQ):
        whole = request(10, {"a": "b"}, b"body", opaque=3, remark="r", form=form)
        assert encode_head(whole, 4) + b"body" == encode(whole)


def test_a_peer_may_write_numbers_booleans_and_nulls_where_java_writes_text() -> None:
    header = {
        "code": "10",
        "language": 9,
        "version": "317",
        "opaque": 5,
        "flag": 0,
        "remark": None,
        "extFields": {"queueId": 3, "order": True, "unit": False, "gone": None, "topic": "T", "ratio": 0.5},
        "unknown": [1, {"deep": 2}],
    }
    got = read(json_frame(json.dumps(header).encode()))
    assert (got.code, got.version, LANGUAGE_NAMES[got.language]) == (10, 317, "GO")
    assert got.ext == {"queueId": "3", "order": "true", "unit": "false", "topic": "T", "ratio": "0.5"}


def test_an_absent_member_has_the_value_java_assumes() -> None:
    got = read(json_frame(b"{}"))
    assert members(got) == {
        "code": 0, "language": "JAVA", "version": 0, "opaque": 0, "flag": 0, "remark": None, "extFields": {},
    }  # fmt: skip


def test_an_unknown_language_is_kept_apart_from_java() -> None:
    assert read(json_frame(b'{"language":"KLINGON"}')).language == LANGUAGE_UNKNOWN
    assert read(json_frame(b'{"language":99}')).language == LANGUAGE_UNKNOWN
    assert b"language" not in encode(read(json_frame(b'{"language":"KLINGON"}')))


def test_an_empty_ext_value_is_absent_in_the_binary_form() -> None:
    entry = b"\x00\x01a\x00\x00\x00\x00" + b"\x00\x01b\x00\x00\x00\x01c"
    header = bytes(17) + len(entry).to_bytes(4, "big") + entry
    assert read(binary_frame(header)).ext == {"b": "c"}
    assert read(encode(request(1, {"a": "", "b": "c"}, form=ROCKETMQ))).ext == {"b": "c"}


def test_the_last_of_two_equal_ext_keys_wins() -> None:
    entry = b"\x00\x01a\x00\x00\x00\x01b" + b"\x00\x01a\x00\x00\x00\x01c"
    assert read(binary_frame(bytes(17) + len(entry).to_bytes(4, "big") + entry)).ext == {"a": "c"}


def test_pop_codes_survive_the_sixteen_bits_of_the_binary_form() -> None:
    for code in (200050, 200056, 200151):
        assert read(encode(request(code, form=ROCKETMQ))).code == code
    assert read(encode(Command(3442, 0, 0, 1, 1, None, {}, b"", ROCKETMQ))).code == 3442


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (bytes(4), "no header word"),
        (binary_frame(bytes(20)), "at least 21"),
        (b"\0\0\0\x05\x02\0\0\x01x", "serialize type 2"),
        (b"\0\0\0\x05\0\0\0\x09x", "does not fit a frame"),
        (json_frame(b"[]"), "not an object"),
        (json_frame(b"{"), "does not parse"),
        (json_frame(b'{"remark":"\xff"}'), "does not parse"),
        (json_frame(b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), "does not parse"),
        (json_frame(b'{"opaque":2147483648}'), "outside a 32-bit integer"),
        (json_frame(b'{"opaque":1.5}'), "not an integer"),
        (json_frame(b'{"opaque":"1e9"}'), "not an integer"),
        (json_frame(b'{"extFields":[]}'), "not an object"),
        (json_frame(b'{"extFields":{"a":{}}}'), "not a scalar"),
        (json_frame(json.dumps({"extFields": {str(n): "" for n in range(EXT_FIELDS_MAX + 1)}}).encode()), "ext fields"),
        (json_frame(b" " * (command.HEADER_BYTES_MAX + 1)), "the limit is"),
        (binary_frame(bytes(13) + b"\x7f\xff\xff\xff" + bytes(4)), "remark of"),
        (binary_frame(bytes(13) + b"\xff\xff\xff\xff" + bytes(4)), "remark of"),
        (binary_frame(bytes(17) + b"\x00\x00\x00\x09" + bytes(4)), "ext section of"),
        (binary_frame(bytes(17) + b"\x00\x00\x00\x01" + b"\x00"), "ext key at"),
        (binary_frame(bytes(17) + b"\x00\x00\x00\x07" + b"\x00\x01a\x00\x00\x00\x01"), "ext value at"),
        (binary_frame(bytes(13) + b"\x00\x00\x00\x01\xff" + bytes(4)), "not UTF-8"),
    ],
)
def test_a_malformed_frame_says_what_is_wrong(frame: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        read(frame)


def test_the_text_of_a_command_does_not_say_who_signed_it() -> None:
    signed = request(11, {"topic": "T", "AccessKey": "marker", "Signature": "marker", "SecurityToken": "marker"})
    assert "'topic': 'T'" in repr(signed)
    assert "marker" not in repr(signed)
