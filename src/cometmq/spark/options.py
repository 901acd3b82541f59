"""Options of a format, as Spark hands them over: text by name, in any case.

A name that nobody knows is refused, with the nearest one that exists: a misspelt option that is silently ignored is a
wrong result later.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final

from cometmq.errors import ConfigError

# What Spark itself may add; a query's name and its checkpoint come to the sink as options.
_OF_SPARK: Final = {"path", "paths", "recursivefilelookup", "checkpointlocation", "queryname", "queryschema"}
_TRUE: Final = ("true", "1", "yes", "on")
_FALSE: Final = ("false", "0", "no", "off")


class Options:
    """`known`: name of an option -> its default, None for none. `aliases`: other name -> name."""

    def __init__(
        self, given: Mapping[str, str], known: Mapping[str, str | None], aliases: Mapping[str, str] | None = None
    ) -> None:
        names = {name.lower(): name for name in known}
        others = {other.lower(): name for other, name in (aliases or {}).items()}
        self._values: dict[str, str] = {name: value for name, value in known.items() if value is not None}
        self.given: set[str] = set()
        for name, value in given.items():
            lower = name.lower()
            plain = lower.replace("_", "")  # rows_per_batch as pipelines spell it, rowsPerBatch as formats do
            canonical = names.get(plain) or others.get(plain) or names.get(lower) or others.get(lower)
            if canonical is not None:
                self._values[canonical] = value
                self.given.add(canonical)
            elif lower not in _OF_SPARK:
                near = difflib.get_close_matches(lower, [*names, *others], 1)
                hint = f": do you mean {names.get(near[0]) or near[0]}?" if near else f"; there are {', '.join(known)}"
                raise ConfigError(f"there is no option {name}{hint}")

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def text(self, name: str, why: str = "") -> str:
        value = self._values.get(name, "")
        if not value:
            raise ConfigError(f"option {name} is missing{': ' + why if why else ''}")
        return value

    def number(self, name: str, least: int = 0) -> int:
        value = self.text(name)
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(f"option {name}={value} is no whole number") from None
        if number < least:
            raise ConfigError(f"option {name}={value} is below {least}")
        return number

    def optional_number(self, name: str, least: int = 0) -> int | None:
        return self.number(name, least) if self._values.get(name) else None

    def flag(self, name: str) -> bool:
        value = self.text(name).lower()
        if value not in _TRUE + _FALSE:
            raise ConfigError(f"option {name}={value} is neither true nor false")
        return value in _TRUE

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name).lower()
        if value not in choices:
            raise ConfigError(f"option {name}={value} is none of {', '.join(choices)}")
        return value

    def names(self, name: str) -> list[str]:
        """A list separated by commas; empty if the option is not there."""
        return [part.strip() for part in (self._values.get(name) or "").split(",") if part.strip()]

    def json(self, name: str) -> Any:
        value = self.text(name)
        try:
            return json.loads(value)
        except ValueError as error:
            raise ConfigError(f"option {name} is no JSON: {error}") from None
