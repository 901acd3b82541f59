"""Expressions: what they select, what is refused, and their bounds."""

import itertools
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.broker import sql
from cometmq.broker.sql import CACHE_MAX, CHARS_MAX, SqlError, compile_filter
from cometmq.broker.sql.nodes import DEPTH_MAX
from cometmq.broker.sql.parser import SIGN_PAIRS_MAX
from tests.support.expressions import MESSAGES, REFUSED, SELECTED


def selects(expression: str, **properties: str) -> bool:
    return compile_filter(expression).matches(properties)


def why_refused(expression: str) -> str:
    with pytest.raises(SqlError) as caught:
        compile_filter(expression)
    return str(caught.value)


@pytest.mark.parametrize("expression", SELECTED)
def test_an_expression_selects_what_it_selects_in_java(expression: str) -> None:
    matches = compile_filter(expression).matches
    assert {name for name, properties in MESSAGES.items() if matches(properties)} == SELECTED[expression]


@pytest.mark.parametrize("expression", REFUSED)
def test_what_java_refuses_is_refused(expression: str) -> None:
    assert len(why_refused(expression)) > 15


# Logic

VALUES: dict[bool | None, str] = {True: "(x = 'x')", False: "(x = 'y')", None: "(missing = 'x')"}


def truth(expression: str) -> bool | None:
    """Its value, found by asking."""
    if selects(expression, x="x"):
        return True
    return False if selects(f"NOT ({expression})", x="x") else None


def both(left: bool | None, right: bool | None) -> bool | None:
    return False if left is False or right is False else None if left is None or right is None else True


@pytest.mark.parametrize(("left", "right"), list(itertools.product(VALUES, VALUES)))
def test_logic_has_three_values(left: bool | None, right: bool | None) -> None:
    def inverse(value: bool | None) -> bool | None:
        return None if value is None else not value

    assert truth(VALUES[left]) is left
    assert truth(f"{VALUES[left]} AND {VALUES[right]}") is both(left, right)
    assert truth(f"{VALUES[left]} OR {VALUES[right]}") is inverse(both(inverse(left), inverse(right)))


def test_and_binds_closer_than_or_and_not_closest() -> None:
    assert selects("TRUE OR TRUE AND FALSE")
    assert selects("FALSE AND FALSE OR TRUE")
    assert selects("NOT FALSE OR TRUE")
    assert not selects("NOT (FALSE OR TRUE)")
    assert selects("NOT TRUE = FALSE"), "(NOT TRUE) = FALSE"


def test_a_comparison_that_cannot_be_made_counts_only_where_it_is_reached() -> None:
    assert not selects("a = 5 OR TRUE", a="x")
    assert selects("TRUE OR a = 5", a="x")
    assert not selects("NOT (a = 5)", a="x")
    assert selects("NOT (FALSE AND a = 5)", a="x")
    assert not selects("NOT (a = 5 AND FALSE)", a="x")
    assert not selects("b > 1 OR a = 5 OR TRUE", a="x"), "unknown does not end the walk"


# Refusals


def test_a_refusal_names_the_place() -> None:
    assert why_refused("region = 'eu' AND ! size") == (
        "'!' at character 19 begins no word, number or sign here: \"region = 'eu' AND ! size\""
    )
    assert why_refused("a = 5 AND\n  OR b = 6").startswith("'O' at character 13 is not expected here")
    assert why_refused("a = 5\n AND !").startswith("'!' at character 12 begins no word")
    assert why_refused("a >") == "the expression ends too early: 'a >'"
    assert "IS NULL" in why_refused("a = NULL")
    assert "lower bound" in why_refused("a BETWEEN 7 AND 5")
    assert "write 0" in why_refused("a > 0.0")
    assert "9223372036854775807" in why_refused("a > 9223372036854775808")
    assert "compare it" in why_refused("'size'")


# Bounds


def test_an_expression_is_bounded_in_length() -> None:
    longest = "a = '" + "x" * (CHARS_MAX - 6) + "'"
    assert selects(longest, a="x" * (CHARS_MAX - 6))
    assert str(CHARS_MAX) in why_refused(longest + " ")


def test_long_chains_are_flat() -> None:
    terms = [f"a = {number}" for number in range(350)]
    chain = " OR ".join(terms)
    assert len(chain) < CHARS_MAX
    assert selects(chain, a="349")
    assert not selects(chain, a="350")
    assert compile_filter(chain).parts > 1000
    assert selects(" AND ".join(f"NOT ({term})" for term in terms[:200]), a="699")
    assert selects("(" * 2000 + "a = 5" + ")" * 2000, a="5")


@pytest.mark.parametrize(
    "deep",
    ["NOT " * DEPTH_MAX + "TRUE", "- " * DEPTH_MAX + "a = 5", "a" + " = b" * DEPTH_MAX, "a" + " IS NULL" * DEPTH_MAX],
)
def test_an_expression_is_bounded_in_depth(deep: str) -> None:
    assert str(DEPTH_MAX) in why_refused(deep)


def test_the_deepest_expression_can_be_evaluated() -> None:
    deepest = "TRUE"
    for _ in range((DEPTH_MAX - 1) // 2):
        deepest = f"NOT (FALSE OR {deepest})"
    assert selects(deepest) is ((DEPTH_MAX - 1) // 2 % 2 == 0)


def test_signs_that_could_be_comments_are_bounded() -> None:
    """Each of them has the rest of the text looked through for a line end."""
    assert "--" in why_refused("a = " + "--" * (SIGN_PAIRS_MAX + 1) + "5")
    assert selects("-- comment\n" * (2 * SIGN_PAIRS_MAX) + "a = 5", a="5")


def test_an_expression_is_compiled_once() -> None:
    assert compile_filter("once = 1") is compile_filter("once = 1")
    for number in range(CACHE_MAX):
        compile_filter(f"other = {number}")
        compile_filter("once = 1")
    assert len(sql._compiled) == CACHE_MAX
    first = compile_filter("once = 1")
    for number in range(CACHE_MAX):
        compile_filter(f"another = {number}")
    assert compile_filter("once = 1") is not first
    assert len(sql._compiled) == CACHE_MAX


def test_a_refused_expression_stays_refused_and_an_overlong_one_is_not_kept() -> None:
    assert why_refused("refused >") == why_refused("refused >")
    assert "refused >" in sql._compiled
    why_refused("x" * (CHARS_MAX + 1))
    assert max(map(len, sql._compiled)) <= CHARS_MAX


def test_a_broker_does_not_read_the_grammar_before_it_is_needed() -> None:
    program = (
        "import sys, cometmq.broker.server\n"
        "from cometmq.broker import sql\n"
        "assert not any(name.split('.')[0] == 'lark' for name in sys.modules)\n"
        "assert sql.compile_filter('a = 5').matches({'a': '5'})\n"
        "assert 'lark' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# Anything at all

WORDS = [
    *("a", "b", "c", "A", "TRUE", "FALSE", "NULL", "NOT", "AND", "OR", "IS", "IN", "BETWEEN", "CONTAINS", "STARTSWITH"),
    *("ENDSWITH", "LIKE", "(", ")", ",", "=", "<>", ">", "<", ">=", "<=", "+", "-", "--", "/*", "*/", "0", "5", "5L"),
    *("5.5", ".5", "1e3", "0.0", "2147483648", "9223372036854775808", "''", "'x'", "'5'", "'it''s'", "'", "\n", "\r"),
    *("!", ";", "é", "$", "_"),
]
TEXTS = st.one_of(
    st.text(max_size=80),
    st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=30).map("".join),
    st.tuples(st.sampled_from([*SELECTED, *REFUSED]), st.integers(0, 40), st.text(max_size=3)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] :]
    ),
)
PROPERTIES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "A"]), st.one_of(st.text(min_size=1), st.sampled_from(["5", "5.5", "x", "true"]))
)


@given(TEXTS, PROPERTIES)
def test_any_text_is_a_filter_or_is_refused(text: str, properties: dict[str, str]) -> None:
    try:
        found = compile_filter(text)
    except SqlError:
        return
    assert found.matches(properties) in (True, False)
    assert found.matches({}) in (True, False)


@given(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_integers_are_ordered_as_integers(literal: int, value: int) -> None:
    for sign, holds in (("<", value < literal), (">=", value >= literal), ("=", value == literal)):
        assert selects(f"a {sign} {literal}", a=str(value)) is holds


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=5e-324), st.floats(allow_nan=False))
def test_decimals_are_ordered_as_doubles(literal: float, value: float) -> None:
    text = f"{literal!r}" if math.modf(literal)[0] or "e" in f"{literal!r}" else f"{literal:.1f}"
    given_text = str(value).replace("inf", "Infinity")
    assert selects(f"a < {text}", a=given_text) is (value < literal)
    assert selects(f"a > {text}", a=given_text) is (value > literal)
