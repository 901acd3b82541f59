"""Values that do not leave the server: replaced by their length, before anything is shown, searched or downloaded.

    json.card       a place in the decoded body, also `json.orders.card` through lists; `json.*.card` any one step
    prop.token      a property
    key, body       all of it

A body that is no JSON, MessagePack or other value cannot be looked into: it is hidden as a whole where the last word of
a `json.` mask occurs in it. What is masked cannot be searched either: the search sees what the reader sees.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cometmq.console.messages.decode import Decoded, pretty


@dataclass(frozen=True)
class Masks:
    paths: tuple[tuple[str, ...], ...] = ()
    properties: frozenset[str] = frozenset()
    key: bool = False
    body: bool = False

    @classmethod
    def of(cls, texts: tuple[str, ...]) -> "Masks":
        return cls(
            tuple(tuple(text.removeprefix("json.").split(".")) for text in texts if text.startswith("json.")),
            frozenset(text.removeprefix("prop.") for text in texts if text.startswith("prop.")),
            "key" in texts,
            "body" in texts,
        )

    @property
    def touch_bodies(self) -> bool:
        return self.body or bool(self.paths)

    def keys(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(hidden(key) for key in keys) if self.key else keys

    def all_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        own = self.properties | ({"KEYS"} if self.key else set())
        return {name: hidden(text) if name in own else text for name, text in properties.items()}

    def decoded(self, found: Decoded, body: bytes) -> Decoded:
        if self.body:
            return replace(found, kind="masked", text=hidden(body), value=None, faults=())
        if not self.paths:
            return found
        if found.value is not None and isinstance(found.value, dict | list):
            value = found.value
            for path in self.paths:
                value = _masked(value, path)
            return replace(found, text=pretty(value), value=value)
        if any(path[-1].encode() in body for path in self.paths) or found.opened:
            return replace(found, kind="masked", text=hidden(body), value=None, faults=())
        return found

    def bytes_of(self, found: Decoded, body: bytes) -> bytes:
        """What may be downloaded: the body, or what `decoded` left of it."""
        if not self.touch_bodies:
            return body
        if found.value is not None:
            return json.dumps(found.value, ensure_ascii=False, default=str).encode()
        return found.text.encode() if found.kind == "masked" else body


def hidden(value: Any) -> str:
    if isinstance(value, bytes):
        return f"‹{len(value)} bytes›"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"‹{len(text)} characters›"


def _masked(value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        if path[0].isdecimal() or path[0] == "*":
            return [_step(it, path) if path[0] in ("*", str(at)) else it for at, it in enumerate(value)]
        return [_masked(it, path) for it in value]
    if isinstance(value, dict):
        return {name: _step(it, path) if path[0] in ("*", name) else it for name, it in value.items()}
    return value


def _step(value: Any, path: tuple[str, ...]) -> Any:
    return hidden(value) if len(path) == 1 else _masked(value, path[1:])
