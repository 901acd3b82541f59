"""Typed headers made from declarations."""

from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import RequestError
from cometmq.wire import headers
from cometmq.wire.headers.base import Boundary, Header
from cometmq.wire.headers.parse import parse_i32

CLASSES = sorted(
    {
        codec
        for codec in (*headers.REQUEST_HEADERS.values(), *headers.RESPONSE_HEADERS.values())
        if isinstance(codec, type) and issubclass(codec, Header)
    },
    key=lambda cls: cls.__name__,
)
INTEGERS = {True: st.integers(-(2**31), 2**31 - 1), False: st.integers(-(2**63), 2**63 - 1)}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation == Boundary:
        return st.sampled_from(["LOWER", "UPPER"])
    if get_origin(annotation) is Annotated:
        return INTEGERS[annotation.__metadata__[0] is parse_i32]
    if annotation in (str, bool):
        return st.text() if annotation is str else st.booleans()
    assert get_origin(annotation) in (Union, type(int | None))
    return st.one_of(st.none(), *(values_of(part) for part in get_args(annotation) if part is not type(None)))


def instances(cls: type[Header]) -> st.SearchStrategy[Header]:
    return st.builds(cls, **{field.name: values_of(field.type) for field in msgspec.structs.fields(cls)})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_what_is_encoded_decodes_to_the_same_values(cls: type[Header]) -> None:
    @settings(max_examples=10, deadline=None)
    @given(instances(cls))
    def check(header: Header) -> None:
        ext = header.encode()
        assert all(isinstance(text, str) for text in ext.values())
        assert cls.decode({**ext, "somethingNew": "ignored"}) == header

    check()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_missing_or_unreadable_required_field_is_named(cls: type[Header]) -> None:
    fields = msgspec.structs.fields(cls)
    full = {field.encode_name: "1" for field in fields}
    for field in fields:
        rest = {name: text for name, text in full.items() if name != field.encode_name}
        if not field.required:
            cls.decode(rest)
            continue
        with pytest.raises(headers.HeaderError, match=f"{cls.__name__}: ext field {field.encode_name} is missing"):
            cls.decode(rest)
        if get_origin(field.type) is Annotated:
            with pytest.raises(headers.HeaderError, match=f"{field.encode_name} is not a decimal number"):
                cls.decode({**full, field.encode_name: "1 "})


def test_a_header_error_is_an_answer_with_code_1() -> None:
    with pytest.raises(RequestError) as caught:
        headers.QueryConsumerOffset.decode({"consumerGroup": "g", "topic": "T"})
    assert caught.value.code == 1
    assert caught.value.remark == "QueryConsumerOffset: ext field queueId is missing"


def test_a_commit_without_offset_is_refused_with_code_29() -> None:
    with pytest.raises(headers.HeaderError) as caught:
        headers.UpdateConsumerOffset.decode({"consumerGroup": "g", "topic": "T", "queueId": "x"})
    assert caught.value.code == 29
    assert caught.value.field == "queueId"


def test_an_optional_field_that_does_not_parse_counts_as_absent() -> None:
    header = headers.SendMessageBack.decode(
        {"offset": "1", "group": "g", "delayLevel": "0", "maxReconsumeTimes": "many"}
    )
    assert header.max_reconsume_times is None


def test_wire_names_that_are_not_camel_case() -> None:
    assert headers.UnregisterClient("id").encode() == {"clientID": "id"}
    assert headers.HeartbeatResponse(True, False).encode() == {
        "IS_SUPPORT_HEART_BEAT_V2": "true",
        "IS_SUB_CHANGE": "false",
    }
    register = headers.RegisterBroker("b", "a:1", "c", "a:2", 0, heartbeat_timeout_ms=5, zone_name="z")
    assert register.encode() == {
        "brokerName": "b",
        "brokerAddr": "a:1",
        "clusterName": "c",
        "haServerAddr": "a:2",
        "brokerId": "0",
        "heartbeatTimeoutMillis": "5",
        "compressed": "false",
        "bodyCrc32": "0",
        "__ZONE_NAME": "z",
    }
    heartbeat = headers.BrokerHeartbeat("c", "a:1", "b", heartbeat_timeout_ms=5)
    assert heartbeat.encode()["heartbeatTimeoutMills"] == "5"
    assert headers.EndTransaction("p", 1, 2, 8, "m", broker_name="b").encode()["bname"] == "b"
    assert headers.GetBrokerConsumeStats(True).encode() == {"isOrder": "true"}


def test_an_absent_option_is_told_from_a_false_one() -> None:
    ext = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
    assert headers.QueryConsumerOffset.decode(ext).set_zero_if_not_found is None
    assert headers.QueryConsumerOffset.decode({**ext, "setZeroIfNotFound": "false"}).set_zero_if_not_found is False
