"""Java's numbers in texts, and Java's order of them."""

import itertools
import math

import pytest

from cometmq.broker.sql.values import (
    Long,
    NotComparable,
    is_equal,
    order,
    order_doubles,
    read_double,
    read_int,
    read_long,
)

INTEGERS = {
    "5": 5,
    "-5": -5,
    "+5": 5,
    "007": 7,
    "0000000000000005": 5,
    "٥": 5,
    "2147483647": 2**31 - 1,
    "-2147483648": -(2**31),
}
NO_INTEGERS = ["", " 5", "5 ", "5.0", "1e3", "0x5", "5L", "1_0", "++5", "+", "-", "x", "²", "𝟓", "5" * 5000, "\u00a05"]


@pytest.mark.parametrize("text", INTEGERS)
def test_texts_that_are_integers(text: str) -> None:
    assert read_int(text) == read_long(text) == INTEGERS[text]


@pytest.mark.parametrize("text", NO_INTEGERS)
def test_texts_that_are_no_integers(text: str) -> None:
    for read in (read_int, read_long):
        with pytest.raises(NotComparable):
            read(text)


@pytest.mark.parametrize("beyond", [2**31, -(2**31) - 1])
def test_an_int_has_32_bits_and_a_long_64(beyond: int) -> None:
    with pytest.raises(NotComparable):
        read_int(str(beyond))
    assert read_long(str(beyond)) == beyond
    assert read_long(str(2**63 - 1)) == 2**63 - 1
    for outside in (2**63, -(2**63) - 1):
        with pytest.raises(NotComparable):
            read_long(str(outside))


DOUBLES = {
    "5": 5.0,
    " 5.5\n": 5.5,
    "+.5": 0.5,
    "5.": 5.0,
    "1e3": 1000.0,
    "1E-3": 0.001,
    "5f": 5.0,
    "5D": 5.0,
    "1e400": math.inf,
    "-Infinity": -math.inf,
    "0x1p3": 8.0,
    "-0X.8p1d": -1.0,
    "0x1p9999": math.inf,
    "-0x1p9999": -math.inf,
}
NO_DOUBLES = [
    "",
    " ",
    ".",
    "e3",
    "1e",
    "5 5",
    "1_0",
    "inf",
    "infinity",
    "nan",
    "0x1",
    "0x1p",
    "5L",
    "٥",
    "\u00a05",
    "--5",
]


@pytest.mark.parametrize("text", DOUBLES)
def test_texts_that_are_doubles(text: str) -> None:
    assert read_double(text) == DOUBLES[text]


@pytest.mark.parametrize("text", NO_DOUBLES)
def test_texts_that_are_no_doubles(text: str) -> None:
    with pytest.raises(NotComparable):
        read_double(text)


def test_doubles_have_a_total_order() -> None:
    rising = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
    for (low, one), (high, other) in itertools.product(enumerate(rising), repeat=2):
        found = order_doubles(one, other)
        assert (found > 0) - (found < 0) == (low > high) - (low < high)
    assert math.isnan(read_double("NaN"))
    assert math.isnan(read_double("-NaN"))


def test_a_text_beside_a_number_is_read_like_it() -> None:
    assert order("6", 5) > 0
    assert order(5, "6") < 0
    assert order("3000000000", Long(5)) > 0
    assert order("5.5", 5.25) > 0
    assert order("10", "9") > 0, "two texts are ordered as doubles"
    for text, number in (("3000000000", 5), ("5.5", 5), ("5.5", Long(5)), ("x", 5.5)):
        with pytest.raises(NotComparable):
            order(text, number)


def test_large_integers_lose_digits_beside_a_double() -> None:
    assert order(Long(2**53 + 1), float(2**53)) == 0
    assert order(Long(2**53 + 1), Long(2**53)) > 0


def test_equality_knows_kinds() -> None:
    assert is_equal(None, None) is True
    assert is_equal(None, 5) is None
    assert is_equal(5, None) is False
    assert is_equal("True", True) is True
    assert is_equal("yes", False) is True
    assert is_equal(5, True) is False
    assert is_equal(True, 1) is False
    assert is_equal("5", "5.0") is False
    assert is_equal(5, 5.0) is True
    with pytest.raises(NotComparable):
        is_equal(True, "true")
