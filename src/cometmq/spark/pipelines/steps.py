"""What pipelines share: the summary at their end, and the named points at which tests make them fail (`faults`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cometmq.errors import ConfigError
from cometmq.spark.kill_points import at as at
from cometmq.spark.live.remote import CONNECTION_OPTIONS


@dataclass(frozen=True)
class Summary:
    """Figures of a run, in the order in which they are shown."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{key} {value}" for key, value in self.figures.items())


def connection(options: Mapping[str, str]) -> dict[str, str]:
    """Those options of a source that a sink in the same cluster needs too: where it is, and who asks."""
    known = {name.lower() for name in CONNECTION_OPTIONS}
    return {name: value for name, value in options.items() if name.lower() in known}


def only_connection(job: str, options: Mapping[str, str]) -> dict[str, str]:
    """For a job that takes no other options: a misspelt setting of its own must not pass for one."""
    found = connection(options)
    unknown = options.keys() - found.keys()
    if unknown:
        raise ConfigError(f"pipeline {job} has no {', '.join(sorted(unknown))}")
    return found
