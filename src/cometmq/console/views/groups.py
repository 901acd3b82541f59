"""Consumer groups: the list, lag of those that are visible, everything about one.

groups       names
lag:GROUP    state, members, topics, lag, age, rate, retries, dead letters: for rows that are on the screen
group:GROUP  queues with owner and place, members with what each subscribes to
"""

import time
from typing import Any, Final

from cometmq import names
from cometmq.client.admin import Lag
from cometmq.console.context import Context
from cometmq.errors import CallError, CometError, NoRoute, NotFound
from cometmq.wire.bodies import MessageQueue

VISITED_MAX: Final = 200
MEMBERS_MAX: Final = 100


async def all_groups(context: Context, rest: str) -> dict[str, Any]:
    mine = set(await context.admin.groups())
    return {name: {"name": name, "system": name not in mine} for name in await context.admin.groups(system=True)}


async def lag(context: Context, group: str) -> dict[str, Any]:
    lags = await context.admin.group_lag(group)
    return {"lag": {"name": group} | _sums(context, group, lags) | await _members(context, group)}


async def summary(context: Context, group: str) -> dict[str, Any]:
    """For the overview: shared with the row of the list."""
    found = await context.remembered(f"lag {group}", lambda: lag(context, group))
    return dict(found["lag"])


def _sums(context: Context, group: str, lags: dict[MessageQueue, Lag]) -> dict[str, Any]:
    retry, dead = names.RETRY_PREFIX + group, names.dlq_topic(group)
    own = {queue: it for queue, it in lags.items() if queue.topic not in (retry, dead)}
    behind = sum(it.behind for it in own.values())
    rate = context.seen.rate(f"group {group}", sum(max(0, it.committed) for it in own.values()))
    waiting = [it.consumed_ms for it in own.values() if it.behind and it.consumed_ms > 0]
    context.history.add(f"lag:{group}", behind)
    context.history.add(f"rate:{group}", rate)
    return {
        "behind": behind,
        "rate": rate,
        "age_ms": max(0, int(time.time() * 1000) - min(waiting)) if waiting else (0 if not behind else None),
        "topics": sorted({queue.topic for queue in own}),
        "retries": sum(it.behind for queue, it in lags.items() if queue.topic == retry),
    }


async def _members(context: Context, group: str) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        found: dict[str, Any] = {"members": 0, "state": "empty", "model": ""}
        try:
            online = await context.admin.group_connections(group)
            found = {
                "members": len(online.connections),
                "state": "running",
                "model": online.message_model.lower(),
                "mode": online.consume_type,
            }
        except NotFound:
            pass
        return found | {"dead_letters": await dead_letters(context, group)}

    return dict(await context.remembered(f"members {group}", ask))


async def dead_letters(context: Context, group: str) -> int | None:
    """How many; None if nobody knows."""
    try:
        stats = await context.admin.topic_stats(names.dlq_topic(group))
    except NoRoute as error:
        return None if isinstance(error.__cause__, CallError) else 0
    except CometError:
        return None
    return sum(bounds.count for bounds in stats.values())


async def one_group(context: Context, group: str) -> dict[str, Any]:
    admin = context.admin
    parts: dict[str, Any] = {}
    try:
        described = await admin.describe_group(group)
        parts["group"] = {
            "name": group,
            "brokers": list(described.brokers),
            "enabled": described.enabled,
            "broadcast_allowed": described.broadcast_allowed,
            "ordered": described.ordered,
            "retries_max": described.retries_max,
            "retry_queues": described.retry_queues,
            "attributes": dict(described.attributes),
        }
    except NotFound:
        parts["group"] = {"name": group, "brokers": [], "unknown": "no broker has settings for this group"}
    lags = await admin.group_lag(group)
    members = await _online(context, group)
    parts["members"] = members
    owners = {
        (queue["topic"], queue["broker"], queue["id"]): member["client_id"]
        for member in members["rows"]
        for queue in member["queues"]
    }
    for queue, it in lags.items():
        parts[f"queue:{queue.topic}:{queue.broker_name}:{queue.queue_id}"] = {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "id": queue.queue_id,
            "committed": it.committed,
            "end": it.end,
            "behind": it.behind,
            "consumed_ms": it.consumed_ms,
            "begin": await _begin(context, queue),
            "oldest_ms": await _oldest(context, queue),
            "owner": owners.get((queue.topic, queue.broker_name, queue.queue_id)),
        }
    parts["figures"] = _sums(context, group, lags) | {
        "members": len(members["rows"]),
        "state": "running" if members["rows"] else "empty",
        "dead_letters": await dead_letters(context, group),
    }
    return parts


async def _begin(context: Context, queue: MessageQueue) -> int | None:
    try:
        key = f"begin {queue.topic} {queue.broker_name} {queue.queue_id}"
        return int(await context.remembered(key, lambda: context.admin.earliest_offset(queue), 30.0))
    except CometError:
        return None


async def _oldest(context: Context, queue: MessageQueue) -> int:
    try:
        key = f"oldest {queue.topic} {queue.broker_name} {queue.queue_id}"
        return int(await context.remembered(key, lambda: context.admin.oldest_stored_ms(queue), 30.0))
    except CometError:
        return 0


async def _online(context: Context, group: str) -> dict[str, Any]:
    """Members with queues and subscriptions. Each member is asked itself; one that does not answer says why."""
    try:
        online = await context.admin.group_connections(group)
    except NotFound:
        return {"rows": [], "subscriptions": [], "differs": False, "model": "", "start_from": ""}
    common = [{"topic": it.topic, "expression": it.expression, "kind": it.kind} for it in online.subscriptions]
    rows = []
    for member in online.connections[:MEMBERS_MAX]:
        row: dict[str, Any] = {
            "client_id": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": member.version,
            "queues": [],
            "subscriptions": None,
            "error": None,
        }
        rows.append(row | await _asked(context, group, member.client_id))
    given = [row["subscriptions"] for row in rows if row["subscriptions"] is not None]
    differs = any(it != given[0] for it in given)
    for row in rows:
        row["differs"] = (
            differs and row["subscriptions"] is not None and given.count(row["subscriptions"]) <= len(given) / 2
        )
    if differs and not any(row["differs"] for row in rows):
        rows[-1]["differs"] = True
    return {
        "rows": rows,
        "subscriptions": common,
        "differs": differs,
        "model": online.message_model,
        "start_from": online.start_from,
        "consume_type": online.consume_type,
    }


async def _asked(context: Context, group: str, client_id: str) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        try:
            state = await context.admin.consumer_state(group, client_id)
        except CometError as error:
            return {"error": str(error)}
        own = [it for it in state.subscriptions if not it.topic.startswith(names.RETRY_PREFIX)]
        return {
            "queues": [{"topic": it.topic, "broker": it.broker_name, "id": it.queue_id} for it in state.queues],
            "subscriptions": sorted(
                ({"topic": it.topic, "expression": it.expression, "kind": it.kind} for it in own),
                key=lambda it: it["topic"],
            ),
        }

    return dict(await context.remembered(f"member {group} {client_id}", ask, 4.0))


async def member(context: Context, group: str, client_id: str, *, stacks: bool) -> dict[str, Any]:
    """What a member says about itself, with its threads' stacks if asked. Not every client has stacks."""
    state = await context.admin.consumer_state(group, client_id, stacks=stacks)
    return {
        "client_id": client_id,
        "properties": dict(state.properties),
        "subscriptions": [
            {"topic": it.topic, "expression": it.expression, "kind": it.kind} for it in state.subscriptions
        ],
        "queues": [
            {"topic": queue.topic, "broker": queue.broker_name, "id": queue.queue_id} | dict(figures)
            for queue, figures in state.queues.items()
        ],
        "rates": {topic: dict(rates) for topic, rates in state.rates.items()},
        "stacks": state.stacks,
    }
