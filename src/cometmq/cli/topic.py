"""`cometmq topic`: list, create, describe, alter, narrow, delete, grow.

    cometmq topic create orders --queues 8                on every broker of every cluster
    cometmq topic narrow orders --queues 4 --yes          fewer queues, after groups have read the others
    cometmq topic update orders --broker broker-b         give it to one more broker, in the form it has elsewhere

A topic that a first message makes exists at that message's broker only (docs/topics.md); `create` gives it to all.
Which brokers it gets is decided by `--cluster` and `--broker`; without both, all masters get it.
"""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli import growth
from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, count, duration, pair, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_NO
from cometmq.cli.shared.times import time_text
from cometmq.errors import ConfigError, NoRoute

if TYPE_CHECKING:
    from cometmq.client.admin import Admin, HiddenQueue, Topic


def main(argv: list[str]) -> int:
    return run_noun("topic", "Topics: list, create, describe, alter, narrow, delete.", VERBS, argv)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--system", action="store_true", help="also what servers made for themselves")


async def _list(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        names = await admin.topics(cluster=options.cluster, system=options.system)
        if options.output == "table":
            found: list[dict[str, Any]] = [{"topic": name} for name in names]
        else:
            found = await _places(admin, names, options.cluster)
        output.rows(options.output, found, ("topic",), ("kind", "brokers", "queues", "permissions", "ordered"))


async def _places(admin: "Admin", names: list[str], cluster: str | None) -> list[dict[str, Any]]:
    """One request a broker, however many topics there are."""
    from cometmq.client.admin import Topic

    tables = [await admin.topic_configs(master.address) for master in await admin.masters(cluster)]
    return [_row(Topic(name, tuple(table[name] for table in tables if name in table))) for name in names]


def _row(topic: "Topic") -> dict[str, Any]:
    return {
        "topic": topic.name,
        "kind": topic.kind,
        "brokers": [on.broker for on in topic.brokers],
        "queues": sum(on.write_queues for on in topic.brokers),
        "permissions": "/".join(sorted({on.permissions for on in topic.brokers})),
        "ordered": any(on.ordered for on in topic.brokers),
    }


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("--cluster", metavar="NAME", help="only brokers of this cluster")
    parser.add_argument("--broker", metavar="NAME", help="only this broker: its name, or host:port")


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    parser.add_argument("-q", "--queues", type=count, default=8, help="on each broker; default 8")
    parser.add_argument("--read-queues", type=count, metavar="N", help="if not as many as --queues")
    parser.add_argument("--permissions", metavar="rw", help="r, w or rw; default rw, or what the topic has")
    parser.add_argument("--kind", help="NORMAL, FIFO, DELAY, TRANSACTION or MIXED, for brokers that check it")
    parser.add_argument("--ordered", action="store_true", help="keys keep their queues while a broker is away")
    parser.add_argument("--attribute", type=pair, action="append", default=[], metavar="NAME=VALUE")


async def _create(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        made = await admin.create_topic(
            options.topic,
            queues=options.queues,
            read_queues=options.read_queues,
            permissions=options.permissions,
            kind=options.kind,
            ordered=options.ordered,
            attributes=dict(options.attribute),
            cluster=options.cluster,
            broker=options.broker,
        )
        _show(options.output, made)
    wider = [on for on in made.brokers if on.write_queues > options.queues]
    if wider:
        output.note(
            f"{wider[0].broker} had {options.topic} with {wider[0].write_queues} queues and keeps them; for fewer: "
            f"cometmq topic narrow {options.topic} --queues {options.queues}"
        )
    else:
        output.note(f"created {options.topic}; try: cometmq send {options.topic} hello")


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")


async def _describe(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        topic = await admin.describe_topic(options.topic)
        stats = await admin.topic_stats(options.topic)
        groups = await admin.topic_groups(options.topic)
    queues = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "begin": bounds.begin,
            "end": bounds.end,
            "messages": bounds.count,
            "updated": time_text(bounds.updated_ms),
        }
        for queue, bounds in stats.items()
    ]
    if options.output in ("json", "yaml"):
        messages = sum(bounds.count for bounds in stats.values())
        whole = {**_row(topic), "messages": messages, "groups": groups, "on": _brokers(topic), "queue_stats": queues}
        output.record(options.output, whole)
        return
    _show(options.output, topic)
    print()
    output.rows(options.output, queues, ("broker", "queue", "begin", "end", "messages", "updated"))
    print()
    print(f"groups  {output.cell(groups)}")


def _brokers(topic: "Topic") -> list[dict[str, Any]]:
    return [
        {
            "broker": on.broker,
            "read_queues": on.read_queues,
            "write_queues": on.write_queues,
            "permissions": on.permissions,
            "ordered": on.ordered,
            "attributes": dict(on.attributes),
        }
        for on in topic.brokers
    ]


def _show(form: str, topic: "Topic") -> None:
    if form in ("json", "yaml"):
        output.record(form, {**_row(topic), "on": _brokers(topic)})
        return
    columns = ("broker", "read_queues", "write_queues", "permissions", "ordered")
    output.rows(form, _brokers(topic), columns, ("attributes",))


async def _route(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        route = await admin.topic_route(options.topic)
    addresses = {data.broker_name: data for data in route.broker_datas}
    found = [
        {
            "broker": queues.broker_name,
            "cluster": addresses[queues.broker_name].cluster,
            "read_queues": queues.read_queue_nums,
            "write_queues": queues.write_queue_nums,
            "perm": queues.perm,
            "addresses": {str(number): text for number, text in addresses[queues.broker_name].broker_addrs.items()},
        }
        for queues in route.queue_datas
        if queues.broker_name in addresses
    ]
    output.rows(options.output, found, ("broker", "cluster", "read_queues", "write_queues", "perm", "addresses"))


def _alter_arguments(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    parser.add_argument("-q", "--queues", type=count, help="on each broker")
    parser.add_argument("--read-queues", type=count, metavar="N", help="if not as many as --queues")
    parser.add_argument("--permissions", metavar="rw", help="r, w, rw or none")
    parser.add_argument("--attribute", type=pair, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--remove-attribute", action="append", default=[], metavar="NAME")


async def _alter(options: argparse.Namespace) -> None:
    changes: dict[str, str | None] = {**dict(options.attribute), **dict.fromkeys(options.remove_attribute)}
    permissions = "" if options.permissions == "none" else options.permissions
    async with administration(options) as admin:
        if options.broker is not None and await _is_new(admin, options.topic, options.broker):
            await _extend(admin, options, changes)
        elif options.queues is None and options.read_queues is None and permissions is None and not changes:
            if options.broker is not None:
                output.note(f"{options.broker} has {options.topic} already; nothing was changed")
                return
            raise ConfigError("nothing to change: give --queues, --permissions, --attribute, or --broker to extend it")
        else:
            await admin.alter_topic(
                options.topic,
                queues=options.queues,
                read_queues=options.read_queues,
                permissions=permissions,
                attributes=changes,
                cluster=options.cluster,
                broker=options.broker,
            )
        _show(options.output, await admin.describe_topic(options.topic))


async def _is_new(admin: "Admin", topic: str, broker: str) -> bool:
    (member,) = await admin.masters(broker=broker)
    return all(member.name != there.name for there in await admin.masters_of(admin.wrap(topic)))


async def _extend(admin: "Admin", options: argparse.Namespace, changes: Mapping[str, str | None]) -> None:
    """Give a topic to a broker that does not have it, in the form it has elsewhere."""
    known = (await admin.describe_topic(options.topic)).brokers
    if not known:
        raise NoRoute(f"no broker has topic {options.topic}: create it first (cometmq topic create {options.topic})")
    model = known[0]
    attributes = {**model.attributes, **{name: text for name, text in changes.items() if text is not None}}
    await admin.create_topic(
        options.topic,
        queues=options.queues or model.write_queues,
        read_queues=options.read_queues or (None if options.queues else model.read_queues),
        permissions=options.permissions or model.permissions,
        ordered=model.ordered,
        attributes=attributes,
        broker=options.broker,
    )
    output.note(f"extended {options.topic} to {options.broker}: clients use it after their next refresh, 30 s at most")


def _narrow_arguments(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    parser.add_argument("-q", "--queues", type=count, required=True, help="on each broker, from now on")
    parser.add_argument("--drain", type=duration, default=60.0, metavar="TIME",
                        help="how long groups may take to read the others; default 60s")  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _narrow(options: argparse.Namespace) -> int:
    place = {"queues": options.queues, "cluster": options.cluster, "broker": options.broker}
    async with administration(options) as admin:
        plan = await admin.plan_narrowing(options.topic, **place)
        if not options.yes:
            _hidden(options.output, plan)
            messages = sum(one.messages for one in plan)
            output.note(f"would hide {len(plan)} queues with {messages} messages, once groups have read them")
            output.note("nothing was changed: add --yes to do it")
            return 0
        left = await admin.narrow_topic(options.topic, **place, drain_s=options.drain)
        if left:
            _hidden(options.output, left)
            output.note(
                f"not narrowed yet: nobody writes to these queues any more, groups have not read them after "
                f"{options.drain:g} s; run the same again later"
            )
            return EXIT_NO
        _show(options.output, await admin.describe_topic(options.topic))
    return 0


def _hidden(form: str, queues: "list[HiddenQueue]") -> None:
    rows = [
        {
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "messages": one.messages,
            "unread": dict(one.unread) if form in ("json", "yaml") else
            [f"{group} {count}" for group, count in one.unread.items()],
        }
        for one in queues
    ]  # fmt: skip
    output.rows(form, rows, ("broker", "queue", "messages", "unread"))


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _delete(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        stats = await admin.topic_stats(options.topic)
        groups = await admin.topic_groups(options.topic)
        messages = sum(bounds.count for bounds in stats.values())
        output.note(f"delete {options.topic}: {len(stats)} queues, {messages} messages, groups {output.cell(groups)}")
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return
        brokers = await admin.delete_topic(options.topic, cluster=options.cluster, broker=options.broker)
        output.record(options.output, {"topic": options.topic, "messages": messages, "deleted_from": brokers})


VERBS: Final = (
    Verb("list", "names of topics; -o wide with their brokers and queues", _list, _list_arguments),
    Verb("create", "make a topic on all brokers, or on those named", _create, _create_arguments,
         example="cometmq topic create orders --queues 8"),
    Verb("describe", "brokers, queues and groups of one topic", _describe, _describe_arguments),
    Verb("route", "what the name server tells clients about it", _route, _describe_arguments),
    Verb("alter", "change queues, permissions or attributes; with --broker, extend it to one more", _alter,
         _alter_arguments, example="cometmq topic alter orders --queues 16"),
    Verb("update", "the same as alter", _alter, _alter_arguments),
    Verb("narrow", "give a topic fewer queues, after groups have read the others", _narrow, _narrow_arguments,
         example="cometmq topic narrow orders --queues 4"),
    Verb("delete", "delete a topic and its messages", _delete, _delete_arguments),
    *growth.VERBS,
)  # fmt: skip
