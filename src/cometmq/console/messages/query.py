"""The one box: words in, a `Query` out. Pure; `now_ms` is given.

    4711                 a key, or text anywhere in the message; 32 hexadecimal digits are an id of either form
    key:4711             the index                     id:C0A8...           the index
    tag:created          filtered by the broker        queue:3  broker:a  offset:120
    prop.city:Kiel       a property is this            prop.city            it is there
    body:refund          the body has this text        json.order.price>100   = : != > >= < <=
    from:-2h  to:12:00   a time: -2h, 12:00, 2026-01-31, 2026-01-31T12:00:00Z, milliseconds
    "two words"          quotes hold a value together

A scan runs from the newest message backwards, or forwards from `from:` or `offset:`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cometmq.console.answers import Problem

WORDS_MAX: Final = 20
_WORD: Final = re.compile(r'((?:[^\s"]|"[^"]*"?)+)')
_TEST: Final = re.compile(r"(json\.[^<>=!:]{1,200})(!=|>=|<=|=|:|>|<)(.*)", re.DOTALL)
_AGO: Final = re.compile(r"-(\d{1,9})(ms|s|m|h|d)")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_ID: Final = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{40}")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
COMPLETIONS: Final = (
    "key:", "id:", "tag:", "prop.", "body:", "json.", "from:-2h", "to:12:00", "queue:", "offset:", "broker:",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What a test sees of a message: masked already. `own` are the properties that an application set."""

    text: str
    value: Any
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    own: Mapping[str, str] = field(default_factory=dict)


Test = Callable[[Found], bool]


@dataclass
class Query:
    key: str | None = None
    id: str | None = None
    tag: str | None = None
    broker: str | None = None
    queue: int | None = None
    offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    words: list[str] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    looks_into_body: bool = False

    @property
    def is_forward(self) -> bool:
        return self.from_ms is not None or self.offset is not None

    @property
    def is_exact(self) -> bool:
        """The index has the answer."""
        return self.key is not None or self.id is not None

    def takes(self, found: Found) -> bool:
        return all(test(found) for test in self.tests)


def parse(text: str, now_ms: int) -> Query:
    words = list[str](_WORD.findall(text))
    if len(words) > WORDS_MAX:
        raise Problem(400, f"the search has {len(words)} words, at most {WORDS_MAX} are taken")
    query = Query()
    for word in words:
        _take(query, word, now_ms)
    if query.from_ms is not None and query.to_ms is not None and query.from_ms > query.to_ms:
        raise Problem(400, "from: is after to:, so nothing can be between them")
    return query


def _take(query: Query, word: str, now_ms: int) -> None:
    test = _TEST.fullmatch(word)
    if test is not None:
        query.tests.append(_json_test(test[1].removeprefix("json."), test[2], plain(test[3])))
        query.looks_into_body = True
        return
    name, colon, rest = word.partition(":")
    value = plain(rest)
    if name.startswith("prop.") and len(name) > 5:
        query.tests.append(_property_test(name.removeprefix("prop."), value if colon else None))
    elif not colon or name not in _NAMED:
        _bare(query, plain(word))
    elif not value:
        raise Problem(400, f"{name}: has no value; {_NAMED[name]}")
    else:
        _named(query, name, value, now_ms)


_NAMED: Final = {
    "key": "key:4711 finds messages by key",
    "id": "id: takes an id of either form",
    "tag": "tag:created",
    "body": "body:refund finds text in bodies",
    "queue": "queue:3",
    "offset": "offset:120",
    "broker": "broker:broker-a",
    "from": "from:-2h, from:12:00 or from:2026-01-31T12:00:00Z",
    "to": "to:-2h, to:12:00 or to:2026-01-31T12:00:00Z",
}


def _named(query: Query, name: str, value: str, now_ms: int) -> None:
    if name in ("queue", "offset"):
        if not value.isdecimal() or len(value) > 18:
            raise Problem(400, f"{name}:{value[:40]} is no number; {_NAMED[name]}")
        setattr(query, name, int(value))
    elif name in ("from", "to"):
        setattr(query, f"{name}_ms", moment_ms(name, value, now_ms))
    elif name == "body":
        lower = value.lower()
        query.tests.append(lambda found: lower in found.text.lower())
        query.looks_into_body = True
    else:
        setattr(query, name, value)


def _bare(query: Query, value: str) -> None:
    if _ID.fullmatch(value) and query.id is None:
        query.id = value
        return
    lower = value.lower()
    query.words.append(value)
    query.looks_into_body = True
    query.tests.append(
        lambda found: (
            value in found.keys
            or lower in found.text.lower()
            or any(lower in f"{name}={text}".lower() for name, text in found.own.items())
            or any(lower in key.lower() for key in found.keys)
            or lower in found.properties.get("TAGS", "").lower()
        )
    )


def _property_test(name: str, value: str | None) -> Test:
    if value is None:
        return lambda found: name in found.properties
    return lambda found: found.properties.get(name) == value


def _json_test(path: str, operator: str, value: str) -> Test:
    steps = path.split(".")

    def test(found: Found) -> bool:
        actual = at_path(found.value, steps)
        if actual is None:
            return False
        if operator in ("=", ":", "!="):
            return (plain_of(actual) == value) == (operator != "!=")
        try:
            left, right = float(actual), float(value)
        except (TypeError, ValueError):
            return False
        return {">": left > right, "<": left < right, ">=": left >= right, "<=": left <= right}[operator]

    return test


def at_path(value: Any, steps: list[str]) -> Any:
    """None if there is no such place."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def plain_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def plain(text: str) -> str:
    return text.replace('"', "")


def moment_ms(name: str, text: str, now_ms: int) -> int:
    """Milliseconds since 1970. A time without a zone is UTC; the page sends a zone."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    if text.isdecimal() and len(text) >= 11:
        if len(text) > 15:
            raise Problem(400, f"{name}:{text[:40]} is too far ahead")
        return int(text)
    clock = _CLOCK.fullmatch(text)
    try:
        if clock is not None:
            now = datetime.fromtimestamp(now_ms / 1000, UTC)
            at = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0), microsecond=0)
            return int((at if at <= now else at - timedelta(days=1)).timestamp() * 1000)
        at = datetime.fromisoformat(text)
        return max(0, int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise Problem(400, f"{name}:{text[:40]} is no time; {_NAMED[name]}") from None
