"""Whether a server does what it promises, right now: named conditions, each with a sentence.

    /healthz    nothing fatal is known                  an orchestrator restarts the process if not
    /readyz     every condition holds                   ... sends it no work until they do
    /startupz   recovery is done                        ... waits for it before it asks the other two

A condition is asked when somebody looks; nothing here waits, reads a disk or costs anything otherwise.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str


Condition = Callable[[], Check]


def ready(checks: Iterable[Check]) -> tuple[bool, bytes]:
    """Whether all hold, and the JSON that says so of each."""
    listed = list(checks)
    is_ready = all(check.ok for check in listed)
    rows = [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in listed]
    return is_ready, json.dumps({"ready": is_ready, "checks": rows}).encode() + b"\n"
