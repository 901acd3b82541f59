"""`cometmq group`: consumer groups, how far they are, and moving them.

    cometmq group lag billing                             per queue: behind, owner; and what to do about it
    cometmq group seek billing orders --to -1h            the plan; with --yes it is carried out and read back
    cometmq group clone billing billing-copy              let one group go on where another is
    cometmq group alter billing --enable                  after a broker disabled it for being too far behind
"""

import argparse
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, natural, pair, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_MISSING, EXIT_NO, Failure
from cometmq.cli.shared.times import moment_ms, span_text, time_text
from cometmq.errors import ConfigError, NotFound
from cometmq.names import RETRY_PREFIX

if TYPE_CHECKING:
    from cometmq.client.admin import Admin, Group, GroupConnections, Move, Place
    from cometmq.wire.bodies import MessageQueue

OFFSET_DIGITS_MAX: Final = 11
BROADCAST: Final = "BROADCASTING"


def main(argv: list[str]) -> int:
    return run_noun("group", "Consumer groups: list, describe, lag, seek, clone, create, delete.", VERBS, argv)


def _row(group: "Group") -> dict[str, Any]:
    return {
        "group": group.name,
        "enabled": group.enabled,
        "ordered": group.ordered,
        "broadcast_allowed": group.broadcast_allowed,
        "retries_max": group.retries_max,
        "brokers": list(group.brokers),
        "attributes": dict(group.attributes),
    }


async def _connections(admin: "Admin", group: str) -> "GroupConnections | None":
    try:
        return await admin.group_connections(group)
    except NotFound:
        return None


# List, describe


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--system", action="store_true", help="also what servers made for themselves")


async def _list(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        found = []
        for name in await admin.groups(system=options.system, cluster=options.cluster):
            row: dict[str, Any] = {"group": name}
            if options.output != "table":
                online = await _connections(admin, name)
                lags = await admin.group_lag(name)
                row |= {
                    "members": len(online.connections) if online else 0,
                    "model": online.message_model if online else None,
                    "behind": sum(lag.behind for lag in lags.values()),
                    "topics": sorted({queue.topic for queue in lags}),
                }
            found.append(row)
        output.rows(options.output, found, ("group",), ("members", "model", "behind", "topics"))


def _group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group")


async def _describe(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        group = await admin.describe_group(options.group)
        online = await _connections(admin, options.group)
        topics = await admin.group_topics(options.group)
    members = [
        {"client_id": one.client_id, "address": one.address, "language": one.language, "version": one.version}
        for one in (online.connections if online else ())
    ]
    subscriptions = [
        {"topic": one.topic, "expression": one.expression, "kind": one.kind}
        for one in (online.subscriptions if online else ())
    ]
    model = {
        "model": online.message_model if online else None,
        "consume_type": online.consume_type if online else None,
        "start_from": online.start_from if online else None,
    }
    whole = {**_row(group), **model, "topics": topics, "members": members, "subscriptions": subscriptions}
    if options.output in ("json", "yaml"):
        output.record(options.output, whole)
        return
    output.record(options.output, {name: whole[name] for name in [*_row(group), *model, "topics"]})
    print()
    if members:
        output.rows(options.output, members, ("client_id", "address", "language", "version"))
        print()
        output.rows(options.output, subscriptions, ("topic", "expression", "kind"))
    else:
        output.note("no member is online")


async def _producers(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        if options.group is None:
            groups = await admin.producer_groups()
        else:
            groups = {options.group: await admin.producer_connections(options.group)}
    found = [
        {"group": group, "client_id": one.client_id, "address": one.address, "language": one.language}
        for group, members in groups.items()
        for one in members
    ]
    output.rows(options.output, found, ("group", "client_id", "address", "language"))


def _producers_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", nargs="?", help="a producer group; all without it")


# Create, alter, delete


def _change_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group")
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--broker", metavar="NAME")
    parser.add_argument("--retries", type=natural, metavar="N", help="before a message is a dead letter; default 16")
    parser.add_argument("--ordered", action=argparse.BooleanOptionalAction, help="handled in order")
    parser.add_argument("--broadcast", action=argparse.BooleanOptionalAction, help="may consume by broadcast")
    parser.add_argument("--attribute", type=pair, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--enable", dest="enabled", action="store_const", const=True, default=None)
    parser.add_argument("--disable", dest="enabled", action="store_const", const=False)


async def _create(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        made = await admin.create_group(
            options.group,
            retries_max=16 if options.retries is None else options.retries,
            ordered=bool(options.ordered),
            broadcast_allowed=options.broadcast is not False,
            enabled=options.enabled is not False,
            attributes=dict(options.attribute),
            cluster=options.cluster,
            broker=options.broker,
        )
    output.record(options.output, _row(made))


async def _alter(options: argparse.Namespace) -> None:
    wanted = (options.retries, options.ordered, options.broadcast, options.enabled)
    if all(value is None for value in wanted) and not options.attribute:
        raise ConfigError("nothing to change: give --enable, --disable, --retries, --ordered, --broadcast, --attribute")
    async with administration(options) as admin:
        changed = await admin.alter_group(
            options.group,
            retries_max=options.retries,
            ordered=options.ordered,
            broadcast_allowed=options.broadcast,
            enabled=options.enabled,
            attributes=dict(options.attribute),
            cluster=options.cluster,
            broker=options.broker,
        )
    output.record(options.output, _row(changed))


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group")
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--broker", metavar="NAME")
    parser.add_argument("--keep-offsets", action="store_true", help="a group of this name would go on where it was")
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _delete(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        group = await admin.describe_group(options.group)
        online = await _connections(admin, options.group)
        lags = await admin.group_lag(options.group)
        members = len(online.connections) if online else 0
        offsets = f"offsets of {len(lags)} queues " + ("stay" if options.keep_offsets else "go too")
        output.note(f"delete {group.name} from {output.joined(group.brokers)}: {members} members online, {offsets}")
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return
        brokers = await admin.delete_group(
            options.group, offsets=not options.keep_offsets, cluster=options.cluster, broker=options.broker
        )
    output.record(options.output, {"group": options.group, "deleted_from": brokers})


# How far


def _lag_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group")
    parser.add_argument("--topic")
    parser.add_argument("--retry", action="store_true", help="its retry topic, too")


async def _lag(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        await admin.describe_group(options.group)
        lags = await admin.group_lag(options.group, options.topic, owners=True)
        online = await _connections(admin, options.group)
    now_ms = int(time.time() * 1000)
    queues = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "committed": lag.committed,
            "end": lag.end,
            "behind": lag.behind,
            "owner": lag.owner,
            "age": span_text(now_ms - lag.consumed_ms) if lag.behind and lag.consumed_ms > 0 else None,
            "consumed": time_text(lag.consumed_ms),
        }
        for queue, lag in lags.items()
        if options.retry or not queue.topic.startswith(RETRY_PREFIX)
    ]
    members = [one.client_id for one in (online.connections if online else ())]
    owners = {lag.owner for lag in lags.values()}
    idle = [member for member in members if member not in owners]
    behind = sum(int(row["behind"] or 0) for row in queues)
    advice = _advice(len(queues), members, idle, behind, online)
    whole = {"group": options.group, "behind": behind, "members": members, "idle": idle, "advice": advice}
    if options.output in ("json", "yaml"):
        output.record(options.output, {**whole, "queues": queues})
        return
    columns = ("topic", "broker", "queue", "committed", "end", "behind", "age", "owner")
    output.rows(options.output, queues, columns, ("consumed",))
    output.note(f"{behind} behind in {len(queues)} queues, {len(members)} members, {len(idle)} idle")
    for line in [*(f"idle: {member}" for member in idle), *advice]:
        output.note(line)


def _advice(
    queues: int, members: list[str], idle: list[str], behind: int, online: "GroupConnections | None"
) -> list[str]:
    """What an operator can do, from what is there."""
    found = []
    if online is not None and online.message_model == BROADCAST:
        return ["the group consumes by broadcast: its members keep their offsets themselves"]
    if queues and len(members) > queues:
        found.append(
            f"more consumers than queues: {len(members)} members share {queues} queues, {len(idle)} get nothing; "
            "give the topic more queues (cometmq topic alter TOPIC --queues N), or stop some"
        )
    elif behind and members and len(members) < queues:
        found.append(f"up to {queues - len(members)} more consumers could help: there are {queues} queues")
    if behind and not members:
        found.append("nobody consumes: start a member of the group")
    if members and not queues:
        found.append("the group has committed no offset yet: it is about to begin, or its first messages never finish")
    return found


# Moving


def _seek_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group")
    parser.add_argument("topic")
    parser.add_argument("--to", required=True, metavar="PLACE",
                        help="earliest, latest, a moment (2026-11-15T12:00, -1h), an offset, a group")  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _seek(options: argparse.Namespace) -> int:
    async with administration(options) as admin:
        await admin.describe_group(options.group)
        place = await _place(admin, options.to, options.topic)
        plan = await admin.plan_offsets(options.group, options.topic, to=place)
        output.rows(options.output, [_move(move) for move in plan], ("broker", "queue", "before", "after", "change"))
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return 0
        moves = await admin.reset_offsets(options.group, options.topic, to=place)
        return await _read_back(admin, options, moves)


async def _place(admin: "Admin", text: str, topic: str) -> "Place":
    """Words, then offsets, then moments, then groups."""
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if text.isdecimal() and len(text) <= OFFSET_DIGITS_MAX:
        return int(text)
    try:
        return datetime.fromtimestamp(moment_ms(text, int(time.time() * 1000)) / 1000, UTC)
    except ConfigError:
        pass
    if text not in await admin.groups(system=True):
        known = "earliest, latest, a moment like 2026-11-15T12:00 or -1h, an offset, or a group that exists"
        raise Failure(EXIT_MISSING, f"--to {text!r} is none of: {known}")
    offsets = await admin.committed_offsets(text, topic)
    chosen = {queue: offset for queue, offset in offsets.items() if offset >= 0}
    if not chosen:
        raise Failure(EXIT_MISSING, f"group {text} has no offsets of topic {topic}: nothing to go to")
    return chosen


def _move(move: "Move") -> dict[str, Any]:
    return {
        "broker": move.queue.broker_name,
        "queue": move.queue.queue_id,
        "before": move.before if move.before >= 0 else None,
        "after": move.after,
        "change": move.after - max(0, move.before),
    }


async def _read_back(admin: "Admin", options: argparse.Namespace, moves: "list[Move]") -> int:
    """Queues that did not move yet, because a member is online and takes the new place with its next pull, are told."""
    now: dict[MessageQueue, int] = await admin.committed_offsets(options.group, options.topic)
    waiting = [move for move in moves if now.get(move.queue, -1) != move.after]
    if not waiting:
        output.note(f"moved {len(moves)} queues; read back as planned")
        return 0
    if await _connections(admin, options.group) is not None:
        output.note(f"moved {len(moves) - len(waiting)} queues; {len(waiting)} move with their consumer's next pull")
        return 0
    for move in waiting:
        queue = move.queue
        output.note(f"queue {queue.broker_name} {queue.queue_id} is at {now.get(queue)}, not at {move.after}")
    return EXIT_NO


def _clone_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", help="the one to follow")
    parser.add_argument("target", help="the one to move")
    parser.add_argument("--topic")
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _clone(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        lags = await admin.group_lag(options.group, options.topic)
        source = {queue: lag.committed for queue, lag in lags.items() if not queue.topic.startswith(RETRY_PREFIX)}
        if not source:
            raise Failure(EXIT_MISSING, f"group {options.group} has no offsets to clone: it never consumed anything")
        plan = []
        for topic in sorted({queue.topic for queue in source}):
            before = await admin.committed_offsets(options.target, topic)
            plan += [
                {"topic": topic, "broker": queue.broker_name, "queue": queue.queue_id, "after": offset,
                 "before": before[queue] if before.get(queue, -1) >= 0 else None}
                for queue, offset in source.items() if queue.topic == topic
            ]  # fmt: skip
        output.rows(options.output, plan, ("topic", "broker", "queue", "before", "after"))
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return
        if options.target not in await admin.groups(system=True):
            await admin.create_group(options.target)
            output.note(f"created group {options.target}")
        moves = await admin.clone_offsets(options.group, options.target, options.topic)
    output.note(f"moved {len(moves)} queues of {options.target}")


# Pull or POP


def _mode_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group")
    parser.add_argument("topic")
    parser.add_argument("mode", choices=("pop", "pull"))
    parser.add_argument("--share", type=natural, default=0, metavar="N", help="of pop: members to a queue; 0: all")


async def _mode(options: argparse.Namespace) -> None:
    from cometmq.wire.bodies import MessageRequestMode
    from cometmq.wire.codes import Request

    async with administration(options) as admin:
        await admin.describe_group(options.group)
        wish = MessageRequestMode(
            consumer_group=admin.wrap(options.group),
            mode=options.mode.upper(),
            pop_share_queue_num=options.share,
            topic=admin.wrap(options.topic),
        )
        masters = await admin.masters_of(admin.wrap(options.topic))
        for master in masters:
            await admin.ask(master.address, Request.SET_MESSAGE_REQUEST_MODE, None, wish.encode())
    brokers = [master.name for master in masters]
    found = {"group": options.group, "topic": options.topic, "mode": options.mode, "brokers": brokers}
    output.record(options.output, found)


VERBS: Final = (
    Verb("list", "names of groups; -o wide with members and lag", _list, _list_arguments),
    Verb("create", "make a group on all brokers, or on those named", _create, _change_arguments),
    Verb("describe", "settings, members and subscriptions of one group", _describe, _group),
    Verb("alter", "change settings; --enable after a broker disabled it", _alter, _change_arguments),
    Verb("delete", "delete a group and its offsets", _delete, _delete_arguments),
    Verb("lag", "how far behind, who owns which queue, who is idle", _lag, _lag_arguments, watch=True),
    Verb("seek", "move a group in one topic", _seek, _seek_arguments,
         example="cometmq group seek billing orders --to -1h"),
    Verb("clone", "let one group go on where another is", _clone, _clone_arguments),
    Verb("mode", "let members that ask their broker for work pop messages, or pull queues", _mode, _mode_arguments),
    Verb("producers", "who is connected to send", _producers, _producers_arguments),
)  # fmt: skip
