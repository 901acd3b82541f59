"""Reading fastjson's dialect: what it means, what is refused, and that hostile text costs little."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import WireError
from cometmq.wire.fastjson import reader
from cometmq.wire.fastjson.dialect import DEPTH_MAX, ObjectKey, dumps, loads, loads_finite
from tests.support.golden import golden_store

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def by_second_parser(text: str) -> Any:
    """A bare key makes the text dialect, so msgspec refuses it."""
    return loads(f"{{0:{text}}}")[0]


@given(VALUES)
def test_both_parsers_read_standard_json_alike(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value, indent="\t")):
        assert loads(text) == value
        assert by_second_parser(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{0:1}}', {"a": {0: 1}}),
        ('{"t":{{"q":1,"t":"x"}:{"n":2}}}', {"t": {ObjectKey((("q", 1), ("t", "x"))): {"n": 2}}}),
        ('{-3:"x",0:null}', {-3: "x", 0: None}),
        ('{ 0 : [ ] , 1 : { } }', {0: [], 1: {}}),
        ('{"0":1,0:2}', {"0": 1, 0: 2}),
        ('{0:1,0:2}', {0: 2}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{0:1.5,1:-2E3,2:"\\u4f60\\n\\/"}', {0: 1.5, 1: -2000.0, 2: "你\n/"}),
        ('{0:9223372036854775807,1:99999999999999999999}', {0: 2**63 - 1, 1: 99999999999999999999}),
        ('{{"b":[1,{"c":2}]}:0}', {ObjectKey((("b", (1, ObjectKey((("c", 2),)))),)): 0}),
        ('{"{\\"q\\":1}":5}', {'{"q":1}': 5}),
        ('[true,false,null,{0:true}]', [True, False, None, {0: True}]),
    ],
)  # fmt: skip
def test_forms_that_java_writes_and_others_send(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value


def test_the_order_of_members_does_not_make_another_key() -> None:
    assert loads('{{"a":1,"b":2}:0,{"b":2,"a":1}:1}') == {ObjectKey((("a", 1), ("b", 2))): 1}


def test_config_files_of_a_java_broker_read() -> None:
    offsets = loads((golden_store("clean") / "config" / "consumerOffset.json").read_bytes())
    assert offsets["offsetTable"]["RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"] == {0: 12}


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", 0), ("{", 1), ("{0", 2), ("{0:", 3), ("{0:1", 4), ("{0:1,}", 5), ("{0:1 2}", 5), ("{0:1}x", 5),
        ("{0:[1,]}", 6), ("{1.5:0}", 4), ("{true:0}", 1), ("{a:0}", 1), ("{'a':0}", 1), ("{0:01}", 4),
        ("{0:-}", 3), ("{0:.5}", 3), ("{0:tru}", 3), ("{0:NaN}", 3), ('{0:"abc', 3), ('{0:"\x01"}', 3),
        ('{0:"\\x"}', 3), ('{0:"\\ud800"}', 3), ('{0:"\\udc00\\ud800"}', 3), ("{0:1e999999}", 3),
        ("{0:" + "9" * 5_000 + "}", 3), ("{0:-1e400}", 3), ("{[1]:2}", 1), ("//c\n1", 0),
    ],
)  # fmt: skip
def test_malformed_text_is_refused_with_its_position(text: str, at: int) -> None:
    for read in (loads, loads_finite):
        with pytest.raises(WireError, match=rf"JSON malformed at character {at}:"):
            read(text)


@pytest.mark.parametrize("text", ["1e999999", "9" * 100_000, '"\\ud800"', "nul", "[1,]", "\ufeff{}"])
def test_text_that_only_the_first_parser_sees_is_refused_alike(text: str) -> None:
    with pytest.raises(WireError, match="JSON malformed"):
        loads(text)


def test_text_that_is_not_unicode_is_refused() -> None:
    for data in (b"\xff", b'{"a":"\xed\xa0\x80"}', b'{0:"\xc3"}'):
        with pytest.raises(WireError, match="JSON text is not UTF-8 at byte"):
            loads(data)
    with pytest.raises(WireError, match="lone surrogate at character 1"):
        loads('"\ud800"')


@pytest.mark.parametrize("shape", ["[", '{"a":', "{0:", "{{", '[{"a":'])
def test_nesting_is_bounded(shape: str) -> None:
    for times in (DEPTH_MAX + 1, 1_000, 200_000):
        with pytest.raises(WireError, match=f"nested more than {DEPTH_MAX} deep"):
            loads(shape * times)


def test_the_bound_on_nesting_is_the_same_for_both_parsers() -> None:
    def nested(levels: int) -> str:
        return "[" * levels + "]" * levels

    loads(nested(DEPTH_MAX))
    loads("[" + ",".join(["[]"] * 1_000) + "]")
    by_second_parser(nested(DEPTH_MAX - 1))
    for too_deep in (nested(DEPTH_MAX + 1), f"{{0:{nested(DEPTH_MAX)}}}"):
        with pytest.raises(WireError, match="nested more than"):
            loads(too_deep)


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BYTES_MAX", 10)
    loads("[1,2,3,45]")
    with pytest.raises(WireError, match="JSON text of 11 bytes, the limit is 10"):
        loads("[1,2,3,456]")


class TestReferences:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('{"x":{"$ref":"$.y"},"y":{"k":"v"}}', {"x": {"k": "v"}, "y": {"k": "v"}}),
            ('{"y":[{"k":1},{"$ref":"$.y[0]"}]}', {"y": [{"k": 1}, {"k": 1}]}),
            ('[{"k":1},{"$ref":"$[0]"}]', [{"k": 1}, {"k": 1}]),
            ('{"a-b":{"c.d":{"k":1}},"x":{"$ref":"$.a\\\\-b.c\\\\.d"}}', {"a-b": {"c.d": {"k": 1}}, "x": {"k": 1}}),
            ('{"a":{"b c":[2]},"x":{"$ref":"$.a[\'b c\'][0]"}}', {"a": {"b c": [2]}, "x": 2}),
            ('{"m":{0:{"k":1}},"x":{"$ref":"$.m[0]"},"y":{"$ref":"$.m.0"}}',
             {"m": {0: {"k": 1}}, "x": {"k": 1}, "y": {"k": 1}}),
            ('{"x":{"$ref":"$.y"},"y":{"$ref":"$.z.k"},"z":{"k":[1]}}', {"x": [1], "y": [1], "z": {"k": [1]}}),
            ('{"x":{"$ref":"$.y.k"},"y":{"$ref":"$.z"},"z":{"k":1}}', {"x": 1, "y": {"k": 1}, "z": {"k": 1}}),
            ('{"x":{"$ref":"$.nowhere[3].at"},"y":{"$ref":"sideways"}}', {"x": None, "y": None}),
            ('{"x":{"$ref":"$.l[9]"},"l":[1],"y":{"$ref":"$.l.k"},"z":{"$ref":"$["}}',
             {"x": None, "l": [1], "y": None, "z": None}),
            ('{"x":{"$ref":"$.y"},"y":{"$ref":"$.x"}}', {"x": None, "y": None}),
            ('{"x":{"$ref":5},"y":{"$ref":"$","more":1}}', {"x": {"$ref": 5}, "y": {"$ref": "$", "more": 1}}),
            ('{"$ref":"$"}', {"$ref": "$"}),
        ],
    )  # fmt: skip
    def test_a_reference_is_what_its_path_names(self, text: str, value: Any) -> None:
        assert loads(text) == value

    def test_a_reference_gives_the_same_object(self) -> None:
        read = loads('{"x":{"$ref":"$.y"},"y":{}}')
        assert read["x"] is read["y"]

    def test_references_upwards(self) -> None:
        read = loads('{"p":{"c":{"root":{"$ref":"$"},"parent":{"$ref":".."},"self":{"$ref":"@"}}}}')
        child = read["p"]["c"]
        assert child["root"] is read
        assert child["parent"] is read["p"]
        assert child["self"] is child

    def test_a_finite_value_has_no_references_upwards(self) -> None:
        text = '{"p":{"c":{"root":{"$ref":"$"},"parent":{"$ref":".."},"self":{"$ref":"@"},"path":{"$ref":"$.p"}}}}'
        assert loads_finite(text) == {"p": {"c": {}}}

    def test_a_finite_value_has_no_cycle_over_two_references(self) -> None:
        with pytest.raises(WireError, match="nested more than"):
            loads_finite('{"a":{"b":{"$ref":"$.c"}},"c":{"d":{"$ref":"$.a"}}}')

    def test_references_that_multiply_content_are_refused(self) -> None:
        doubling = ",".join(f'"a{i}":[{{"$ref":"$.a{i - 1}"}},{{"$ref":"$.a{i - 1}"}}]' for i in range(1, 60))
        with pytest.raises(WireError, match="references multiply its content to more than 250000 nodes"):
            loads_finite(f'{{"a0":[0],{doubling}}}')
        wide = ",".join(['{"$ref":"$.a"}'] * 1_100)
        with pytest.raises(WireError, match="references multiply"):
            loads_finite(f'{{"a":[{",".join("0" * 1_000)}],"b":[{wide}]}}')

    def test_references_that_add_depth_are_refused(self) -> None:
        half = "[" * 40 + "]" * 40
        with pytest.raises(WireError, match="nested more than"):
            loads_finite(f'{{"a":{half},"b":{"[" * 40}{{"$ref":"$.a"}}{"]" * 40}}}')

    def test_a_long_chain_of_references_is_refused(self) -> None:
        chain = ",".join(f'"a{i}":{{"$ref":"$.a{i + 1}"}}' for i in range(2_000))
        with pytest.raises(WireError, match="references lead through more than"):
            loads_finite(f'{{{chain},"a2000":{{}}}}')

    def test_many_references_to_one_map_are_fine(self) -> None:
        rows = ",".join(f'"t{i}":{{"attributes":{{"$ref":"$.first"}}}}' for i in range(5_000))
        read = loads_finite(f'{{"first":{{"k":"v"}},{rows}}}')
        assert read["t4999"] == {"attributes": {"k": "v"}}


def test_a_finite_value_has_no_nulls() -> None:
    text = '{"a":null,"b":[null,1,{"c":null}],"d":{"e":null},"l":[null,{"k":1}],"x":{"$ref":"$.l[1]"}}'
    assert loads_finite(text) == {"b": [1, {}], "d": {}, "l": [{"k": 1}], "x": {"k": 1}}


@given(st.text(st.sampled_from('{}[]:,"\\$ref.@0123456789-+eEtrufalsn \n\tu\x01é😀'), max_size=40))
def test_noise_reads_or_is_refused(text: str) -> None:
    for read in (loads, loads_finite):
        try:
            read(text)
        except WireError:
            continue


@given(st.binary(max_size=40))
def test_bytes_read_or_are_refused(data: bytes) -> None:
    try:
        loads(data)
    except WireError:
        return


MAP_KEYS = TEXT | st.integers(-(2**63), 2**63 - 1)
DIALECT = st.recursive(
    SCALARS.filter(lambda value: value is not None) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(MAP_KEYS, inner, max_size=4)
        | st.dictionaries(
            st.dictionaries(TEXT, MAP_KEYS, max_size=3).map(lambda d: ObjectKey(sorted(d.items()))), inner, max_size=3
        )
    ),
    max_leaves=20,
)


@given(DIALECT)
def test_what_is_written_in_the_dialect_reads_back(value: Any) -> None:
    assert loads(dumps(value)) == value


PRIME = 2**61 - 1


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, PRIME * 5, 10**30])
@pytest.mark.parametrize("form", ["{%d:1}", "{1:2,%d:[]}", '{{"a":%d}:1}', '{{"a":[{"b":%d}]}:1}'])
def test_an_integer_of_a_key_has_at_most_64_bits(key: int, form: str) -> None:
    with pytest.raises(WireError, match="64 bits"):
        loads(form % key)


def test_a_value_may_be_longer_than_a_key() -> None:
    assert loads(f'{{1:{10**30},{{"k":1}}:2}}') == {1: 10**30, (("k", 1),): 2}


def test_other_forms_than_standard_json_have_a_bound_of_their_own() -> None:
    text = "{1:[" + ",".join("0" * 1_000) + "]}"
    assert loads_finite(text, 10_000)
    with pytest.raises(WireError, match="is not standard JSON"):
        loads_finite(text, 1_000)
    with pytest.raises(WireError, match="has references"):
        loads_finite('{"a":[0],"b":{"$ref":"$.a"},"c":"' + "x" * 1_000 + '"}', 1_000)


@pytest.mark.parametrize("unit", [b"1,", b'"x",'])
def test_a_text_of_very_many_values_is_refused_before_it_is_read(unit: bytes) -> None:
    """Twelve megabytes of scalars held a client's loop for half a second."""
    text = b'{"a":[' + unit * reader.VALUES_MAX + b"1,1]}"
    with pytest.raises(WireError, match="values, the limit is 1000000"):
        loads_finite(text)
    assert len(loads_finite(b'{"a":[' + unit * (reader.VALUES_MAX - 1) + b"1,1]}")["a"]) > 1_000_000
