"""`cometmq cluster`: which brokers there are, whether they are well, and what they are doing now.

    cometmq cluster list                 one line a broker
    cometmq cluster health               exit code 1 if a promise is not kept now (cluster_health.py): for probes
    cometmq cluster sets, elect, move    sets that elect their masters (sets.py)
    cometmq cluster top                  rates, waits, lag, disk and memory, again every two seconds; Ctrl-C ends it

A Java broker does not tell its memory: there is a - in its place.
"""

import argparse
import asyncio
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli import sets
from cometmq.cli.shared import cluster_health, output
from cometmq.cli.shared.arguments import CLEAR, Verb, duration, natural, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_NO
from cometmq.cli.shared.times import bytes_text
from cometmq.names import RETRY_PREFIX

if TYPE_CHECKING:
    from cometmq.client.admin import Admin, BrokerState

DISK_FULL: Final = 0.85


def main(argv: list[str]) -> int:
    return run_noun("cluster", "Brokers of a cluster: list, health, top.", VERBS, argv)


def _cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", metavar="NAME")


async def _list(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        states = await admin.cluster_state(options.cluster)
    output.rows(options.output, [_row(state) for state in states],
                ("cluster", "broker", "id", "address", "version", "in_tps", "out_tps", "state"),
                ("messages_today", "wait_ms", "unflushed", "disk", "memory", "up", "error"))  # fmt: skip


def _row(state: "BrokerState") -> dict[str, Any]:
    figures = state.figures
    memory = _whole(figures.get("cometmq.memoryBytes"))
    return {
        "cluster": state.member.cluster,
        "broker": state.member.name,
        "id": state.member.id,
        "address": state.member.address,
        "version": state.version or None,
        "in_tps": _first_number(figures.get("putTps")),
        "out_tps": _first_number(figures.get("getTransferredTps")),
        "state": "up" if state.is_up else "down",
        "error": state.error,
        "messages_today": _difference(figures, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        "disk": _ratio(figures.get("commitLogDiskRatio")),
        "wait_ms": _whole(figures.get("sendThreadPoolQueueHeadWaitTimeMills")),
        "unflushed": figures.get("remainHowManyDataToFlush"),
        "memory_bytes": memory,
        "memory": bytes_text(memory) if memory is not None else None,
        "up": cluster_health.uptime(figures),
    }


def _first_number(text: str | None) -> float | None:
    """RocketMQ writes rates of three periods: "10.5 8.2 7.9"."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None


def _difference(figures: Any, later: str, earlier: str) -> int | None:
    try:
        return int(figures[later]) - int(figures[earlier])
    except (KeyError, ValueError):
        return None


def _ratio(text: str | None) -> float | None:
    try:
        return round(float(text or ""), 4)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


# Health


async def _health(options: argparse.Namespace) -> int:
    async with administration(options, brokers=False) as admin:
        findings = await cluster_health.look(admin, options.cluster)
    output.rows(options.output, [asdict(one) for one in findings], ("state", "what", "found", "fix"))
    return EXIT_NO if any(one.state == "fail" for one in findings) else 0


# Top


def _top_arguments(parser: argparse.ArgumentParser) -> None:
    _cluster(parser)
    parser.add_argument("--every", type=duration, default=2.0, metavar="TIME", help="default 2s")
    parser.add_argument("-n", "--count", type=natural, default=0, metavar="N", help="end after N pictures; 0 never")
    parser.add_argument("--groups", type=natural, default=10, metavar="N", help="how many groups, most behind first")


async def _top(options: argparse.Namespace) -> None:
    """With -o json one object a picture; in a terminal the picture is drawn over the one before."""
    shown = 0
    async with administration(options) as admin:
        while True:
            brokers = [_row(state) for state in await admin.cluster_state(options.cluster)]
            groups = await _most_behind(admin, options.groups)
            if options.output in ("json", "yaml"):
                output.line({"time_ms": int(time.time() * 1000), "brokers": brokers, "groups": groups})
            else:
                _draw(brokers, groups)
            shown += 1
            if options.count and shown >= options.count:
                return
            await asyncio.sleep(options.every)


def _draw(brokers: list[dict[str, Any]], groups: list[dict[str, Any]]) -> None:
    columns = ("broker", "id", "state", "in_tps", "out_tps", "messages_today", "wait_ms", "unflushed", "disk", "memory",
               "up")  # fmt: skip
    width, colour = output.terminal_width(), output.coloured()
    text = output.table(brokers, columns, width=width, colour=colour)
    if groups:
        of_groups = ("group", "members", "behind", "topics")
        text += "\n\n" + output.table(groups, of_groups, width=width, colour=colour)
    print((CLEAR if sys.stdout.isatty() else "") + text, flush=True)


async def _most_behind(admin: "Admin", count: int) -> list[dict[str, Any]]:
    from cometmq.errors import NotFound

    found: list[dict[str, Any]] = []
    for name in await admin.groups() if count else []:
        lags = await admin.group_lag(name)
        try:
            members = len((await admin.group_connections(name)).connections)
        except NotFound:
            members = 0
        topics = sorted({queue.topic for queue in lags if not queue.topic.startswith(RETRY_PREFIX)})
        behind = sum(lag.behind for lag in lags.values())
        found.append({"group": name, "members": members, "behind": behind, "topics": topics})
    return sorted(found, key=lambda row: -int(row["behind"]))[:count]


# One broker


def _broker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", help="its name, or host:port")


async def _figures(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        output.record(options.output, await admin.broker_figures(options.broker))


def _broker_yes(parser: argparse.ArgumentParser) -> None:
    _broker(parser)
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _close_writes(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        topics = await admin.topic_configs(options.broker)
        output.note(f"no client would write to {options.broker} any more: {len(topics)} topics; readers go on")
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return
        changed = await admin.wipe_write_permission(options.broker)
    output.record(options.output, {"broker": options.broker, "topics": changed, "writes": "closed"})


async def _open_writes(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        changed = await admin.add_write_permission(options.broker)
    output.record(options.output, {"broker": options.broker, "topics": changed, "writes": "open"})


CLEANINGS: Final = ("expired-files", "expired-queues", "unused-topics")


def _clean_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=CLEANINGS)
    parser.add_argument("--broker", metavar="NAME", help="without it, all masters")
    _cluster(parser)
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _clean(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        masters = await admin.masters(options.cluster, options.broker)
        output.note(f"delete {options.what} at {output.joined(one.name for one in masters)}")
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return
        clean = {
            "expired-files": admin.delete_expired_files,
            "expired-queues": admin.clean_expired_queues,
            "unused-topics": admin.clean_unused_topics,
        }[options.what]
        brokers = await clean(options.broker, cluster=options.cluster)
    output.record(options.output, {"cleaned": options.what, "brokers": brokers})


VERBS: Final = (
    Verb("list", "every broker with version, rates and state", _list, _cluster, watch=True),
    Verb("health", "is everything up and is there room? exit code 1 if not", _health, _cluster, watch=True),
    Verb("top", "a live view: rates, waits, lag, disk, memory", _top, _top_arguments),
    Verb("figures", "everything that one broker says about itself", _figures, _broker),
    Verb("close-writes", "let clients write to other brokers, before one is taken away", _close_writes, _broker_yes),
    Verb("open-writes", "undo close-writes", _open_writes, _broker),
    Verb("clean", "delete now what is past its time", _clean, _clean_arguments),
    *sets.VERBS,
)
