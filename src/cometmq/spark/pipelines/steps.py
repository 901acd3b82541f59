"""What pipelines share: the summary at their end, and named points at which tests make them fail.

`COMETMQ_FAULT="archive before publish@2"` kills the process that comes to that point for the second time. Nothing
looks at it unless the variable is set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Summary:
    """Figures of a run, in the order in which they are shown."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{key} {value}" for key, value in self.figures.items())


def at(point: str) -> None:
    """A named point of a pipeline."""
    fault = os.environ.get("COMETMQ_FAULT")
    if fault is None:
        return
    name, _, count = fault.partition("@")
    if name != point:
        return
    counter = Path(os.environ["COMETMQ_FAULT_COUNTER"])
    with open(counter, "a") as file:
        file.write("x")
    if counter.stat().st_size == int(count or 1):
        os.kill(os.getpid(), 9)
