"""Plans for consumer groups: create, change, delete, and moving offsets in five ways.

    to        earliest, latest, time (at_ms), offsets (by "broker/queue"), copy (of another group)

What is previewed is what is done: the offsets of the plan, not those that `to` would mean a minute later. Where members
of an old broker are online only whole topics can be moved, by time; then they are told the time. A group that has no
members and committed something meanwhile is refused; one that is running moves all the time, so only its members are
compared.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cometmq.client.admin import Group, Move, Place
from cometmq.console.answers import Arguments, Problem, checked_group, checked_topic
from cometmq.console.context import Context
from cometmq.console.options import Role
from cometmq.console.plans.store import Action, Prepared, Rows
from cometmq.errors import CometError, ConfigError, NotFound
from cometmq.wire.bodies import MessageQueue

MOVED_WITHIN_S: Final = 3.0
LOOK_AGAIN_S: Final = 0.1
RETRIES_MAX: Final = 1000


async def _described(context: Context, group: str) -> Group | None:
    try:
        return await context.admin.describe_group(group)
    except NotFound:
        return None


def _settings(found: Group | None) -> dict[str, Any]:
    if found is None:
        return {"group": "not there"}
    return {
        "enabled": found.enabled,
        "retries_max": found.retries_max,
        "ordered": found.ordered,
        "broadcast_allowed": found.broadcast_allowed,
    }


async def create(context: Context, given: Arguments) -> Prepared:
    group = checked_group(given.text("group"))
    retries = given.whole("retries_max", 0, RETRIES_MAX, 16)
    ordered = bool(given.flag("ordered", False))
    found = await _described(context, group)
    if found is not None:
        raise ConfigError(f"group {group} is there already: change its settings on its page")
    masters = await context.admin.masters()

    async def apply() -> Rows:
        await context.admin.create_group(group, retries_max=retries, ordered=ordered)
        return [{"broker": master.name, "result": "done"} for master in masters]

    rows: Rows = [{"broker": master.name, "then": f"{retries} tries"} for master in masters]
    sentence = f"{group} is made on {len(masters)} brokers; it starts where its first consumer says"
    return Prepared(f"Create group {group}", sentence, apply, ["broker", "then"], rows, [], _settings(found))


async def alter(context: Context, given: Arguments) -> Prepared:
    group = checked_group(given.text("group"))
    retries_max = given.maybe_whole("retries_max", 0, RETRIES_MAX)
    flags = {
        "enabled": given.flag("enabled"),
        "ordered": given.flag("ordered"),
        "broadcast_allowed": given.flag("broadcast_allowed"),
    }
    found = await context.admin.describe_group(group)
    before = _settings(found)
    rows: Rows = [
        {"setting": name, "now": before[name], "then": value}
        for name, value in ({"retries_max": retries_max} | flags).items()
        if value is not None and value != before[name]
    ]

    async def apply() -> Rows:
        await context.admin.alter_group(
            group,
            retries_max=retries_max,
            enabled=flags["enabled"],
            ordered=flags["ordered"],
            broadcast_allowed=flags["broadcast_allowed"],
        )
        return [{"broker": broker, "result": "done"} for broker in found.brokers]

    warnings = ["its members get no messages then"] if flags["enabled"] is False else []
    sentence = f"{len(rows)} settings of {group} change" if rows else f"{group} is like that already"
    columns = ["setting", "now", "then"]
    return Prepared(f"Change group {group}", sentence, apply, columns, rows, warnings, before, not rows)


async def delete(context: Context, given: Arguments) -> Prepared:
    group = checked_group(given.text("group"))
    offsets = bool(given.flag("offsets", False))
    found = await context.admin.describe_group(group)
    members = await _members(context, group)
    lags = await context.admin.group_lag(group)
    topics = sorted({queue.topic for queue in lags})

    async def apply() -> Rows:
        names = await context.admin.delete_group(group, offsets=offsets)
        return [{"broker": name, "result": "done"} for name in names]

    rows: Rows = [
        {"topic": topic, "behind": sum(lag.behind for queue, lag in lags.items() if queue.topic == topic)}
        for topic in topics
    ]
    kept = "with its offsets" if offsets else "its offsets stay"
    warnings = [f"{len(members)} members are online: they make it again"] if members else []
    sentence = f"{group} is forgotten by {len(found.brokers)} brokers, {kept}"
    seen = {"members": members, "topics": topics}
    return Prepared(f"Delete group {group}", sentence, apply, ["topic", "behind"], rows, warnings, seen)


async def _members(context: Context, group: str) -> list[str]:
    try:
        return sorted(it.client_id for it in (await context.admin.group_connections(group)).connections)
    except NotFound:
        return []


async def reset(context: Context, given: Arguments) -> Prepared:
    group, topic = checked_group(given.text("group")), checked_topic(given.text("topic"))
    to = given.text("to", chars_max=20)
    place = await _place(context, topic, to, given)
    moves = await context.admin.plan_offsets(group, topic, to=place)
    members = await _members(context, group)
    rows = [await _row(context, move) for move in moves]
    changed = [row for row in rows if row["change"]]
    again = sum(-row["change"] for row in changed if row["change"] < 0)
    skipped = sum(row["change"] for row in changed if row["change"] > 0)
    parts = []
    if again:
        parts.append(f"{again:,} messages are read again")
    if skipped:
        parts.append(f"{skipped:,} messages are skipped")
    sentence = f"{group} in {topic}: {' and '.join(parts)}" if parts else f"{group} is there already: nothing moves"
    seen: dict[str, Any] = {"members": members}
    if not members:
        seen |= {f"{move.queue.broker_name}/{move.queue.queue_id}": move.before for move in moves}
    warnings = []
    if members:
        warnings.append(
            f"{group} is running, members: {len(members)}: RocketMQ 5 and CometMQ move it on the server, members of a "
            "4.9 broker are told to start over at the new place; messages that are being handled may come twice"
        )

    async def apply() -> Rows:
        return await _move(context, group, topic, moves, place, bool(members))

    columns = ["broker", "queue", "committed", "target", "change", "oldest_ms"]
    return Prepared(f"Move {group}", sentence, apply, columns, rows, warnings, seen, not changed)


async def _place(context: Context, topic: str, to: str, given: Arguments) -> Place:
    if to in ("earliest", "latest"):
        return "earliest" if to == "earliest" else "latest"
    if to == "time":
        return datetime.fromtimestamp(given.whole("at_ms", 0, 253_402_300_000_000) / 1000, UTC)
    queues = {f"{queue.broker_name}/{queue.queue_id}": queue for queue in await context.admin.topic_queues(topic)}
    if to == "offsets":
        wanted = given.pairs("offsets", 10_000, 20)
        unknown = wanted.keys() - queues.keys()
        if unknown or not wanted:
            raise Problem(400, f"offsets names {sorted(unknown)[:3] or 'no queue'}: use broker/queue of {topic}")
        if not all(text.isdecimal() for text in wanted.values()):
            raise Problem(400, "offsets must be whole numbers, as texts")
        return {queues[name]: int(text) for name, text in wanted.items()}
    if to == "copy":
        source = checked_group(given.text("source"))
        offsets = await context.admin.committed_offsets(source, topic)
        known = {queue: offset for queue, offset in offsets.items() if offset >= 0}
        if not known:
            raise NotFound(f"group {source} has no offsets in {topic}: nothing to copy")
        return known
    raise Problem(400, f"to is {to!r}: use earliest, latest, time, offsets or copy")


async def _row(context: Context, move: Move) -> dict[str, Any]:
    oldest_ms = 0
    if move.skipped:
        try:
            page = await context.admin.read_page(move.queue, min(max(0, move.before), move.after), 1)
            oldest_ms = page.copies[0].message.stored_ms if page.copies else 0
        except CometError:
            oldest_ms = 0
    return {
        "broker": move.queue.broker_name,
        "queue": move.queue.queue_id,
        "committed": move.before,
        "target": move.after,
        "change": move.skipped,
        "oldest_ms": oldest_ms,
    }


async def _move(context: Context, group: str, topic: str, moves: list[Move], place: Place, is_running: bool) -> Rows:
    targets: Mapping[MessageQueue, int] = {move.queue: move.after for move in moves}
    try:
        await context.admin.reset_offsets(group, topic, to=targets)
    except ConfigError:
        if not is_running or isinstance(place, Mapping):
            raise
        await context.admin.reset_offsets(group, topic, to=place)  # an old broker: it tells its members the time
    loop = asyncio.get_running_loop()
    until_s = loop.time() + MOVED_WITHIN_S
    while True:
        now = await context.admin.committed_offsets(group, topic)
        late = [queue for queue, target in targets.items() if now.get(queue, -1) != target]
        if not late or is_running or loop.time() > until_s:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    return [_result(move, now.get(move.queue, -1), is_running) for move in moves]


def _result(move: Move, now: int, is_running: bool) -> dict[str, Any]:
    if move.before == move.after:
        result = "unchanged"
    elif now == move.after or (is_running and now >= move.after):
        result = "done"
    else:
        result = "told" if is_running else "failed"
    return {
        "broker": move.queue.broker_name,
        "queue": move.queue.queue_id,
        "before": move.before,
        "target": move.after,
        "now": now,
        "result": result,
    }


ACTIONS = {
    "group.create": Action(Role.OPERATOR, create, "make a consumer group"),
    "group.alter": Action(Role.ADMIN, alter, "change settings of a group"),
    "group.delete": Action(Role.ADMIN, delete, "forget a group"),
    "group.reset": Action(Role.OPERATOR, reset, "move the offsets of a group"),
}
