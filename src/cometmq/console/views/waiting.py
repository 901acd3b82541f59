"""What is kept back: timers and delay levels by due time, half messages by age."""

import time
from typing import Any

from cometmq.console.context import Context
from cometmq.console.messages.rows import Reader
from cometmq.errors import CometError

ROWS_MAX = 1000
BINS = 40


async def waiting(context: Context, rest: str) -> dict[str, Any]:
    reader = Reader(context)
    parts: dict[str, Any] = {}
    now_ms = int(time.time() * 1000)
    try:
        found = await context.admin.waiting_messages()
        rows = [
            reader.row(it.copy)
            | {"topic": it.topic, "due_ms": it.due_ms, "kind_of_wait": it.kind, "recall": bool(it.handle)}
            for it in found.messages[:ROWS_MAX]
        ]
        parts["messages"] = {
            "rows": rows,
            "count": len(found.messages),
            "looked": found.looked,
            "all_looked": found.all_looked,
            "histogram": histogram([it.due_ms for it in found.messages], now_ms),
        }
    except CometError as error:
        parts["messages"] = {"rows": [], "count": None, "unknown": str(error), "histogram": []}
    try:
        halves = await context.admin.open_halves()
        parts["halves"] = {
            "rows": [
                reader.row(it.copy) | {"topic": it.topic, "group": it.group, "checks": it.checks}
                for it in halves[:ROWS_MAX]
            ],
            "count": len(halves),
        }
    except CometError as error:
        parts["halves"] = {"rows": [], "count": None, "unknown": str(error)}
    return parts


def histogram(due_ms: list[int], now_ms: int) -> list[dict[str, int]]:
    """Counts by due time in at most 40 steps of a round length."""
    if not due_ms:
        return []
    span_ms = max(1000, max(due_ms) - now_ms)
    lengths_s = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 86_400)
    length_ms = next((it * 1000 for it in lengths_s if span_ms / (it * 1000) <= BINS), 86_400_000)
    first_ms = now_ms - now_ms % length_ms
    counts: dict[int, int] = {}
    for at_ms in due_ms:
        start_ms = at_ms - at_ms % length_ms
        counts[start_ms] = counts.get(start_ms, 0) + 1
    last_ms = max(counts)
    steps = range(first_ms, last_ms + 1, length_ms)
    return [{"at_ms": at, "length_ms": length_ms, "count": counts.get(at, 0)} for at in list(steps)[:500]]
