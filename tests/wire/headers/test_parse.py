"""Java's rules for the text of ext fields."""

import pytest

from cometmq.wire.headers import HeaderError
from cometmq.wire.headers.parse import (
    need_i32,
    need_i64,
    need_text,
    parse_bool,
    parse_boundary,
    parse_i32,
    parse_i64,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-0", 0), ("+5", 5), ("007", 7), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))],
)
def test_integers_that_java_reads(text: str, value: int) -> None:
    assert parse_i32(text) == value
    assert need_i32("H", {"f": text}, "f") == value
    assert need_i64("H", {"f": text}, "f") == value


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_0", "0x10", "1.0", "1e3", "--1", "+", "-", "٣", "²", "1\n", "true", "9" * 10_000]
)
def test_text_that_is_no_integer(text: str) -> None:
    for parse in (parse_i32, parse_i64):
        with pytest.raises(ValueError, match="is not a decimal number"):
            parse(text)
    for need in (need_i32, need_i64):
        with pytest.raises(HeaderError, match="H: ext field f is not a decimal number"):
            need("H", {"f": text}, "f")


@pytest.mark.parametrize("text", ["2147483648", "-2147483649", "9999999999"])
def test_integers_beyond_32_bits(text: str) -> None:
    with pytest.raises(HeaderError, match=r"outside -2147483648 to 2147483647"):
        need_i32("H", {"f": text}, "f")
    assert need_i64("H", {"f": text}, "f") == int(text)


def test_the_ends_of_64_bits() -> None:
    for value in (2**63 - 1, -(2**63)):
        assert need_i64("H", {"f": str(value)}, "f") == value
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(HeaderError, match="outside"):
            need_i64("H", {"f": str(value)}, "f")


def test_an_error_does_not_repeat_a_long_value() -> None:
    with pytest.raises(HeaderError) as caught:
        need_i32("H", {"f": "x" * 100_000}, "f")
    assert len(caught.value.remark) < 200


def test_only_true_is_true() -> None:
    assert [parse_bool(text) for text in ("true", "TRUE", "True")] == [True, True, True]
    assert [parse_bool(text) for text in ("false", "1", "yes", "", " true")] == [False] * 5


def test_only_upper_is_upper() -> None:
    assert [parse_boundary(text) for text in ("upper", "UPPER", "Upper")] == ["UPPER"] * 3
    assert [parse_boundary(text) for text in ("lower", "LOWER", "", "top")] == ["LOWER"] * 4


def test_a_missing_text_is_named() -> None:
    assert need_text("H", {"f": ""}, "f") == ""
    with pytest.raises(HeaderError, match="H: ext field f is missing"):
        need_text("H", {}, "f")
