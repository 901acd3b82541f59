"""What JSON bodies look like: a profile of many, the schema that fits them, and how two schemas differ.

A profile counts, for every place in the bodies, how often it was there and as what:

    ()                 struct 998, bad 2            the bodies themselves; bad: no JSON object
    ("id",)            bigint 998
    ("lines", "[]")    struct 1790                  "[]": an element of an array
    ("lines", "[]", "price")   double 1700, bigint 90, null 3

Profiles are added up, so each task makes one of its messages. The schema takes what fits all that was seen: whole
and broken numbers are DOUBLE, anything else that disagrees is STRING, which Spark fills with the JSON text. A place
that was only ever null is STRING. Of fields whose names differ in case only, Spark can have one: the first.

    schema file   {"version": 1, "topics": {"orders": {"ddl": "...", "messages": 998, "bad": 2, "fields": [...]}}}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from cometmq.errors import ConfigError

VERSION: Final = 1
ELEMENT: Final = "[]"
EXAMPLES: Final = 3
EXAMPLE_LETTERS: Final = 60
# An object with more fields than this in all is a table by some key; what comes then is left out, and counted.
FIELDS_MAX: Final = 2000
# By how much the share of nulls may change before it is reported.
NULL_RATE_DRIFT: Final = 0.1
_I64: Final = 1 << 63

PathParts: TypeAlias = tuple[str, ...]


@dataclass
class Seen:
    """What was at one place."""

    kinds: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, value: Any) -> None:
        self.kinds[kind] += 1
        if kind in ("struct", "array", "null", "bad") or len(self.examples) >= EXAMPLES:
            return
        text = (value if isinstance(value, str) else json.dumps(value))[:EXAMPLE_LETTERS]
        if text not in self.examples:
            self.examples.append(text)


class Profile:
    def __init__(self) -> None:
        self.places: dict[PathParts, Seen] = {(): Seen()}
        self.left_out = 0

    # Making

    def add_body(self, body: bytes) -> None:
        try:
            tree = json.loads(body)
        except (ValueError, RecursionError):
            tree = None
        if not isinstance(tree, dict):
            self.places[()].note("bad", None)
            return
        self._add((), tree)

    def _add(self, path: PathParts, value: Any) -> None:
        seen = self.places.get(path)
        if seen is None:
            if len(self.places) > FIELDS_MAX:
                self.left_out += 1
                return
            seen = self.places[path] = Seen()
        seen.note(kind_of(value), value)
        if isinstance(value, dict):
            for name, inner in value.items():
                self._add((*path, name), inner)
        elif isinstance(value, list):
            for inner in value:
                self._add((*path, ELEMENT), inner)

    def add(self, other: Profile) -> None:
        self.left_out += other.left_out
        for path, seen in other.places.items():
            mine = self.places.setdefault(path, Seen())
            mine.kinds += seen.kinds
            mine.examples += [text for text in seen.examples if text not in mine.examples][:EXAMPLES]
            del mine.examples[EXAMPLES:]

    # Travelling

    def to_json(self) -> str:
        places = [[list(path), dict(seen.kinds), seen.examples] for path, seen in self.places.items()]
        return json.dumps({"places": places, "left_out": self.left_out})

    @classmethod
    def from_json(cls, text: str) -> Profile:
        stated = json.loads(text)
        made = cls()
        made.left_out = stated["left_out"]
        made.places = {tuple(path): Seen(Counter(kinds), examples) for path, kinds, examples in stated["places"]}
        return made

    # What it says

    def ddl(self) -> str:
        """The columns of a body; one column that is never there if there is no field at all."""
        children = self._children(())
        return ", ".join(f"{quoted(path[-1])} {self.type_of(path)}" for path in children) or "nothing STRING"

    def type_of(self, path: PathParts) -> str:
        kinds = {kind for kind in self.places[path].kinds if kind not in ("null", "bad")}
        if kinds == {"struct"} and (children := self._children(path)):
            return "STRUCT<" + ", ".join(f"{quoted(one[-1])}: {self.type_of(one)}" for one in children) + ">"
        if kinds == {"array"}:
            element = (*path, ELEMENT)
            return f"ARRAY<{self.type_of(element) if element in self.places else 'STRING'}>"
        if kinds == {"bigint", "double"}:
            return "DOUBLE"
        if len(kinds) == 1 and (kind := next(iter(kinds))) in ("bigint", "double", "boolean"):
            return kind.upper()
        return "STRING"

    def _children(self, path: PathParts) -> list[PathParts]:
        inside = [one for one in self.places if len(one) == len(path) + 1 and one[:-1] == path and one[-1] != ELEMENT]
        by_name = {one[-1].lower(): one for one in sorted(inside, reverse=True)}
        return sorted(by_name.values())

    def fields(self) -> Iterator[dict[str, Any]]:
        """One row for every place below the body. `null_rate` counts fields that are missing, too."""
        for path in sorted(self.places):
            if not path:
                continue
            seen = self.places[path]
            parent = self.places[path[:-1]].kinds
            around = seen.kinds.total() if path[-1] == ELEMENT else parent["struct"]
            there = seen.kinds.total() - seen.kinds["null"]
            kinds = {kind: count for kind, count in sorted(seen.kinds.items()) if kind != "null"}
            yield {
                "path": shown(path),
                "type": self.type_of(path),
                "kinds": kinds,
                "conflict": len(kinds) > 1 and set(kinds) != {"bigint", "double"},
                "null_rate": round(1 - there / around, 4) if around else 1.0,
                "examples": seen.examples,
            }

    def schema(self) -> dict[str, Any]:
        kinds = self.places[()].kinds
        return {"ddl": self.ddl(), "messages": kinds["struct"], "bad": kinds["bad"], "fields": list(self.fields())}


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_I64 <= value < _I64 else "double"
    if isinstance(value, float):
        return "double"
    return "struct" if isinstance(value, dict) else "array" if isinstance(value, list) else "string"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def shown(path: PathParts) -> str:
    return ".".join(path).replace(f".{ELEMENT}", ELEMENT)


# Schema files


def write_schema(path: Path, topics: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps({"version": VERSION, "topics": dict(topics)}, indent=1, sort_keys=True) + "\n")
    fresh.replace(path)


def read_schema(path: str | Path) -> dict[str, Any]:
    """Schemas by topic."""
    try:
        stated = json.loads(Path(path).read_text())
        if stated["version"] != VERSION:
            raise ConfigError(f"{path} is of version {stated['version']}, this program reads {VERSION}: make it anew")
        return {topic: one for topic, one in stated["topics"].items() if isinstance(one["ddl"], str)}
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; `cometmq pipeline run schema` makes one") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no schema file: {error}; `cometmq pipeline run schema` makes one") from None


@dataclass(frozen=True)
class Drift:
    """What changed from one time to another at one place of the bodies of a topic."""

    topic: str
    when: str
    kind: str
    path: str
    before: str
    after: str


def drift(topic: str, when: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Drift]:
    """`before` and `after` are schemas of one topic."""
    old = {one["path"]: one for one in before["fields"]}
    new = {one["path"]: one for one in after["fields"]}
    found = [Drift(topic, when, "added", path, "", new[path]["type"]) for path in new if path not in old]
    found += [Drift(topic, when, "removed", path, old[path]["type"], "") for path in old if path not in new]
    for path in old.keys() & new.keys():
        was, now = old[path], new[path]
        inner = ("STRUCT", "ARRAY")
        # Of objects only the fields are told, each for itself.
        if was["type"] != now["type"] and not (was["type"].startswith(inner) and now["type"].startswith(inner)):
            found.append(Drift(topic, when, "type", path, was["type"], now["type"]))
        if abs(was["null_rate"] - now["null_rate"]) >= NULL_RATE_DRIFT:
            found.append(Drift(topic, when, "nulls", path, str(was["null_rate"]), str(now["null_rate"])))
    return sorted(found, key=lambda one: (one.path, one.kind))
