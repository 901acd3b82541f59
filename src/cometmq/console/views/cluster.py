"""Clients, topology, settings side by side."""

import functools
import json
import re
from pathlib import Path
from typing import Any, Final

from cometmq import names
from cometmq.console.context import Context
from cometmq.console.views import groups as group_views
from cometmq.errors import CometError, NotFound

SECRET: Final = re.compile(r"secret|password|credential|token|accesskey|initauthenticationuser", re.IGNORECASE)
DEFAULTS_FILE: Final = Path(__file__).parent.parent / "static" / "broker-defaults.json"
# What must differ between brokers.
OF_THE_PLACE: Final = re.compile(
    r"^(brokerName|brokerId|brokerIP\d|listenPort|haListenPort|grpcServerPort|storePath\w*)$"
)
GROUPS_MAX: Final = 200
TOPICS_MAX: Final = 40


async def clients(context: Context, rest: str) -> dict[str, Any]:
    """Every connected producer and consumer, by client and group."""
    parts: dict[str, Any] = {}
    try:
        for group, members in (await context.admin.producer_groups()).items():
            for it in members:
                parts[f"p:{group}:{it.client_id}"] = _client("producer", group, it)
    except CometError as error:
        parts["unknown"] = f"producers: {error}"
    for group in (await context.admin.groups())[:GROUPS_MAX]:
        try:
            online = await context.admin.group_connections(group)
        except NotFound:
            continue
        for it in online.connections:
            parts[f"c:{group}:{it.client_id}"] = _client("consumer", group, it)
    return parts


def _client(role: str, group: str, it: Any) -> dict[str, Any]:
    return {
        "role": role,
        "group": group,
        "client_id": it.client_id,
        "address": it.address,
        "language": it.language,
        "version": it.version,
    }


async def topology(context: Context, rest: str) -> dict[str, Any]:
    """Producer groups, topics, consumer groups, and what flows between topics and groups."""
    topics: dict[str, dict[str, Any]] = {}
    links: list[dict[str, Any]] = []
    consumers: dict[str, dict[str, Any]] = {}
    for topic in (await context.admin.topics())[:TOPICS_MAX]:
        try:
            stats = await context.admin.topic_stats(topic)
        except CometError:
            continue
        rate = context.seen.rate(f"topic {topic}", sum(it.end for it in stats.values()))
        topics[topic] = {"name": topic, "rate": rate, "messages": sum(it.count for it in stats.values())}
        for group in await context.admin.topic_groups(topic):
            if group.startswith("CID_RMQ_SYS_") or group == "TOOLS_CONSUMER":
                continue
            summary = await group_views.summary(context, group)
            consumers[group] = {"name": group, "behind": summary["behind"], "members": summary["members"]}
            links.append({"from": topic, "to": group, "rate": summary["rate"], "behind": summary["behind"]})
    producers: list[dict[str, Any]] = []
    unknown = ""
    try:
        found = await context.admin.producer_groups()
        producers = [
            {"name": name, "members": len(members)}
            for name, members in found.items()
            if not name.startswith(("CLIENT_INNER_PRODUCER", "cometmq-admin-"))
        ]
        unknown = "brokers do not tell which producer sends to which topic"
    except CometError as error:
        unknown = f"producers: {error}"
    return {
        "picture": {
            "producers": producers,
            "topics": list(topics.values()),
            "groups": list(consumers.values()),
            "links": links,
            "unknown": unknown,
        }
    }


@functools.cache
def defaults() -> dict[str, str]:
    """What a broker has if nobody sets anything; paths and addresses are left out."""
    return dict(json.loads(DEFAULTS_FILE.read_bytes()))


async def settings(context: Context) -> dict[str, Any]:
    """Every setting of every broker, secrets by their length only."""
    columns: list[str] = []
    table: dict[str, dict[str, str]] = {}
    faults: dict[str, str] = {}
    for member in await context.admin.brokers():
        label = member.name if member.id == 0 else f"{member.name}/{member.id}"
        try:
            config = await context.admin.broker_config(member.address)
        except CometError as error:
            faults[label] = str(error)
            continue
        columns.append(label)
        for key, text in config.items():
            shown = f"‹{len(text)} characters›" if SECRET.search(key) and text else text
            table.setdefault(key, {})[label] = shown
    known = defaults()
    rows = [
        {
            "key": key,
            "values": values,
            "default": known.get(key),
            "differs": len({values.get(label) for label in columns}) > 1 and not OF_THE_PLACE.search(key),
            "changed": key in known
            and not OF_THE_PLACE.search(key)
            and any(value != known[key] for value in values.values()),
        }
        for key, values in sorted(table.items())
    ]
    return {"brokers": columns, "rows": rows, "faults": faults}


async def trace_of_key(context: Context, key: str, reader: Any) -> dict[str, Any]:
    """Messages with a key in every topic, in the order of time."""
    found, faults = [], []
    all_topics = [topic for topic in await context.admin.topics() if not names.is_system_topic(topic)]
    for topic in all_topics[:500]:
        try:
            found += await context.admin.copies(topic, key=key, max_messages=64)
        except CometError as error:
            faults.append(f"{topic}: {error}")
    found.sort(key=lambda copy: (copy.message.born_ms, copy.message.stored_ms))
    return {"key": key, "rows": [reader.row(copy) for copy in found], "faults": faults[:20], "topics": len(all_topics)}
