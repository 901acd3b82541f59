"""How handlers take their arguments and say no: bounded words and numbers in, JSON out.

Every argument from outside goes through one of these functions, so each has a bound and a sentence for what is wrong.
"""

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cometmq import names
from cometmq.errors import (
    AccessDenied,
    BrokerError,
    CallError,
    CometError,
    ConfigError,
    NoRoute,
    NotFound,
)
from cometmq.errors import (
    RequestError as Refused,
)

BODY_BYTES_MAX: Final = 1 << 20
TEXT_CHARS_MAX: Final = 2000


class Problem(Exception):
    """An answer that is no success: a status and a sentence, perhaps with more."""

    def __init__(self, status: int, error: str, **more: Any) -> None:
        super().__init__(error)
        self.status = status
        self.content: dict[str, Any] = {"error": error, **more}


def answer(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def refusal(error: Exception) -> Response | None:
    """What an expected error becomes; None for one that is our fault."""
    if isinstance(error, Problem):
        return answer(error.content, error.status)
    if not isinstance(error, CometError):
        return None
    status = 502
    if isinstance(error, AccessDenied):
        status = 403
    elif isinstance(error, ConfigError):
        status = 400
    elif isinstance(error, NotFound) or (isinstance(error, NoRoute) and not isinstance(error.__cause__, CallError)):
        status = 404
    elif isinstance(error, BrokerError | Refused):
        status = 422
    return answer({"error": str(error)}, status)


def word(request: Request, name: str, default: str | None = None, chars_max: int = TEXT_CHARS_MAX) -> str:
    text = request.query_params.get(name, default)
    if text is None:
        raise Problem(400, f"{name} is missing")
    if len(text) > chars_max:
        raise Problem(400, f"{name} has {len(text)} characters, at most {chars_max} are taken")
    return text


def number(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    if not text.lstrip("-").isdecimal() or len(text) > 20 or not low <= int(text) <= high:
        raise Problem(400, f"{name} is {text[:40]!r}: a whole number of {low} to {high} is taken")
    return int(text)


def topic_of(request: Request) -> str:
    return checked_topic(str(request.path_params["topic"]))


def group_of(request: Request) -> str:
    return checked_group(str(request.path_params["group"]))


def checked_topic(topic: str) -> str:
    fault = names.topic_fault(topic)
    if fault is not None:
        raise Problem(400, fault)
    return topic


def checked_group(group: str) -> str:
    fault = names.group_fault(group)
    if fault is not None:
        raise Problem(400, fault)
    return group


async def body_of(request: Request) -> dict[str, Any]:
    """A JSON object of at most 1 MiB."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Problem(415, "the body must be JSON: send Content-Type: application/json")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise Problem(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
    try:
        value = msgspec.json.decode(bytes(data) or b"{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Problem(400, "the body must be a JSON object")
    return value


class Arguments:
    """What a plan was asked for: named values of known kinds; others are refused by name."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = dict(given)
        self._left = set(given)

    def text(self, name: str, default: str | None = None, chars_max: int = TEXT_CHARS_MAX) -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            raise Problem(400, f"{name} is {kind_of(value)}: a text is needed")
        if len(value) > chars_max:
            raise Problem(400, f"{name} has {len(value)} characters, at most {chars_max} are taken")
        return value

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Problem(400, f"{name} is {str(value)[:40]!r}: a whole number of {low} to {high} is needed")
        return value

    def maybe_whole(self, name: str, low: int, high: int) -> int | None:
        if self._given.get(name) is None:
            self._left.discard(name)
            return None
        return self.whole(name, low, high)

    def flag(self, name: str, default: bool | None = None) -> bool | None:
        value = self._take(name, default) if name in self._given or default is not None else None
        if value is not None and not isinstance(value, bool):
            raise Problem(400, f"{name} is {str(value)[:40]!r}: true or false is needed")
        return value

    def texts(self, name: str, count_max: int, chars_max: int = 300) -> list[str]:
        value = self._take(name, [])
        if not isinstance(value, list) or len(value) > count_max or not all(isinstance(it, str) for it in value):
            raise Problem(400, f"{name} must be a list of at most {count_max} texts")
        if any(len(it) > chars_max for it in value):
            raise Problem(400, f"{name} has a text of more than {chars_max} characters")
        return list(value)

    def pairs(self, name: str, count_max: int = 100, chars_max: int = 4000) -> dict[str, str]:
        value = self._take(name, {})
        if not isinstance(value, dict) or len(value) > count_max:
            raise Problem(400, f"{name} must be an object of at most {count_max} texts")
        if not all(isinstance(it, str) and len(it) <= chars_max and len(key) <= 300 for key, it in value.items()):
            raise Problem(400, f"{name} must have texts of at most {chars_max} characters")
        return dict(value)

    def names(self) -> set[str]:
        return set(self._given)

    def end(self) -> None:
        if self._left:
            raise Problem(400, f"unknown: {', '.join(sorted(self._left))[:200]}; /api/openapi.json says what is taken")

    def _take(self, name: str, default: Any) -> Any:
        self._left.discard(name)
        if name not in self._given:
            if default is None:
                raise Problem(400, f"{name} is missing")
            return default
        return self._given[name]


def kind_of(value: Any) -> str:
    return {dict: "an object", list: "a list", bool: "a flag", int: "a number", float: "a number"}.get(
        type(value), "nothing" if value is None else "another kind"
    )
