"""The hand-written headers of send and pull."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.codes import Request
from cometmq.wire.headers import (
    REQUEST_HEADERS,
    HeaderError,
    PullMessage,
    PullMessageResponse,
    SendMessage,
    SendMessageResponse,
    SendMessageV2,
)

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
OPTIONAL_I32 = st.none() | I32
OPTIONAL_TEXT = st.none() | st.text()

LETTERS = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
    "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes",
    "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip

sends = st.builds(
    SendMessage,
    producer_group=st.text(), topic=st.text(), default_topic=st.text(), default_topic_queue_nums=I32,
    queue_id=I32, sys_flag=I32, born_timestamp=I64, flag=I32, properties=st.text(), reconsume_times=I32,
    unit_mode=st.booleans(), max_reconsume_times=OPTIONAL_I32, batch=st.booleans(), broker_name=OPTIONAL_TEXT,
)  # fmt: skip
pulls = st.builds(
    PullMessage,
    consumer_group=st.text(), topic=st.text(), queue_id=I32, queue_offset=I64, max_msg_nums=I32, sys_flag=I32,
    commit_offset=I64, suspend_timeout_ms=I64, sub_version=I64, subscription=OPTIONAL_TEXT,
    expression_type=OPTIONAL_TEXT, max_msg_bytes=OPTIONAL_I32, request_source=OPTIONAL_I32,
    proxy_forward_client_id=OPTIONAL_TEXT, broker_name=OPTIONAL_TEXT,
)  # fmt: skip


def values(header: Any) -> dict[str, Any]:
    names: list[str] = [name for name in dir(header) if not name.startswith(("_", "decode", "encode"))]
    return {name: getattr(header, name) for name in names}


@given(sends)
def test_both_spellings_of_a_send_carry_the_same_values(header: SendMessage) -> None:
    long, short = header.encode(), SendMessageV2.encode(header)
    assert {LETTERS[letter]: text for letter, text in short.items()} == long
    assert values(SendMessage.decode(long)) == values(header)
    assert values(SendMessageV2.decode(short)) == values(header)


@given(pulls)
def test_a_pull_keeps_its_values(header: PullMessage) -> None:
    assert values(PullMessage.decode(header.encode())) == values(header)


@given(st.builds(
    SendMessageResponse, msg_id=st.text(), queue_id=I32, queue_offset=I64, transaction_id=OPTIONAL_TEXT,
    batch_uniq_id=OPTIONAL_TEXT, recall_handle=OPTIONAL_TEXT, msg_region=OPTIONAL_TEXT,
    trace_on=st.none() | st.booleans(),
))  # fmt: skip
def test_a_send_response_keeps_its_values(header: SendMessageResponse) -> None:
    assert values(SendMessageResponse.decode(header.encode())) == values(header)


@given(st.builds(
    PullMessageResponse, suggest_which_broker_id=I64, next_begin_offset=I64, min_offset=I64, max_offset=I64,
    offset_delta=st.none() | I64, topic_sys_flag=OPTIONAL_I32, group_sys_flag=OPTIONAL_I32,
    forbidden_type=OPTIONAL_I32,
))  # fmt: skip
def test_a_pull_response_keeps_its_values(header: PullMessageResponse) -> None:
    assert values(PullMessageResponse.decode(header.encode())) == values(header)


def full_send(spelling: type) -> dict[str, str]:
    header = SendMessage("g", "T", "TBW102", 4, 0, 0, 1, 0, "p", 0, False, 16, False, "b")
    return header.encode() if spelling is SendMessage else header.encode_v2()


@pytest.mark.parametrize("spelling", [SendMessage, SendMessageV2])
def test_a_send_without_a_required_field_names_it_as_the_wire_does(spelling: Any) -> None:
    optional = {"properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname"}
    for name in full_send(spelling):
        rest = full_send(spelling)
        del rest[name]
        if LETTERS.get(name, name) in optional:
            spelling.decode(rest)
            continue
        with pytest.raises(HeaderError, match=f"SendMessage: ext field {name} is missing"):
            spelling.decode(rest)


@pytest.mark.parametrize("name", ["d", "e", "f", "g", "h", "j", "l"])
def test_a_number_that_does_not_parse_is_refused_even_where_it_is_optional(name: str) -> None:
    with pytest.raises(HeaderError, match=f"ext field {name} is not a decimal number"):
        SendMessageV2.decode({**full_send(SendMessageV2), name: "1x"})


def test_a_pull_names_what_it_misses() -> None:
    ext = PullMessage("g", "T", 0, 0, 32, 0, 0, 0, 0).encode()
    for name in ext:
        with pytest.raises(HeaderError, match=f"PullMessage: ext field {name} is missing"):
            PullMessage.decode({other: text for other, text in ext.items() if other != name})
    with pytest.raises(HeaderError, match="maxMsgBytes is 2147483648, outside"):
        PullMessage.decode({**ext, "maxMsgBytes": "2147483648"})


def test_the_misspelled_name_of_the_client_behind_a_proxy_is_kept() -> None:
    header = PullMessage("g", "T", 0, 0, 32, 0, 0, 0, 0, proxy_forward_client_id="c")
    assert header.encode()["proxyFrowardClientId"] == "c"


def test_a_hot_header_shows_its_fields() -> None:
    pull = PullMessage("g", "T", 0, 0, 32, 0, 0, 0, 0)
    shown = [repr(SendMessage.decode(full_send(SendMessage))), repr(pull)]
    shown += [repr(SendMessageResponse("m", 3, 4)), repr(PullMessageResponse(0, 5, 0, 6))]
    assert all("(" in one and "': '" in one for one in shown)


def test_only_the_text_false_turns_tracing_off() -> None:
    ext = {"msgId": "m", "queueId": "0", "queueOffset": "0"}
    assert SendMessageResponse.decode(ext).trace_on is None
    assert SendMessageResponse.decode({**ext, "TRACE_ON": "false"}).trace_on is False
    assert SendMessageResponse.decode({**ext, "TRACE_ON": "no"}).trace_on is True


def test_each_code_of_the_send_family_has_its_spelling() -> None:
    long = {Request.SEND_MESSAGE, Request.SEND_REPLY_MESSAGE}
    short = {Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE, Request.SEND_REPLY_MESSAGE_V2}
    assert {code for code, codec in REQUEST_HEADERS.items() if codec is SendMessage} == long
    assert {code for code, codec in REQUEST_HEADERS.items() if codec is SendMessageV2} == short
