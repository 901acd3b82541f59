"""Plans for topics and messages that are sent: create, change, delete, send, send again."""

from typing import Any

from cometmq import names
from cometmq.client.admin import Topic
from cometmq.console.answers import Arguments, checked_topic
from cometmq.console.context import Context
from cometmq.console.messages.lookup import by_id
from cometmq.console.options import Role
from cometmq.console.plans.store import Action, Prepared, Rows
from cometmq.errors import CallError, ConfigError, NoRoute

QUEUES_MAX = 1024
EDITED = "COMETMQ_EDITED"


async def _described(context: Context, topic: str) -> Topic | None:
    try:
        return await context.admin.describe_topic(topic)
    except NoRoute as error:
        if isinstance(error.__cause__, CallError):
            raise
        return None


def _seen(found: Topic | None) -> dict[str, Any]:
    if found is None:
        return {"topic": "not there"}
    return {
        f"{on.broker}": f"{on.read_queues}/{on.write_queues} queues, {on.permissions or 'no permissions'}, "
        f"{dict(sorted(on.attributes.items()))}"
        for on in found.brokers
    }


async def create(context: Context, given: Arguments) -> Prepared:
    topic = checked_topic(given.text("topic"))
    queues = given.whole("queues", 1, QUEUES_MAX, 8)
    kind = given.text("kind", "UNSPECIFIED")
    ordered = bool(given.flag("ordered", False))
    broker = given.text("broker", "") or None
    found = await _described(context, topic)
    masters = await context.admin.masters(broker=broker)
    known = {on.broker: on for on in found.brokers} if found is not None else {}
    rows: Rows = [
        {
            "broker": master.name,
            "now": f"{known[master.name].write_queues} queues" if master.name in known else "not there",
            "then": f"{max(queues, known[master.name].write_queues if master.name in known else 0)} queues",
        }
        for master in masters
    ]

    async def apply() -> Rows:
        chosen = None if kind == "UNSPECIFIED" else kind
        await context.admin.create_topic(topic, queues=queues, kind=chosen, ordered=ordered, broker=broker)
        return [{"broker": master.name, "result": "done"} for master in masters]

    warnings = [f"{topic} is there already: it keeps what it has and gets what is missing"] if found is not None else []
    what = f"{topic} gets {queues} queues on each broker"
    return Prepared(f"Create topic {topic}", what, apply, ["broker", "now", "then"], rows, warnings, _seen(found))


async def alter(context: Context, given: Arguments) -> Prepared:
    topic = checked_topic(given.text("topic"))
    queues = given.maybe_whole("queues", 1, QUEUES_MAX)
    permissions = given.text("permissions", "keep", 4)
    attributes = given.pairs("attributes")
    found = await context.admin.describe_topic(topic)
    for on in found.brokers:
        if queues is not None and queues < on.read_queues:
            raise ConfigError(
                f"topic {topic} has {on.read_queues} queues on {on.broker}; with {queues} the messages of the others "
                f"would be hidden: cometmq topic narrow {topic} --queues {queues} lets groups read them first"
            )
    wanted = None if permissions == "keep" else permissions
    if wanted is not None and wanted not in ("", "r", "w", "rw"):
        raise ConfigError(f"permissions are {wanted!r}: use r, w, rw, or nothing")
    rows: Rows = []
    for on in found.brokers:
        before = {"queues": str(on.write_queues), "permissions": on.permissions} | dict(on.attributes)
        after = dict(before) | attributes
        if queues is not None:
            after["queues"] = str(queues)
        if wanted is not None:
            after["permissions"] = wanted
        rows += [
            {"broker": on.broker, "setting": key, "now": before.get(key, "-"), "then": after[key]}
            for key in after
            if after[key] != before.get(key)
        ]

    async def apply() -> Rows:
        changes: dict[str, str | None] = {key: value or None for key, value in attributes.items()}
        await context.admin.alter_topic(topic, queues=queues, permissions=wanted, attributes=changes)
        return [{"broker": on.broker, "result": "done"} for on in found.brokers]

    warnings = []
    if wanted is not None and "w" not in wanted:
        warnings.append(f"nobody can send to {topic} then")
    if wanted is not None and "r" not in wanted:
        warnings.append(f"nobody can read {topic} then")
    sentence = f"{len(rows)} settings of {topic} change" if rows else f"{topic} is like that already"
    columns = ["broker", "setting", "now", "then"]
    return Prepared(f"Change topic {topic}", sentence, apply, columns, rows, warnings, _seen(found), not rows)


async def delete(context: Context, given: Arguments) -> Prepared:
    topic = checked_topic(given.text("topic"))
    found = await context.admin.describe_topic(topic)
    if names.is_system_topic(topic):
        raise ConfigError(f"{topic} is the brokers' own: it cannot be deleted here")
    stats = await context.admin.topic_stats(topic)
    groups = await context.admin.topic_groups(topic)
    rows: Rows = []
    for on in found.brokers:
        count = sum(it.count for queue, it in stats.items() if queue.broker_name == on.broker)
        rows.append({"broker": on.broker, "queues": on.read_queues, "messages": count})
    lags = {}
    for group in groups:
        lags[group] = sum(lag.behind for lag in (await context.admin.group_lag(group, topic)).values())
    messages = sum(int(row["messages"]) for row in rows)

    async def apply() -> Rows:
        return [{"broker": name, "result": "done"} for name in await context.admin.delete_topic(topic)]

    warnings = [f"group {group} has {lag:,} messages of it still to read" for group, lag in lags.items() if lag]
    read_by = f"; read by {', '.join(groups[:10])}" if groups else "; no group reads it"
    sentence = f"{messages:,} messages go with it{read_by}"
    seen = _seen(found) | {"groups": sorted(groups)}
    return Prepared(f"Delete topic {topic}", sentence, apply, ["broker", "queues", "messages"], rows, warnings, seen)


async def send(context: Context, given: Arguments) -> Prepared:
    topic = checked_topic(given.text("topic"))
    body = given.text("body", "", 1 << 20)
    tag = given.text("tag", "", 200) or None
    keys = given.texts("keys", 32)
    properties = given.pairs("properties")
    found = await context.admin.describe_topic(topic)

    async def apply() -> Rows:
        async with context.client.producer("cometmq-console") as producer:
            receipt = await producer.send(topic, body.encode(), tag=tag, keys=keys, properties=properties)
        place = f"{receipt.queue.broker_name}/{receipt.queue.queue_id}/{receipt.offset}"
        return [{"id": receipt.id, "place": place, "result": "done"}]

    rows: Rows = [{"what": "tag", "value": tag or "-"}, {"what": "keys", "value": " ".join(keys) or "-"}]
    rows += [{"what": name, "value": value} for name, value in properties.items()]
    sentence = f"One message of {len(body.encode())} bytes to {topic}"
    return Prepared(f"Send to {topic}", sentence, apply, ["what", "value"], rows, [], _seen(found))


async def resend(context: Context, given: Arguments) -> Prepared:
    """`body`, `tag`, `keys` and `properties` replace what the message has; then it says that it was edited."""
    message_id, topic = given.text("id", chars_max=60), checked_topic(given.text("topic"))
    target = checked_topic(given.text("to", topic))
    edits = {name: given.text(name, chars_max=1 << 20) for name in ("body", "tag") if name in given.names()}
    keys = given.texts("keys", 32) if "keys" in given.names() else None
    copy = await by_id(context, message_id, topic)
    message = copy.message
    body = edits["body"].encode() if "body" in edits else message.body
    if "body" in edits and (context.options.masks or not context.options.bodies):
        raise ConfigError(
            "this console masks or hides bodies, so one that was seen here cannot be edited and sent again"
        )
    tag = edits["tag"] or None if "tag" in edits else message.tag
    properties = dict(message.user_properties)
    is_edited = body != message.body or tag != message.tag or (keys is not None and tuple(keys) != message.keys)
    if is_edited:
        properties[EDITED] = "true"
    await context.admin.topic_route(target)

    async def apply() -> Rows:
        async with context.client.producer("cometmq-console") as producer:
            used = keys if keys is not None else message.keys
            receipt = await producer.send(target, body, tag=tag, keys=used, properties=properties)
        return [{"id": receipt.id, "place": f"{receipt.queue.broker_name}/{receipt.queue.queue_id}/{receipt.offset}",
                 "result": "done"}]  # fmt: skip

    rows: Rows = [
        {"what": "to", "value": target},
        {"what": "body", "value": f"{len(body)} bytes" + (", edited" if body != message.body else ", as it is")},
        {"what": "tag", "value": tag or "-"},
    ]
    sentence = f"A new message like {message_id} goes to {target}; the old one stays"
    return Prepared("Send again", sentence, apply, ["what", "value"], rows, [], {"id": message.offset_id})


ACTIONS = {
    "topic.create": Action(Role.OPERATOR, create, "make a topic"),
    "topic.alter": Action(Role.ADMIN, alter, "change queues, permissions or attributes of a topic"),
    "topic.delete": Action(Role.ADMIN, delete, "delete a topic with its messages"),
    "message.send": Action(Role.OPERATOR, send, "send a message"),
    "message.resend": Action(Role.OPERATOR, resend, "send a stored message again, perhaps edited"),
}
