"""Sending dead letters again, each once: noted before the first is sent, in the ledger of the `dlq` pipeline.

    LEDGER/00000003.plan.json     {"job": ..., "letters": [[group, broker, queue, offset], ...]}, before the first
    LEDGER/00000003.done.json     when all were

Letters go to the group that gave them up, by its retry topic and under their old ids: no other group sees them again. A
plan of the pipeline may say `"to": "origin"` instead, and so do old ones, by saying nothing.

Each copy carries CMQ_DLQ = group/broker/queue/offset. A letter is in one plan at most, so a second click sends nothing.
A plan without its end was cut off: the next one first sends what of it is missing, recognised by those marks in the
topics that it goes to. Two that send at once are refused by the file that only one of them can make.
"""

import asyncio
import json
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cometmq.client.admin import StoredCopy, origin_topic
from cometmq.client.admin.dead_letters import REPLAYED_FROM, retried_properties
from cometmq.console.answers import Arguments, Problem, checked_group
from cometmq.console.context import Context
from cometmq.console.options import Role
from cometmq.console.plans.store import Action, Prepared, Rows
from cometmq.console.plans.topics import EDITED
from cometmq.console.views import letters as views
from cometmq.errors import CometError, NoRoute
from cometmq.names import retry_topic

MARK: Final = REPLAYED_FROM
TO_GROUP: Final = "group"
TO_ORIGIN: Final = "origin"
LETTERS_MAX: Final = 5000
SLACK_S: Final = 60.0
STRETCH: Final = 512

Letter = tuple[str, str, int, int]


class Ledger:
    """What was planned and what was seen through. Its calls block for small files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def states(self, group: str) -> dict[str, str]:
        """Place -> sent or begun."""
        found: dict[str, str] = {}
        for number, plan in self.plans():
            state = "sent" if self._path(number, "done").exists() else "begun"
            for name, broker, queue, offset in plan["letters"]:
                if name == group:
                    found[f"{broker}/{queue}/{offset}"] = state
        return found

    def plans(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for path in sorted(self.folder.glob("*.plan.json")):
            yield int(path.name.split(".")[0]), json.loads(path.read_text(encoding="utf-8"))

    def unfinished(self, group: str) -> list[tuple[int, dict[str, Any], float]]:
        """Plans without their end, and when they were made."""
        return [
            (number, plan, self._path(number, "plan").stat().st_mtime)
            for number, plan in self.plans()
            if not self._path(number, "done").exists() and any(letter[0] == group for letter in plan["letters"])
        ]

    def begin(self, letters: list[Letter]) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max((number for number, _ in self.plans()), default=0)
        plan = {"job": f"dlq-{uuid.uuid4().hex}", "to": TO_GROUP, "letters": [list(letter) for letter in letters]}
        if not self._create(number, "plan", plan):
            raise Problem(409, f"somebody else sends letters again with {self.folder}: look again when that has ended")
        return number

    def end(self, number: int, count: int) -> None:
        self._create(number, "done", {"letters": count})

    def _create(self, number: int, kind: str, content: dict[str, Any]) -> bool:
        """Whole or not at all; False if it is there."""
        path = self._path(number, kind)
        temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
        with temporary.open("xb") as file:
            file.write(json.dumps(content).encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return True

    def _path(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:08d}.{kind}.json"


def ledger_of(context: Context) -> Ledger:
    assert context.options.ledger is not None
    return Ledger(context.options.ledger)


def letter_of(group: str, copy: StoredCopy) -> Letter:
    queue = copy.message.queue
    return group, copy.broker, queue.queue_id if queue is not None else 0, copy.message.offset


async def replay(context: Context, given: Arguments) -> Prepared:
    """`places` chooses letters, `cause` those of one cause; without both all. `body` edits a single one."""
    group = checked_group(given.text("group"))
    cause = given.text("cause", "", 4000) or None
    places = set(given.texts("places", LETTERS_MAX)) or None
    body = given.text("body", chars_max=1 << 20) if "body" in given.names() else None
    ledger = ledger_of(context)
    sent = await asyncio.to_thread(ledger.states, group)
    everything = await views.letters(context, group)
    chosen = views.chosen(everything, cause, places)
    fresh = [copy for copy in chosen if views.place_of(copy) not in sent][:LETTERS_MAX]
    cut_off = await asyncio.to_thread(ledger.unfinished, group)
    if body is not None and len(chosen) != 1:
        raise Problem(400, f"{len(chosen)} letters are chosen: one at a time can be edited")
    origins: dict[str, int] = {}
    for copy in fresh:
        origins[origin_topic(copy.message)] = origins.get(origin_topic(copy.message), 0) + 1
    rows: Rows = [{"sent_to": topic, "messages": count} for topic, count in sorted(origins.items())]
    known = len(chosen) - len(fresh)
    warnings = [f"{known} of the chosen letters were sent before: they are not sent again"] if known else []
    for _, plan, _ in cut_off:
        warnings.append(
            f"an earlier sending of {len(plan['letters'])} letters was cut off: what is missing of it goes first"
        )

    async def apply() -> Rows:
        results: Rows = []
        for number, plan, made_s in cut_off:
            results += await _finish(context, ledger, number, plan, made_s, everything)
        if fresh:
            number = await asyncio.to_thread(ledger.begin, [letter_of(group, copy) for copy in fresh])
            results += await _send(context, group, fresh, body, TO_GROUP)
            if all(row["result"] == "done" for row in results):
                await asyncio.to_thread(ledger.end, number, len(fresh))
        return results

    sentence = f"{len(fresh):,} dead letters of {group} go back to that group alone; they stay here, marked as sent"
    seen = {"letters": sorted(views.place_of(copy) for copy in fresh), "cut off": [number for number, _, _ in cut_off]}
    does_nothing = not fresh and not cut_off
    title = f"Send dead letters of {group} again"
    return Prepared(title, sentence, apply, ["sent_to", "messages"], rows, warnings, seen, does_nothing)


async def _send(context: Context, group: str, copies: list[StoredCopy], body: str | None, to: str) -> Rows:
    results: Rows = []
    targets = await _targets(context, group, copies, to)
    async with context.client.producer("cometmq-console") as producer:
        for copy in copies:
            message = copy.message
            mark = "/".join(str(part) for part in letter_of(group, copy))
            edited = {EDITED: "true"} if body is not None else {}
            content = body.encode() if body is not None else message.body
            target = targets[origin_topic(message)]
            row = {"place": views.place_of(copy), "to": target}
            try:
                if to == TO_GROUP:
                    properties = retried_properties(message, mark) | edited
                    receipt = await producer.send_record(target, content, properties, flag=message.flag)
                else:
                    properties = dict(message.user_properties) | {MARK: mark} | edited
                    receipt = await producer.send(
                        target, content, tag=message.tag, keys=message.keys, properties=properties
                    )
            except CometError as error:
                results.append(row | {"id": "", "result": "failed", "error": str(error)})
            else:
                results.append(row | {"id": receipt.id, "result": "done"})
    return results


async def _targets(context: Context, group: str, copies: list[StoredCopy], to: str) -> dict[str, str]:
    """Where the letters of each origin topic go."""
    origins = {origin_topic(copy.message) for copy in copies}
    if to != TO_GROUP:
        return {origin: origin for origin in origins}
    of_one_topic = await context.admin.retry_topics(group)
    return {origin: of_one_topic.get(origin, retry_topic(group)) for origin in origins}


async def _finish(
    context: Context, ledger: Ledger, number: int, plan: dict[str, Any], made_s: float, everything: list[StoredCopy]
) -> Rows:
    """Send what is missing of a plan that was cut off."""
    by_letter = {tuple(letter_of(str(plan["letters"][0][0]), copy)): copy for copy in everything}
    wanted = [tuple(letter) for letter in plan["letters"]]
    copies = [by_letter[letter] for letter in wanted if letter in by_letter]
    marks: set[str] = set()
    group, to = str(plan["letters"][0][0]), str(plan.get("to", TO_ORIGIN))
    for topic in set((await _targets(context, group, copies, to)).values()):
        marks |= await _marks(context, topic, made_s - SLACK_S)
    missing = [copy for copy in copies if "/".join(str(part) for part in letter_of(group, copy)) not in marks]
    results = await _send(context, group, missing, None, to)
    if all(row["result"] == "done" for row in results):
        await asyncio.to_thread(ledger.end, number, len(wanted))
    return results


async def _marks(context: Context, topic: str, since_s: float) -> set[str]:
    found: set[str] = set()
    try:
        queues = await context.admin.topic_queues(topic)
    except NoRoute:
        return found
    for queue in queues:
        begin = await context.admin.offset_at(queue, datetime.fromtimestamp(since_s, UTC))
        async for message in context.admin.read(queue, begin):
            mark = message.properties.get(MARK)
            if mark is not None:
                found.add(mark)
    return found


ACTIONS = {"letters.replay": Action(Role.OPERATOR, replay, "send dead letters again, each once")}
