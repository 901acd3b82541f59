"""Exact answers: a message by either id, messages by key, and everything that became of one message."""

from typing import Any

from cometmq import names
from cometmq.client.admin import StoredCopy
from cometmq.console.context import Context
from cometmq.console.messages.query import Query
from cometmq.errors import BrokerError, CallError, CometError, ConfigError, NoRoute, NotFound
from cometmq.wire.record.properties import Property

FOUND_MAX = 64
GROUPS_MAX = 50


async def by_id(context: Context, message_id: str, topic: str | None) -> StoredCopy:
    """Either form of id: the index of the topic first, then the place in a log."""
    if topic is not None:
        found = await context.admin.copies(topic, key=message_id, by_id=True)
        if found:
            return found[-1]
    try:
        return await context.admin.copy_at(message_id)
    except (ConfigError, NotFound) as error:
        where = f"topic {topic} has none with it" if topic else "and without a topic the index cannot be asked"
        silent = sorted({row["name"] for row in context.seen.brokers.values() if not row["up"]})
        cause = (
            f"it may be on {', '.join(silent)}, which does not answer" if silent else "it was deleted, or is not there"
        )
        raise NotFound(f"no message has the id {message_id}: {where}; {cause}") from error


async def exact(context: Context, topic: str, query: Query) -> list[StoredCopy]:
    if query.id is not None:
        try:
            return [await by_id(context, query.id, topic)]
        except NotFound:
            return await context.admin.copies(topic, key=query.id, max_messages=FOUND_MAX)
    assert query.key is not None
    return await context.admin.copies(topic, key=query.key, max_messages=FOUND_MAX)


async def timeline(context: Context, copy: StoredCopy) -> dict[str, Any]:
    """Born, stored, given to groups, tried again, given up, traced: in the order of time. `unknown` says what brokers
    could not tell."""
    message = copy.message
    events: list[dict[str, Any]] = []
    unknown: list[str] = []

    def add(at_ms: int, kind: str, text: str, **more: Any) -> None:
        events.append({"at_ms": at_ms, "kind": kind, "text": text, **more})

    add(message.born_ms, "born", f"made by {copy.born_host}")
    where = f"{copy.broker}, queue {message.queue.queue_id if message.queue else '?'}, offset {message.offset}"
    add(message.stored_ms, "stored", f"stored by {where}")
    if copy.transaction == "committed":
        checks = message.properties.get(Property.TRANSACTION_CHECK_TIMES, "0")
        add(message.stored_ms, "transaction", f"committed; its producer was asked {checks} times")
    due = message.properties.get(Property.TIMER_OUT_MS)
    if due is not None and due.isdecimal():
        add(int(due), "due", "was kept back until then")
    topic = _origin(copy)
    groups = await _groups(context, topic, unknown)
    for group in groups:
        await _in_group(context, group, copy, add, unknown)
    try:
        for record in await context.admin.trace(message.id):
            text, kind = _traced(record)
            outcome = {"ok": record.success}
            add(record.time_ms, kind, text, group=record.group, took_ms=record.cost_ms, **outcome)
    except NoRoute:
        unknown.append("there is no trace topic: switch tracing on at clients and traceTopicEnable at brokers")
    except CometError as error:
        unknown.append(f"traces: {error}")
    order = {kind: number for number, kind in enumerate(("born", "sent", "stored", "consume", "consumed", "retry"))}
    events.sort(key=lambda event: (event["at_ms"], order.get(event["kind"], 9)))
    return {"events": events, "unknown": unknown, "groups": groups}


def _origin(copy: StoredCopy) -> str:
    for name in (Property.DLQ_ORIGIN_TOPIC, Property.RETRY_TOPIC):
        if copy.message.properties.get(name):
            return copy.message.properties[name]
    return copy.message.topic


async def _groups(context: Context, topic: str, unknown: list[str]) -> list[str]:
    try:
        found = await context.admin.topic_groups(topic)
    except CometError as error:
        unknown.append(f"groups of {topic}: {error}")
        return []
    return [group for group in found if not group.startswith("CID_RMQ_SYS_")][:GROUPS_MAX]


async def _in_group(context: Context, group: str, copy: StoredCopy, add: Any, unknown: list[str]) -> None:
    message = copy.message
    queue = message.queue
    if queue is not None and queue.topic == message.topic:
        try:
            progress = (await context.admin.group_lag(group, message.topic)).get(queue)
        except CometError as error:
            unknown.append(f"progress of {group}: {error}")
            progress = None
        if progress is not None:
            if progress.committed > message.offset:
                text = f"{group} is past it: committed {progress.committed}"
                add(message.stored_ms, "past", text, group=group)
            else:
                left = message.offset - max(0, progress.committed)
                add(message.stored_ms, "waiting", f"{group} has {left} messages to go before it", group=group)
    for name, kind, text in (
        (names.RETRY_PREFIX + group, "retry", "kept for another try of {group}"),
        (names.dlq_topic(group), "dead", "given up by {group}: a dead letter"),
    ):
        try:
            copies = await context.admin.copies(name, key=message.id, by_id=True)
        except NoRoute as error:
            if isinstance(error.__cause__, CallError):
                unknown.append(f"{name}: {error}")
            continue
        except (BrokerError, CallError) as error:
            unknown.append(f"{name}: {error}")
            continue
        for one in copies:
            tries = one.message.delivery_count - 1
            said = text.format(group=group) + (f", after {tries} tries" if kind == "dead" else f", try {tries}")
            add(one.message.stored_ms, kind, said, group=group, offset_id=one.message.offset_id)


def _traced(record: Any) -> tuple[str, str]:
    if record.kind == "Pub":
        outcome = "sent" if record.success else "could not send"
        return f"{record.group} {outcome} it to {record.address}", "sent"
    if record.kind == "SubBefore":
        return f"{record.group} was given it, try {record.retries}", "consume"
    if record.kind == "SubAfter":
        outcome = "consumed it" if record.success else f"did not consume it ({record.outcome or 'failed'})"
        return f"{record.group} {outcome}", "consumed"
    if record.kind == "EndTransaction":
        return f"{record.group} ended its transaction: {record.state}", "transaction"
    return f"{record.kind} by {record.group}", "traced"
