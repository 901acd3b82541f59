"""The overview: name servers, brokers, groups with the largest lag, dead letters, and what is wrong."""

import time
from typing import Any, Final

from cometmq import names
from cometmq.console.context import Context
from cometmq.console.views import brokers, groups
from cometmq.errors import CometError

GROUPS_SHOWN: Final = 8
GROUPS_ASKED: Final = 200
LAG_MANY: Final = 10_000
HOUR_S: Final = 3600


async def overview(context: Context, rest: str) -> dict[str, Any]:
    rows = await brokers.rows(context)
    findings = brokers.findings(rows)
    parts: dict[str, Any] = {f"broker:{row['name']}:{row['number']}": row for row in rows}
    servers = await context.remembered("name servers", lambda: brokers.name_servers(context), 5.0)
    parts["name_servers"] = servers
    for server in servers:
        if not server["up"]:
            text = f"name server {server['address']} does not answer: {server['error']}"
            findings.append({"level": "fail", "about": server["address"], "text": text, "fix": "start it again"})
    lags = await _lags(context)
    for row in lags[:GROUPS_SHOWN]:
        parts[f"group:{row['name']}"] = row
    for row in lags:
        if row["behind"] >= LAG_MANY and not row["members"]:
            text = f"group {row['name']} is {row['behind']:,} messages behind, and none of its members is online"
            fix = "start its consumers, or move its offsets"
            findings.append({"level": "warn", "about": row["name"], "text": text, "fix": fix})
    masters = [row for row in rows if row["number"] == 0 and row["up"]]
    dead = sum(row["dead_letters"] or 0 for row in lags)
    context.history.add("dead-letters", dead)
    parts["cluster"] = {
        "clusters": sorted({row["cluster"] for row in rows}),
        "brokers": len(rows),
        "brokers_up": sum(row["up"] for row in rows),
        "in_rate": sum(row["in_rate"] or 0 for row in masters),
        "out_rate": sum(row["out_rate"] or 0 for row in masters),
        "behind": sum(row["behind"] for row in lags),
        "groups": len(lags),
        "dead_letters": dead,
        "dead_letters_hour": await context.remembered("dead hour", lambda: _dead_last_hour(context, lags), 30.0),
        "makes": sorted({row["make"] for row in masters}),
    }
    context.history.add("cluster-in", parts["cluster"]["in_rate"])
    context.history.add("cluster-out", parts["cluster"]["out_rate"])
    parts["findings"] = findings
    return parts


async def _lags(context: Context) -> list[dict[str, Any]]:
    if not any(row["up"] for row in context.seen.brokers.values()):
        return []
    found = []
    try:
        known = await context.remembered("groups", context.admin.groups, 10.0)
    except CometError:
        return []  # a broker that does not answer is among the findings already
    for name in known[:GROUPS_ASKED]:
        try:
            found.append(await groups.summary(context, name))
        except CometError:
            continue  # its broker is gone: that is among the findings
    return sorted(found, key=lambda row: (-row["behind"], row["name"]))


async def _dead_last_hour(context: Context, lags: list[dict[str, Any]]) -> int | None:
    """Counted by offsets: the end less where the queue was an hour ago."""
    from datetime import UTC, datetime

    since = datetime.fromtimestamp(time.time() - HOUR_S, UTC)
    count = 0
    for row in lags:
        if not row["dead_letters"]:
            continue
        try:
            for queue in await context.admin.topic_queues(names.dlq_topic(row["name"])):
                count += await context.admin.latest_offset(queue) - await context.admin.offset_at(queue, since)
        except CometError:
            return None
    return count
