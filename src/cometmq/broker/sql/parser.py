"""The grammar, read by lark, which makes an LALR parser of it once per process.

Tokens are Java's: the longest match, the same in every place, words of the language reserved in any case. A line
comment needs its line end; without one `--` is two signs. Parsing ends at the first token that cannot continue a
whole expression, and what follows is ignored, as in RocketMQ: `a > 5 LIKE 'x'` is `a > 5`.
"""

from functools import cache
from typing import Final

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from cometmq.broker.sql import Filter, Properties, SqlError, nodes
from cometmq.broker.sql.nodes import Node
from cometmq.broker.sql.values import NotComparable

GRAMMAR: Final = r"""
    start: either

    ?either: both
        | both (_OR both)+                              -> any_of
    ?both: equality
        | equality (_AND equality)+                     -> all_of

    ?equality: comparison
        | equality "=" comparison                       -> equal
        | equality UNEQUAL comparison                   -> unequal
        | equality _IS _NULL                            -> is_null
        | equality _IS _NOT _NULL                       -> is_not_null

    ?comparison: unary
        | comparison ORDER unary                        -> ordered
        | comparison _BETWEEN unary _AND unary          -> between
        | comparison _NOT _BETWEEN unary _AND unary     -> not_between
        | comparison _IN "(" TEXT ("," TEXT)* ")"       -> one_of
        | comparison _NOT _IN "(" TEXT ("," TEXT)* ")"  -> not_one_of
        | comparison PART TEXT                          -> containing
        | comparison _NOT PART TEXT                     -> not_containing

    ?unary: primary
        | "+" unary
        | "-" unary                                     -> negative
        | _NOT unary                                    -> inverse

    ?primary: "(" either ")"
        | NAME                                          -> property_of
        | INTEGER                                       -> integer
        | DECIMAL                                       -> decimal
        | TEXT                                          -> text
        | _TRUE                                         -> true
        | _FALSE                                        -> false
        | _NULL                                         -> null

    %declare _OR _AND _NOT _IS _NULL _BETWEEN _IN _TRUE _FALSE PART

    NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
    DECIMAL.2: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
    INTEGER: /0|[1-9][0-9]*[lL]?/
    TEXT: /'[^']*(''[^']*)*'/
    UNEQUAL.2: "<>"
    ORDER: /[<>]=?/
    BLANKS: /[ \t\n\r\f]+/
    LINE_COMMENT.2: /--[^\n\r]*(\r\n|\n|\r)/
    COMMENT: /\/\*[\s\S]*?\*\//

    %ignore BLANKS
    %ignore LINE_COMMENT
    %ignore COMMENT
"""
SIGN_PAIRS_MAX: Final = 50

RESERVED: Final = {
    "OR": "_OR",
    "AND": "_AND",
    "NOT": "_NOT",
    "IS": "_IS",
    "NULL": "_NULL",
    "BETWEEN": "_BETWEEN",
    "IN": "_IN",
    "TRUE": "_TRUE",
    "FALSE": "_FALSE",
    "CONTAINS": "PART",
    "STARTSWITH": "PART",
    "ENDSWITH": "PART",
}


def parse(text: str) -> Filter:
    """Raises SqlError."""
    root = _root(text)
    test = nodes.as_test(root)

    def matches(properties: Properties) -> bool:
        try:
            return test(properties) is True
        except NotComparable:
            return False

    return Filter(text, matches, root.parts)


def _root(text: str) -> Node:
    _check_signs(text)
    walk = prepare().parse_interactive(text)
    at = len(text)
    try:
        for _ in walk.iter_parse():
            pass
    except UnexpectedCharacters as error:
        position: int = error.pos_in_stream  # type: ignore[assignment]  # declared for errors that have none
        raise _fault(text, position, "begins no word, number or sign") from None
    except UnexpectedToken as error:
        at = error.token.start_pos
    try:
        node: Node = walk.feed_eof()  # type: ignore[no-untyped-call]
    except UnexpectedToken:
        raise _fault(text, at, "is not expected") from None
    return node


def _check_signs(text: str) -> None:
    """Each `--` that no line end follows is looked at to the end of the text: many of them take seconds."""
    last_line = max(text.rfind("\n"), text.rfind("\r")) + 1
    count = text.count("--", last_line)
    if count > SIGN_PAIRS_MAX:
        raise SqlError(f"the expression has {count} times -- outside of comments, at most {SIGN_PAIRS_MAX} are allowed")


def _fault(text: str, at: int, what: str) -> SqlError:
    if at >= len(text):
        return SqlError(f"the expression ends too early: {text[-60:]!r}")
    return SqlError(f"{text[at]!r} at character {at + 1} {what} here: {text[max(0, at - 30) : at + 30]!r}")


@cache
def prepare() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Building(), lexer_callbacks={"NAME": _reserve})


def _reserve(token: Token) -> Token:
    reserved = RESERVED.get(token.upper())
    return token if reserved is None else token.update(type=reserved)


def _content(text: Token) -> str:
    return text[1:-1].replace("''", "'")


@v_args(inline=True)
class _Building(Transformer[Token, Node]):
    """A method for each rule of the grammar; called while parsing, so that nothing is ever walked down again."""

    def start(self, node: Node) -> Node:
        return node

    def any_of(self, *parts: Node) -> Node:
        return nodes.any_of(parts)

    def all_of(self, *parts: Node) -> Node:
        return nodes.all_of(parts)

    def equal(self, left: Node, right: Node) -> Node:
        return nodes.equal(left, right)

    def unequal(self, left: Node, _sign: Token, right: Node) -> Node:
        return nodes.inverse(nodes.equal(left, right))

    def is_null(self, node: Node) -> Node:
        return nodes.is_null(node)

    def is_not_null(self, node: Node) -> Node:
        return nodes.inverse(nodes.is_null(node))

    def ordered(self, left: Node, sign: Token, right: Node) -> Node:
        return nodes.ordered(left, str(sign), right)

    def between(self, node: Node, low: Node, high: Node) -> Node:
        return nodes.between(node, low, high)

    def not_between(self, node: Node, low: Node, high: Node) -> Node:
        return nodes.not_between(node, low, high)

    def one_of(self, node: Node, *texts: Token) -> Node:
        return nodes.one_of(node, [_content(text) for text in texts], negated=False)

    def not_one_of(self, node: Node, *texts: Token) -> Node:
        return nodes.one_of(node, [_content(text) for text in texts], negated=True)

    def containing(self, node: Node, word: Token, part: Token) -> Node:
        return nodes.containing(node, word.upper(), _content(part), negated=False)

    def not_containing(self, node: Node, word: Token, part: Token) -> Node:
        return nodes.containing(node, word.upper(), _content(part), negated=True)

    def negative(self, node: Node) -> Node:
        return nodes.negative(node)

    def inverse(self, node: Node) -> Node:
        return nodes.inverse(node)

    def property_of(self, name: Token) -> Node:
        return nodes.property_of(str(name))

    def integer(self, text: Token) -> Node:
        return nodes.integer(str(text))

    def decimal(self, text: Token) -> Node:
        return nodes.decimal(str(text))

    def text(self, text: Token) -> Node:
        return nodes.constant(_content(text), str(text))

    def true(self) -> Node:
        return nodes.constant(True, "TRUE")

    def false(self) -> Node:
        return nodes.constant(False, "FALSE")

    def null(self) -> Node:
        return nodes.constant(None, "NULL")
