"""Writing fastjson's dialect."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.wire.fastjson.dialect import ObjectKey, dumps, dumps_pretty, loads
from tests.support.golden import golden_store

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


class Leaf(msgspec.Struct, frozen=True, rename="camel"):
    topic: str
    queue_id: int = 0
    broker_name: str | None = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        ({1: "x", 0: "y"}, '{1:"x",0:"y"}'),
        ({Leaf("T", 3): 5}, '{{"queueId":3,"topic":"T"}:5}'),
        ({ObjectKey((("q", 1),)): {}}, '{{"q":1}:{}}'),
        (Leaf("T", 3, "b"), '{"brokerName":"b","queueId":3,"topic":"T"}'),
        ({"a": None, "b": []}, '{"b":[]}'),
        ([None, True, False], "[null,true,false]"),
        ((1, 2), "[1,2]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ({}, "{}"),
        ([{}, []], "[{},[]]"),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
        (0.0, "0.0"),
        (1 / 30, "0.03333333333333333"),
        (1e22, "1.0E22"),
        (-1.5e-9, "-1.5E-9"),
        (b"\x01\x02", '"AQI="'),
        ('é/"\\\n\x01', '"é/\\"\\\\\\n\\u0001"'),
    ],
)
def test_compact_form(value: Any, text: str) -> None:
    assert dumps(value).decode() == text


def test_standard_form_is_plain_ascii_with_sorted_and_quoted_keys() -> None:
    value = {"b/é": {1: "10.0.0.2:1", 0: "10.0.0.1:1"}, "a": "😀\x7f\n"}
    written = dumps(value, standard=True)
    assert written == b'{"a":"\\uD83D\\uDE00\\u007F\\n","b\\/\\u00E9":{"0":"10.0.0.1:1","1":"10.0.0.2:1"}}'
    assert json.loads(written) == {"a": "😀\x7f\n", "b/é": {"0": "10.0.0.1:1", "1": "10.0.0.2:1"}}


@given(st.dictionaries(TEXT, TEXT | st.integers(-(2**63), 2**63 - 1) | st.booleans()))
def test_standard_form_is_read_by_any_parser(value: dict[str, Any]) -> None:
    written = dumps(value, standard=True)
    assert written.isascii()
    assert json.loads(written) == value
    assert json.loads(dumps(value)) == value


def test_pretty_form_has_one_member_a_line_and_tabs() -> None:
    value = {"a": {0: 1, 1: 2}, "b": ["x", "y"], "c": {}, "d": [], "e": Leaf("T")}
    assert dumps_pretty(value).decode().split("\n") == [
        "{",
        '\t"a":{',
        "\t\t0:1,",
        "\t\t1:2",
        "\t},",
        '\t"b":[',
        '\t\t"x",',
        '\t\t"y"',
        "\t],",
        '\t"c":{},',
        '\t"d":[],',
        '\t"e":{',
        '\t\t"queueId":0,',
        '\t\t"topic":"T"',
        "\t}",
        "}",
    ]


def test_config_files_of_a_java_broker_are_written_byte_for_byte() -> None:
    files = sorted((golden_store("clean") / "config").glob("*.json"))
    assert len(files) >= 6
    for file in files:
        assert dumps_pretty(loads(file.read_bytes())) == file.read_bytes(), file.name


def test_metrics_files_of_a_java_broker_are_written_byte_for_byte() -> None:
    for name in ("timermetrics", "transactionMetrics"):
        data = (golden_store("clean") / "config" / name).read_bytes()
        assert dumps(loads(data)) == data
