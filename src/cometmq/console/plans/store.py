"""Plan and apply: a change is two requests.

    POST /api/plans            {"action": "topic.create", ...}    -> what would happen, with an id for 60 s
    POST /api/plans/ID/apply                                       -> done, or 409 with what changed meanwhile

Applying prepares the plan anew and compares what it saw (`seen`) with what the first one saw; so a plan that is older
than somebody else's change is refused. A plan is applied once.
"""

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request

from cometmq.console.answers import Arguments, Problem
from cometmq.console.context import Context
from cometmq.console.login import Person
from cometmq.console.options import Role
from cometmq.errors import CometError

VALID_S: Final = 60.0
PLANS_MAX: Final = 1000
CHANGES_SHOWN: Final = 20

Rows = list[dict[str, Any]]


@dataclass
class Prepared:
    """What an action would do. `seen` is compared before it is done; `rows` are a table for people."""

    title: str
    sentence: str
    apply: Callable[[], Awaitable[Rows]]
    columns: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)
    does_nothing: bool = False


@dataclass(frozen=True)
class Action:
    needs: Role
    prepare: Callable[[Context, Arguments], Awaitable[Prepared]]
    purpose: str


@dataclass
class Kept:
    action: str
    given: dict[str, Any]
    prepared: Prepared
    who: str
    until_s: float


class Plans:
    def __init__(self, actions: dict[str, Action]) -> None:
        self.actions = actions
        self._kept: dict[str, Kept] = {}

    async def make(self, context: Context, person: Person, given: dict[str, Any]) -> dict[str, Any]:
        name = given.get("action")
        action = self.actions.get(name) if isinstance(name, str) else None
        if action is None or not isinstance(name, str):
            raise Problem(400, f"action is {str(name)[:60]!r}: known are {', '.join(sorted(self.actions))}")
        self._check(action, person, name)
        prepared = await self._prepare(context, action, given)
        now_s = time.monotonic()
        for old in [key for key, kept in self._kept.items() if kept.until_s < now_s]:
            del self._kept[old]
        if len(self._kept) >= PLANS_MAX:
            self._kept.pop(next(iter(self._kept)))
        plan_id = secrets.token_urlsafe(12)
        self._kept[plan_id] = Kept(name, given, prepared, person.name, now_s + VALID_S)
        return {
            "id": plan_id,
            "action": name,
            "title": prepared.title,
            "sentence": prepared.sentence,
            "columns": prepared.columns,
            "rows": prepared.rows,
            "warnings": prepared.warnings,
            "does_nothing": prepared.does_nothing,
            "valid_s": VALID_S,
        }

    async def apply(self, context: Context, person: Person, plan_id: str, address: str) -> dict[str, Any]:
        kept = self._kept.pop(plan_id, None)
        if kept is None or kept.until_s < time.monotonic() or kept.who != person.name:
            raise Problem(404, f"there is no plan {plan_id[:40]!r}: a plan is valid for {VALID_S:.0f} s and once")
        action = self.actions[kept.action]
        self._check(action, person, kept.action)
        now = await self._prepare(context, action, kept.given)
        changes = differences(kept.prepared.seen, now.seen)
        if changes:
            raise Problem(409, "what the plan saw has changed meanwhile: look at it again", changed=changes)
        shown = {"title": kept.prepared.title, "sentence": kept.prepared.sentence, "rows": kept.prepared.rows[:50]}
        context.audit.note(person.name, address, kept.action, shown, "begun")
        try:
            rows = await kept.prepared.apply()
        except (CometError, Problem) as error:
            context.audit.note(person.name, address, kept.action, shown, f"failed: {error}")
            raise
        failed = sum(row.get("result") == "failed" for row in rows)
        result = "done" if not failed else f"{failed} of {len(rows)} failed"
        context.audit.note(person.name, address, kept.action, shown, result)
        context.memory.clear()
        return {"action": kept.action, "title": kept.prepared.title, "result": result, "rows": rows}

    @staticmethod
    def _check(action: Action, person: Person, name: str) -> None:
        if person.role < action.needs:
            needed = action.needs.name.lower()
            raise Problem(403, f"{person.name} is {person.role.name.lower()}; {name} needs {needed}")

    @staticmethod
    async def _prepare(context: Context, action: Action, given: dict[str, Any]) -> Prepared:
        arguments = Arguments({key: value for key, value in given.items() if key != "action"})
        prepared = await action.prepare(context, arguments)
        arguments.end()
        return prepared


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": key, "before": before.get(key), "after": after.get(key)}
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ][:CHANGES_SHOWN]


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""
