"""Property filters in RocketMQ's SQL92: text in, a test of a message's properties out.

    matches = compile_filter("region = 'eu' AND size > 10")
    matches({"region": "eu", "size": "12"})        True

    parser.py     text -> tokens -> calls of nodes.py, one for each thing in the grammar
    nodes.py      what may be combined with what; each node is a closure over its parts
    values.py     Java's numbers: how a property's text becomes one, and which of two is greater

Properties are texts. Logic has three values: a property that is not there makes a comparison neither true nor false.
A message is wanted only if the whole expression is exactly true; a comparison that cannot be made (`size > 10` with
size "12.5") counts as no. All the odd corners are those of the RocketMQ broker, compared with it expression by
expression.

Nothing is evaluated as Python: an expression can read the properties it is given, and nothing else. Its length is
bounded (`CHARS_MAX`) and so is its depth (`nodes.DEPTH_MAX`).

The grammar is read when the first expression comes: a broker without property filters does not pay for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from cometmq.errors import CometError

TYPE: Final = "SQL92"
# The longest take 20 ms to compile, once.
CHARS_MAX: Final = 4_096
# Consumers that send their expression with every pull have it compiled once.
CACHE_MAX: Final = 100
# What is compiled is thousands of objects, and the garbage collector stops the loop to look through all there are.
CACHE_CHARS_MAX: Final = 32_768


class Properties(Protocol):
    """A dict of texts, or what looks up one at a time."""

    def get(self, name: str, /) -> str | None: ...


class SqlError(CometError):
    """The text is not an expression that can be served. The message says what is wrong with it, and where."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A compiled expression. `matches` never raises; a test costs up to 0.2 us for each of the `parts`."""

    text: str
    matches: Callable[[Properties], bool]
    parts: int


# A text that was refused is kept with the reason: it costs as much to refuse as another to compile.
_compiled: Final[dict[str, Filter | str]] = {}


def compile_filter(text: str) -> Filter:
    """Raises SqlError. The same text again costs a look-up."""
    if len(text) > CHARS_MAX:
        raise SqlError(f"the expression has {len(text)} characters, at most {CHARS_MAX} are allowed: use fewer terms")
    found = _compiled.pop(text, None)
    if found is None:
        found = _compile(text)
        chars = len(text) + sum(map(len, _compiled))
        while _compiled and (len(_compiled) >= CACHE_MAX or chars > CACHE_CHARS_MAX):
            oldest = next(iter(_compiled))
            chars -= len(oldest)
            del _compiled[oldest]
    _compiled[text] = found  # behind all others: the first is the one not used for the longest time
    if isinstance(found, str):
        raise SqlError(found)
    return found


def _compile(text: str) -> Filter | str:
    from cometmq.broker.sql import parser

    try:
        return parser.parse(text)
    except SqlError as error:
        return str(error)


def load() -> None:
    """Read the grammar, which takes 70 ms, once; for another thread."""
    from cometmq.broker.sql import parser

    parser.prepare()
