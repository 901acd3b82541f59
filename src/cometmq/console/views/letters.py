"""Dead letters: which groups have any, and those of one group, with cause and origin."""

import time
from collections import Counter
from typing import Any, Final

from cometmq import names
from cometmq.client.admin import StoredCopy, origin_topic
from cometmq.console.context import Context
from cometmq.console.messages.rows import Reader
from cometmq.console.messages.scan import read
from cometmq.errors import CallError, CometError, NoRoute
from cometmq.wire.record.properties import Property

LETTERS_MAX: Final = 20_000
SHOWN_MAX: Final = 500
NO_CAUSE: Final = "none given"
# Properties that a cause is made of: masking one of them masks it.
MASKED_WITH: Final = frozenset(("error", "FAILURE_CAUSE"))
BLOCK: Final = 256


async def groups(context: Context, rest: str) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for topic in await context.admin.topics(system=True):
        if not topic.startswith(names.DLQ_PREFIX):
            continue
        group = topic.removeprefix(names.DLQ_PREFIX)
        try:
            stats = await context.admin.topic_stats(topic)
        except CometError:
            continue
        count = sum(bounds.count for bounds in stats.values())
        newest_ms = max((bounds.updated_ms for bounds in stats.values()), default=0)
        if count:
            parts[group] = {"group": group, "messages": count, "newest_ms": newest_ms}
            context.history.add(f"dead:{group}", count)
    return parts


async def letters(context: Context, group: str) -> list[StoredCopy]:
    """All of a group, newest first, at most 20,000."""
    try:
        queues = await context.admin.topic_queues(names.dlq_topic(group))
    except NoRoute as error:
        if isinstance(error.__cause__, CallError):
            raise
        return []
    found: list[StoredCopy] = []
    for queue in queues:
        low, high = await context.admin.earliest_offset(queue), await context.admin.latest_offset(queue)
        while high > low and len(found) < LETTERS_MAX:
            start = max(low, high - BLOCK)
            found += await read(context.admin, queue, start, high, None)
            high = start
    return sorted(found, key=lambda copy: -copy.message.stored_ms)


def cause_of(copy: StoredCopy, name: str = "error") -> str:
    """What the message says of itself, else what its consumer wrote down when it failed last."""
    stated = copy.message.properties.get(name)
    failure = copy.message.failure
    return stated or (f"{failure.kind}: {failure.cause}" if failure is not None else NO_CAUSE)


def place_of(copy: StoredCopy) -> str:
    """Where a letter lies: broker/queue/offset."""
    queue = copy.message.queue
    return f"{copy.broker}/{queue.queue_id if queue is not None else 0}/{copy.message.offset}"


def origin_id(copy: StoredCopy) -> str:
    properties = copy.message.properties
    for name in (Property.DLQ_ORIGIN_MESSAGE_ID, Property.ORIGIN_MESSAGE_ID):
        if properties.get(name):
            return properties[name]
    return copy.message.id


def chosen(found: list[StoredCopy], cause: str | None, places: set[str] | None) -> list[StoredCopy]:
    return [
        copy
        for copy in found
        if (cause is None or cause_of(copy) == cause) and (places is None or place_of(copy) in places)
    ]


async def one_group(context: Context, group: str, cause: str | None, sent: dict[str, str]) -> dict[str, Any]:
    """`sent` is what the ledger says: place -> state."""
    reader = Reader(context)
    found = await letters(context, group)
    is_masked = not MASKED_WITH.isdisjoint(reader.masks.properties)
    counts = Counter("masked" if is_masked else cause_of(copy) for copy in found)
    shown = chosen(found, cause, None)
    rows = [
        reader.row(copy)
        | {
            "place": place_of(copy),
            "cause": "masked" if is_masked else cause_of(copy),
            "origin_topic": origin_topic(copy.message),
            "origin_id": origin_id(copy),
            "age_ms": max(0, int(time.time() * 1000) - copy.message.stored_ms),
            "sent": sent.get(place_of(copy)),
        }
        for copy in shown[:SHOWN_MAX]
    ]
    causes = [{"cause": name, "messages": count} for name, count in counts.most_common(50)]
    return {"group": group, "total": len(found), "chosen": len(shown), "causes": causes, "rows": rows}
