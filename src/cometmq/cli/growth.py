"""`cometmq topic grow`: a topic on more sets, and no group skips what is sent before it looks there.

    1  the topic is made at the new sets with permission r: routes show it, nobody writes
    2  every group with an offset in the topic gets offset 0 in the new queues, so that "no offset" never exists
    3  two route polls later members have the new queues; groups that came meanwhile get their offset 0, too
    4  permission rw

How far it got shows in the permission, so that the command goes on when it is given again. A key that is bound to a
queue moves with the number of queues: ordered topics need --breaks-key-order.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, count, duration
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_MISSING, EXIT_REFUSED, Failure
from cometmq.names import RETRY_PREFIX

if TYPE_CHECKING:
    from cometmq.client.admin import Admin, Topic

# Twice the 30 s after which a stock client reads routes again.
ROUTES_S: Final = 60.0
ORDERED_KINDS: Final = ("FIFO",)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("--sets", metavar="NAMES", required=True, help="brokerNames that get it, separated by ,")
    parser.add_argument("-q", "--queues", type=count, help="on each; default: as many as it has elsewhere")
    parser.add_argument("--routes", metavar="TIME", type=duration, default=ROUTES_S, help="default 60s")
    parser.add_argument("--breaks-key-order", action="store_true", help="once, messages of a key may change places")
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _grow(options: argparse.Namespace) -> None:
    wanted = [name for name in options.sets.split(",") if name]
    async with administration(options) as admin:
        topic = await admin.describe_topic(options.topic)
        await _check(admin, options, topic, wanted)
        queues = options.queues or max((on.write_queues for on in topic.brokers), default=8)
        groups = await _groups(admin, options.topic)
        before = {on.broker: on.permissions for on in topic.brokers}
        new = [name for name in wanted if "w" not in before.get(name, "")]
        output.note(f"1  make {topic.name} with {queues} queues and permission r at {output.joined(new) or 'no set'}")
        output.note(f"2  commit offset 0 there for {len(groups)} groups: {output.joined(sorted(groups)) or 'none'}")
        output.note(f"3  wait {options.routes:g} s until clients have seen the new queues")
        output.note("4  permission rw")
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return
        begun = await _grow_on(admin, topic.name, wanted, queues, options.routes)
    output.record(options.output, {"topic": topic.name, "new": new, "queues": queues, "offsets": begun * queues})


async def _grow_on(admin: Admin, topic: str, wanted: list[str], queues: int, routes_s: float) -> int:
    """Step by step (failover/growth.py). How many groups began at how many sets."""
    from cometmq.failover import growth

    begun: set[tuple[str, str]] = set()
    has_waited = False
    while True:
        permissions = {on.broker: on.permissions for on in (await admin.describe_topic(topic)).brokers}
        groups = await _groups(admin, topic)
        step = growth.next_step(wanted, permissions, groups, begun, has_waited=has_waited)
        if isinstance(step, growth.Make):
            await admin.create_topic(topic, queues=queues, permissions="r", broker=step.name)
            await _routed(admin, topic, step.name)
        elif isinstance(step, growth.Begin):
            await _begin(admin, topic, step.group, step.name)
            begun.add((step.group, step.name))
        elif isinstance(step, growth.Wait):
            await asyncio.sleep(routes_s)
            has_waited = True
        elif isinstance(step, growth.Open):
            await admin.alter_topic(topic, permissions="rw", broker=step.name)
        else:
            return len(begun)


async def _check(admin: Admin, options: argparse.Namespace, topic: Topic, wanted: list[str]) -> None:
    masters = {member.name for member in await admin.masters()}
    missing = [name for name in wanted if name not in masters]
    if missing:
        known = output.joined(sorted(masters))
        raise Failure(EXIT_MISSING, f"no set {output.joined(missing)} is registered; there are {known}")
    is_ordered = topic.kind in ORDERED_KINDS or any(on.ordered for on in topic.brokers)
    if is_ordered and not options.breaks_key_order:
        raise Failure(
            EXIT_REFUSED,
            f"{topic.name} is ordered: with more queues a key goes to another one, while older messages of it wait; "
            "stop its producers until groups have read all, or add --breaks-key-order",
        )


async def _groups(admin: Admin, topic: str) -> set[str]:
    """Groups that have ever read it."""
    return {group for group in await admin.topic_groups(topic) if not group.startswith(RETRY_PREFIX)}


async def _routed(admin: Admin, topic: str, name: str) -> None:
    """Until name servers show the new queues."""
    while True:
        route = await admin.topic_route(topic)
        if name in {queues.broker_name for queues in route.queue_datas}:
            return
        await asyncio.sleep(0.1)


async def _begin(admin: Admin, topic: str, group: str, name: str) -> None:
    """Offset 0 where the group has none; also where a broker says 0 without having it."""
    known = await admin.describe_group(group)
    if name not in known.brokers:
        await admin.create_group(
            group, broker=name, retries_max=known.retries_max, ordered=known.ordered,
            broadcast_allowed=known.broadcast_allowed, enabled=known.enabled, attributes=known.attributes,
        )  # fmt: skip
    for queue, offset in (await admin.committed_offsets(group, topic)).items():
        if queue.broker_name == name and offset <= 0:
            await admin.commit_offset(group, queue, 0)


VERBS: Final = (
    Verb("grow", "put a topic onto more sets, and no group skips what came before it looked", _grow, _arguments,
         example="cometmq topic grow orders --sets b,c --yes"),
)  # fmt: skip
