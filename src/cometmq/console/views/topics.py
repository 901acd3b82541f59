"""Topics: the list (names first), figures of those that are visible, and everything about one.

topics          all names with kind, queues and permissions: one request a broker
figures:TOPIC   messages kept, rate, groups: for rows that are on the screen
topic:TOPIC     queues with bounds and times, groups with lag, route
"""

from typing import Any

from cometmq import names
from cometmq.client.admin import Topic
from cometmq.console.context import Context
from cometmq.errors import CometError, NoRoute
from cometmq.wire.bodies import MessageQueue


async def all_topics(context: Context, rest: str) -> dict[str, Any]:
    admin = context.admin
    mine = set(await admin.topics())
    system = set(await admin.topics(system=True)) - mine
    parts: dict[str, Any] = {
        name: {
            "name": name,
            "kind": "UNSPECIFIED",
            "queues": 0,
            "brokers": 0,
            "permissions": "",
            "system": name in system,
        }
        for name in mine | system
    }
    for broker in {member.name for member in await admin.masters()}:
        try:
            configs = await admin.topic_configs(broker)
        except CometError:
            continue  # the overview says so
        for name, config in configs.items():
            row = parts.get(name)
            if row is None:
                continue
            row["queues"] += config.read_queues
            row["brokers"] += 1
            row["permissions"] = config.permissions
            row["ordered"] = config.ordered
            row["kind"] = config.attributes.get("message.type", row["kind"])
            row["system"] = name in system
    return parts


async def figures(context: Context, topic: str) -> dict[str, Any]:
    stats = await context.admin.topic_stats(topic)
    kept = sum(queue.count for queue in stats.values())
    rate = context.seen.rate(f"topic {topic}", sum(queue.end for queue in stats.values()))
    context.history.add(f"in:{topic}", rate)
    return {
        "figures": {
            "name": topic,
            "messages": kept,
            "rate": rate,
            "changed_ms": max((queue.updated_ms for queue in stats.values()), default=0),
            "oldest_ms": await oldest_ms(context, list(stats)) if kept else 0,
            "groups": len(await context.admin.topic_groups(topic)),
        }
    }


async def oldest_ms(context: Context, queues: list[MessageQueue]) -> int:
    async def ask() -> int:
        times = [await context.admin.oldest_stored_ms(queue) for queue in queues[:64]]
        return min((at for at in times if at > 0), default=0)

    key = queues[0].topic if queues else ""
    return int(await context.remembered(f"oldest {key}", ask, 30.0))


async def one_topic(context: Context, topic: str) -> dict[str, Any]:
    described = await context.admin.describe_topic(topic)
    stats = await context.admin.topic_stats(topic)
    parts: dict[str, Any] = {"topic": _described(described)}
    total = sum(queue.end for queue in stats.values())
    rate = context.seen.rate(f"topic {topic}", total)
    context.history.add(f"in:{topic}", rate)
    for queue, bounds in stats.items():
        parts[f"queue:{queue.broker_name}:{queue.queue_id}"] = {
            "broker": queue.broker_name,
            "id": queue.queue_id,
            "begin": bounds.begin,
            "end": bounds.end,
            "messages": bounds.count,
            "changed_ms": bounds.updated_ms,
            "oldest_ms": await _oldest(context, queue) if bounds.count else 0,
        }
    parts["figures"] = {"messages": sum(queue.count for queue in stats.values()), "rate": rate, "ever": total}
    for group in await context.admin.topic_groups(topic):
        parts[f"group:{group}"] = {"name": group} | await _group(context, group, topic)
    return parts


async def _oldest(context: Context, queue: MessageQueue) -> int:
    key = f"oldest {queue.topic} {queue.broker_name} {queue.queue_id}"
    return int(await context.remembered(key, lambda: context.admin.oldest_stored_ms(queue), 30.0))


async def _group(context: Context, group: str, topic: str) -> dict[str, Any]:
    try:
        lags = await context.admin.group_lag(group, topic)
    except CometError as error:
        return {"lag": None, "error": str(error)}
    behind = [lag for queue, lag in lags.items() if queue.topic == topic]
    return {"lag": sum(lag.behind for lag in behind), "consumed_ms": max((it.consumed_ms for it in behind), default=0)}


def _described(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "kind": topic.kind,
        "order_config": topic.order_config,
        "system": names.is_system_topic(topic.name),
        "brokers": [
            {
                "broker": on.broker,
                "read_queues": on.read_queues,
                "write_queues": on.write_queues,
                "permissions": on.permissions,
                "ordered": on.ordered,
                "attributes": dict(on.attributes),
            }
            for on in topic.brokers
        ],
    }


async def producers(context: Context, topic: str) -> dict[str, Any]:
    """Brokers know producers by group, not by topic: all that are connected to a broker of this topic."""
    try:
        groups = await context.admin.producer_groups()
    except CometError as error:
        return {"groups": [], "unknown": f"these brokers do not say: {error}"}
    rows = [
        {
            "group": group,
            "client_id": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": member.version,
        }
        for group, members in groups.items()
        for member in members
    ]
    return {"groups": rows, "unknown": "brokers know producers by group, not by topic: these are all of the cluster"}


async def route(context: Context, topic: str) -> dict[str, Any]:
    found = await context.admin.topic_route(topic)
    return {
        "brokers": [
            {
                "name": it.broker_name,
                "cluster": it.cluster,
                "addresses": {str(k): v for k, v in it.broker_addrs.items()},
            }
            for it in found.broker_datas
        ],
        "queues": [
            {"broker": it.broker_name, "read": it.read_queue_nums, "write": it.write_queue_nums, "permissions": it.perm}
            for it in found.queue_datas
        ],
    }


async def exists(context: Context, topic: str) -> bool:
    try:
        await context.admin.topic_route(topic)
    except NoRoute:
        return False
    return True
