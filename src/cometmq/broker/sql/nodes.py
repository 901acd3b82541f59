"""What expressions are made of: each function takes nodes, says what is wrong with them, and gives a node.

    constant  property  negative                   values
    ordered  equal  between  one_of  containing    tests: true, false, or unknown (None)
    is_null  inverse  all_of  any_of

A node's `run` gives its value for the properties of one message. It raises NotComparable where Java raises; the order
in which parts are run, and when they are not run at all, is Java's too, because it decides whether that happens.
"""

import enum
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from cometmq.broker.sql import Properties, SqlError
from cometmq.broker.sql.values import (
    I32_MAX,
    I64_MAX,
    Long,
    Value,
    is_equal,
    order,
    order_numbers,
    read_double,
    read_double_to_infinity,
    read_int,
    read_long,
)

# One level is one call inside another: Python has a thousand of them for everything.
DEPTH_MAX: Final = 100

Run: TypeAlias = Callable[[Properties], Value]
Test: TypeAlias = Callable[[Properties], bool | None]


class Kind(enum.Enum):
    CONSTANT = enum.auto()
    PROPERTY = enum.auto()
    NEGATIVE = enum.auto()
    TEST = enum.auto()


@dataclass(frozen=True, slots=True)
class Node:
    """`text` is for people, and the name of a property. A constant has its value in `constant`; a literal number, with
    or without a minus, in `number`."""

    kind: Kind
    run: Run
    text: str
    depth: int = 1
    parts: int = 1
    constant: Value = None
    number: int | float | None = None

    @property
    def is_null_literal(self) -> bool:
        return self.kind is Kind.CONSTANT and self.constant is None


def constant(value: Value, text: str) -> Node:
    return Node(Kind.CONSTANT, lambda _: value, text, constant=value)


def integer(text: str) -> Node:
    number = int(text.rstrip("lL")) if len(text) <= 20 else I64_MAX + 1
    if number > I64_MAX:
        raise SqlError(f"the number {text[:40]} is too large: the limit is {I64_MAX}, or write it with a point")
    return _literal(Long(number) if number > I32_MAX else number, text)


def decimal(text: str) -> Node:
    number = read_double(text)
    if not 0 < number < float("inf"):
        wrong = "small: write 0" if number == 0 else "large: the limit is 1.7976931348623157E308"
        raise SqlError(f"the number {text[:40]} is too {wrong}")
    return _literal(number, text)


def _literal(number: int | float, text: str) -> Node:
    return Node(Kind.CONSTANT, lambda _: number, text, constant=number, number=number)


def property_of(name: str) -> Node:
    def value(properties: Properties) -> str | None:
        return properties.get(name)

    return Node(Kind.PROPERTY, value, name)


def negative(node: Node) -> Node:
    """Unknown of anything but a number. Not a constant, even of one: what is checked for those is not for this."""
    if node.number is not None:
        number = Long(-node.number) if isinstance(node.number, Long) else -node.number
        return replace(_made(Kind.NEGATIVE, lambda _: number, f"-{node.text}", node), number=number)
    run = node.run

    def nothing(properties: Properties) -> None:
        run(properties)

    return _made(Kind.NEGATIVE, nothing, f"(- {node.text})", node)


# Comparing

Holds: TypeAlias = Callable[[int | float, int | float], bool]

ORDERS: Final[dict[str, Holds]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def ordered(left: Node, sign: str, right: Node) -> Node:
    for node in (left, right):
        _check_ordered(node)
    holds = ORDERS[sign]
    text = f"({left.text} {sign} {right.text})"
    if left.kind is Kind.PROPERTY and right.number is not None:
        return _made(Kind.TEST, _number_test(left.text, holds, right.number), text, left, right)
    run_left, run_right = left.run, right.run

    def test(properties: Properties) -> bool | None:
        one = run_left(properties)
        if one is None:
            return None
        other = run_right(properties)
        return None if other is None else holds(order(one, other), 0)

    return _made(Kind.TEST, test, text, left, right)


def _number_test(name: str, holds: Holds, number: int | float) -> Test:
    """A property against a literal number, which most comparisons are: 0.2 us instead of 0.6 us.

    The literal is neither zero with a point nor NaN, so that Python's order is Java's but for a property of NaN.
    """
    read: Callable[[str], int | float] = read_int
    if isinstance(number, float):
        read = read_double_to_infinity
    elif isinstance(number, Long):
        read = read_long

    def test(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else holds(read(text), number)

    return test


def _check_ordered(node: Node) -> None:
    value = node.constant
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if node.kind is Kind.TEST or (node.kind is Kind.CONSTANT and not is_number):
        raise SqlError(f"{node.text[:80]} cannot be greater or less than anything: only numbers and properties can")


def between(node: Node, low: Node, high: Node) -> Node:
    found = all_of([ordered(node, ">=", low), ordered(node, "<=", high)])
    if low.kind is high.kind is Kind.CONSTANT and order_numbers(low.constant, high.constant) > 0:
        raise SqlError(f"BETWEEN {low.text[:40]} AND {high.text[:40]} is empty: the lower bound comes first")
    return found


def not_between(node: Node, low: Node, high: Node) -> Node:
    return any_of([ordered(node, "<", low), ordered(node, ">", high)])


def equal(left: Node, right: Node) -> Node:
    for node in (left, right):
        if node.is_null_literal:
            raise SqlError("nothing is equal to NULL: use IS NULL or IS NOT NULL")
    if isinstance(left.constant, bool) and right.kind is Kind.CONSTANT and not isinstance(right.constant, bool):
        raise SqlError(f"{left.text} cannot be compared with {right.text[:40]}")
    if left.kind is Kind.PROPERTY and right.number is not None:
        test = _number_test(left.text, operator.eq, right.number)
        return _made(Kind.TEST, test, f"({left.text} = {right.text})", left, right)
    return _equal(left, right)


def is_null(node: Node) -> Node:
    return _equal(node, constant(None, "NULL"))


def _equal(left: Node, right: Node) -> Node:
    run_left, run_right = left.run, right.run

    def test(properties: Properties) -> bool | None:
        return is_equal(run_left(properties), run_right(properties))

    return _made(Kind.TEST, test, f"({left.text} = {right.text})", left, right)


def one_of(node: Node, texts: Sequence[str], *, negated: bool) -> Node:
    if node.kind is not Kind.PROPERTY:
        raise SqlError(f"{node.text[:80]} cannot be IN a list: only a property can")
    name, wanted = node.text, frozenset(texts)

    def test(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in wanted) is not negated

    return _made(Kind.TEST, test, f"({name} IN ...)", node)


CONTAININGS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def containing(node: Node, word: str, part: str, *, negated: bool) -> Node:
    """Never unknown: what is no text contains nothing and, oddly, does not not contain it either. So with no part."""
    holds = CONTAININGS[word]
    run = node.run

    def test(properties: Properties) -> bool:
        value = run(properties)
        return isinstance(value, str) and holds(value, part) is not negated

    return _made(Kind.TEST, test if part else lambda _: False, f"({node.text} {word} ...)", node)


# Logic


def as_test(node: Node) -> Test:
    """A property stands for false if it is there, whatever its text."""
    if node.kind is Kind.CONSTANT and not (node.constant is None or isinstance(node.constant, bool)):
        raise SqlError(f"{node.text[:80]} is neither true nor false: compare it with something")
    if node.kind is Kind.NEGATIVE:
        raise SqlError(f"{node.text[:80]} is neither true nor false: compare it with something")
    run = node.run
    if node.kind is not Kind.PROPERTY:
        return run  # type: ignore[return-value]  # the kinds that are left give nothing else
    return lambda properties: None if run(properties) is None else False


def inverse(node: Node) -> Node:
    test = as_test(node)

    def inverted(properties: Properties) -> bool | None:
        value = test(properties)
        return None if value is None else not value

    return _made(Kind.TEST, inverted, f"(NOT {node.text})", node)


def all_of(nodes: Sequence[Node]) -> Node:
    return _joined(nodes, "AND", stop=False)


def any_of(nodes: Sequence[Node]) -> Node:
    return _joined(nodes, "OR", stop=True)


def _joined(nodes: Sequence[Node], word: str, *, stop: bool) -> Node:
    """One node for a whole chain, so that a long one is not deep. A part that decides ends the walk."""
    tests = [as_test(node) for node in nodes]

    def test(properties: Properties) -> bool | None:
        result: bool | None = not stop
        for part in tests:
            value = part(properties)
            if value is stop:
                return stop
            if value is None:
                result = None
        return result

    return _made(Kind.TEST, test, f"({nodes[0].text} {word} ...)", *nodes)


def _made(kind: Kind, run: Run, text: str, *of: Node) -> Node:
    depth = 1 + max(node.depth for node in of)
    parts = 1 + sum(node.parts for node in of)
    if depth > DEPTH_MAX:
        raise SqlError(f"the expression is nested more than {DEPTH_MAX} levels deep: write it flatter")
    return Node(kind, run, text if len(text) <= 80 else text[:80] + "...", depth, parts)
