"""The verbs of `cometmq cluster` for sets that elect their masters (docs/failover.md).

Where the documents are: `--store`, else COMETMQ_CONTROLLER_STORE, else what a broker of the cluster says in its
setting controllerStore. What changes something shows its plan first and acts with `--yes`; each command can be
interrupted and given again: how far it got is in the document.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, duration
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_MISSING, EXIT_NO, EXIT_REFUSED, EXIT_UNREACHABLE, Failure
from cometmq.errors import BrokerError, CallError, CometError

if TYPE_CHECKING:
    from cometmq.client.admin import Admin
    from cometmq.failover.document import Document
    from cometmq.failover.operators import Sets, SetView

STORE_VARIABLE: Final = "COMETMQ_CONTROLLER_STORE"
MACHINES_MAX: Final = 1_000
RANGE: Final = re.compile(r"([A-Za-z0-9_.-]*?)(\d+)\.\.([A-Za-z0-9_.-]*?)(\d+)")
LOOK_S: Final = 0.2


# Reaching the store


@asynccontextmanager
async def sets_of(options: argparse.Namespace) -> AsyncIterator[Sets]:
    from cometmq.clock import SystemClock
    from cometmq.failover.document import Refused
    from cometmq.failover.operators import Sets
    from cometmq.failover.stores import StoreUnknown, open_store

    address = options.store or os.environ.get(STORE_VARIABLE, "") or await _address_of_brokers(options)
    clock = SystemClock()
    store = open_store(address, clock)
    try:
        yield Sets(store, clock)
    except StoreUnknown as error:
        raise Failure(EXIT_UNREACHABLE, f"{error}; is etcd running, and is --store right?") from error
    except Refused as error:
        raise Failure(EXIT_REFUSED, str(error)) from error
    finally:
        await store.stop()


async def _address_of_brokers(options: argparse.Namespace) -> str:
    unheard: CallError | None = None
    async with administration(options) as admin:
        for member in await admin.members():
            try:
                address = (await admin.broker_config(member.address)).get("controllerStore", "")
            except BrokerError:
                continue
            except CallError as error:
                unheard = error
                continue
            if address:
                return address
    if unheard is not None:
        raise unheard
    raise Failure(
        EXIT_MISSING,
        "no broker of this cluster is in a set that elects its master (controllerStore); name the store: "
        "--store etcd://host:2379",
    )


def _store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", metavar="ADDRESS", help="etcd://host:2379,...; default: what the brokers use")
    parser.add_argument("--cluster", metavar="NAME", help="only sets of this cluster")


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the set: a brokerName")
    _store(parser)


def _yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


def _is_only_plan(options: argparse.Namespace) -> bool:
    if not options.yes:
        output.note("nothing was changed: add --yes to do it")
    return not options.yes


# What there is

COLUMNS: Final = ("set", "epoch", "master", "copies", "in_sync", "behind", "seals", "suspects", "wish", "state")


async def _sets(options: argparse.Namespace) -> int:
    async with sets_of(options) as sets:
        views = [view for view in await sets.all() if options.cluster in (None, view.cluster)]
    found = [await row_of(view) for view in views]
    output.rows(options.output, found, COLUMNS, ("cluster", "members", "alive", "leaving"))
    return EXIT_NO if any(row["state"] != "ok" for row in found) else 0


async def row_of(view: SetView) -> dict[str, Any]:
    document = view.document
    if document is None:
        return {"cluster": view.cluster, "set": view.name, "state": view.fault}
    return {
        "cluster": view.cluster,
        "set": view.name,
        "epoch": document.epoch,
        "master": document.master,
        "copies": document.copies,
        "in_sync": list(document.in_sync),
        "behind": await _behind(view),
        "seals": sorted(document.seals),
        "suspects": list(document.suspects),
        "wish": document.wish or None,
        "leaving": list(document.leaving),
        "members": {str(number): member.address for number, member in sorted(document.members.items())},
        "alive": sorted(view.alive),
        "state": state_of(view),
    }


def state_of(view: SetView) -> str:
    """What an operator should look at; "ok" if nothing."""
    document = view.document
    if document is None:
        return view.fault
    if document.master not in view.alive:
        return f"master {document.master} is not alive"
    if len(document.in_sync) < document.copies:
        return f"{len(document.in_sync)} of {document.copies} copies: sends are refused"
    gone = [number for number in document.members if number not in view.alive and number not in document.leaving]
    if gone:
        return f"members {output.joined(gone)} are not alive"
    away = [number for number in document.members if number not in document.in_sync and number not in document.leaving]
    if away:
        return f"members {output.joined(away)} are not in sync"
    return "ok"


async def _behind(view: SetView) -> dict[str, int] | None:
    """Bytes that each connected replica lacks, as the master says; None if it does not."""
    from cometmq.net.client import Client
    from cometmq.wire.bodies import HaStatus
    from cometmq.wire.codes import Request, Response
    from cometmq.wire.command import request

    assert view.document is not None
    client = Client()
    try:
        address = view.document.members[view.document.master].address
        answer = await client.call(address, request(Request.GET_BROKER_HA_STATUS), 1.0)
        if answer.code != Response.SUCCESS:
            return None
        return {each.addr or "": each.diff for each in HaStatus.decode(answer.body).ha_connection_info}
    except CometError:
        return None
    finally:
        await client.stop()


# Electing


def _elect_arguments(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument("member", help="its id, or its address")
    parser.add_argument("--unclean", action="store_true", help="although acked messages may be given up")
    parser.add_argument("--wait", metavar="TIME", type=duration, default=5.0, help="default 5s")
    _yes(parser)


async def _elect(options: argparse.Namespace) -> None:
    from cometmq.clock import SystemClock
    from cometmq.failover.operators import member_at

    async with sets_of(options) as sets:
        view = await sets.find(options.name, options.cluster)
        document = _document(view)
        number = member_at(document, options.member)
        if options.unclean:
            others = [each for each in document.in_sync if each != number]
            output.note(
                f"member {number} would lead {view.name} from epoch {document.epoch + 1} on, alone in sync: what only "
                f"members {output.joined(others)} have is given up, acked or not; they cut it into diverged/"
            )
        else:
            output.note(
                f"member {number} would lead {view.name} from epoch {document.epoch + 1} on instead of member "
                f"{document.master}, which forwards meanwhile: clients see a pause, no error"
            )
        if _is_only_plan(options):
            return
        if options.unclean:
            after = await sets.force(view, number, getpass.getuser(), SystemClock().now_ms())
        else:
            after = await sets.elect(view, number, options.wait)
    output.record(options.output, {"set": view.name, "master": after.master, "epoch": after.epoch})


def _adopt_arguments(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    text = "whose log counts: its brokerIP1 and port"
    parser.add_argument("--broker", dest="adopted", metavar="HOST:PORT", required=True, help=text)
    _yes(parser)


async def _adopt(options: argparse.Namespace) -> None:
    from cometmq.failover.operators import check_address

    cluster, address = options.cluster or "DefaultCluster", check_address(options.adopted)
    async with sets_of(options) as sets:
        output.note(
            f"the broker at {address} would make the set {options.name} of cluster {cluster} at its next start, with "
            "the log that it has; the others of that name have to start with an empty store"
        )
        if _is_only_plan(options):
            return
        await sets.adopt(cluster, options.name, address)
    output.record(options.output, {"set": options.name, "cluster": cluster, "adopted": address})


def _forget_arguments(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument("member", help="its id, or its address")
    _yes(parser)


async def _forget(options: argparse.Namespace) -> None:
    from cometmq.failover import document as documents
    from cometmq.failover.operators import member_at

    async with sets_of(options) as sets:
        view = await sets.find(options.name, options.cluster)
        number = member_at(_document(view), options.member)
        documents.forgotten(_document(view), number)
        address = _document(view).members[number].address
        output.note(f"member {number} ({address}) would leave {view.name}; with an empty store it may join again")
        if _is_only_plan(options):
            return
        await sets.forget(view, number)
    output.record(options.output, {"set": view.name, "forgotten": number})


# Moving


def _move_arguments(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument("--from", dest="source", metavar="MEMBER", required=True, help="id, address or host")
    parser.add_argument("--to", dest="target", metavar="MEMBER", required=True, help="address or host of the new copy")
    parser.add_argument("--wait", metavar="TIME", type=duration, default=600.0, help="for the copy; default 10m")
    _yes(parser)


async def _move(options: argparse.Namespace) -> None:
    """Add before remove: never fewer copies than before."""
    from cometmq.failover import document as documents
    from cometmq.failover.document import Refused
    from cometmq.failover.operators import member_at

    async with sets_of(options) as sets:
        view = await sets.find(options.name, options.cluster)
        try:
            source = member_at(_document(view), options.source)
        except Refused:
            if _is_in_sync(_document(view), options.target):
                output.note(f"{options.source} is no member of {view.name} any more: the move is done")
                return
            raise
        for line in (
            f"1  start a broker of the set {view.name} on {options.target}; it copies the whole log",
            f"2  wait until it is in sync ({options.wait:g} s at most)",
            f"3  let it lead, if member {source} does",
            f"4  take member {source} out of the in-sync set, and forget it",
            "5  stop the broker there",
        ):
            output.note(line)
        if _is_only_plan(options):
            return
        target = await _in_sync(sets, view, options.target, options.wait)
        if (await _read(sets, view)).master == source:
            output.note(f"let member {target} lead")
            await sets.elect(await sets.find(view.name, view.cluster), target, 10.0)
        output.note(f"take member {source} away")
        await sets.change(view, lambda document: documents.leaves(document, source))
        if await sets.when(view, lambda document: source not in document.in_sync, options.wait) is None:
            raise Refused(f"the master did not take member {source} out of the in-sync set: give the command again")
        address = (await _read(sets, view)).members[source].address
        await sets.forget(view, source)
        output.note(f"stop the broker at {address} when it forwards no more: systemctl stop waits for that")
    output.record(options.output, {"set": view.name, "from": source, "to": target})


async def _in_sync(sets: Sets, view: SetView, text: str, limit_s: float) -> int:
    from cometmq.failover.document import Refused
    from cometmq.failover.operators import member_at

    if await sets.when(view, lambda document: _is_in_sync(document, text), limit_s) is None:
        raise Refused(
            f"no member at {text} came into sync within {limit_s:g} s: is a broker of {view.name} started there? give "
            "the command again to go on"
        )
    return member_at(await _read(sets, view), text)


def _is_in_sync(document: Document, text: str) -> bool:
    from cometmq.failover.document import Refused
    from cometmq.failover.operators import member_at

    try:
        return member_at(document, text) in document.in_sync
    except Refused:
        return False


async def _read(sets: Sets, view: SetView) -> Document:
    return _document(await sets.find(view.name, view.cluster))


def _document(view: SetView) -> Document:
    assert view.document is not None, "find gives sets with a document"
    return view.document


# Plans


def machines(text: str) -> list[str]:
    """m1,m2,m7..m9"""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        match = RANGE.fullmatch(part)
        if match is None:
            found.append(part)
            continue
        prefix, first, other, last = match.groups()
        numbers = range(int(first), int(last) + 1)
        if other not in ("", prefix) or not numbers or len(numbers) > MACHINES_MAX:
            raise argparse.ArgumentTypeError(f"{part!r} is no range of machines: m1..m9, at most {MACHINES_MAX}")
        found += [f"{prefix}{number}" for number in numbers]
    if not found:
        raise argparse.ArgumentTypeError("no machines: m1,m2 or m1..m9")
    return found


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    _store(parser)
    parser.add_argument("--machines", metavar="LIST", type=machines, required=True, help="hosts: m1,m2 or m1..m9")


async def _plan(options: argparse.Namespace) -> None:
    from cometmq.failover import placement

    async with sets_of(options) as sets:
        views = await _readable(sets, options.cluster)
    placed = {view.name: [_host(member.address) for member in _document(view).members.values()] for view in views}
    moves = placement.plan(placed, options.machines)
    found = [
        {
            "set": move.name,
            "from": move.source,
            "to": move.target,
            "command": f"cometmq cluster move {move.name} --from {move.source} --to {move.target} --yes",
        }
        for move in moves
    ]
    output.rows(options.output, found, ("set", "from", "to", "command"))
    output.note(f"{len(moves)} of {sum(map(len, placed.values()))} copies would move; one after the other is best")


async def _readable(sets: Sets, cluster: str | None) -> list[SetView]:
    return [view for view in await sets.all() if view.document is not None and cluster in (None, view.cluster)]


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _balance_arguments(parser: argparse.ArgumentParser) -> None:
    _store(parser)
    _yes(parser)


async def _balance(options: argparse.Namespace) -> None:
    from cometmq.failover import placement
    from cometmq.failover.operators import member_at

    async with sets_of(options) as sets:
        views = {view.name: view for view in await _readable(sets, options.cluster)}
        masters, able = {}, {}
        for name, view in views.items():
            document = _document(view)
            masters[name] = _host(document.members[document.master].address)
            able[name] = [_host(document.members[number].address) for number in document.in_sync]
        switches = placement.balance(masters, able)
        found = [{"set": each.name, "from": each.source, "to": each.target} for each in switches]
        output.rows(options.output, found, ("set", "from", "to"))
        if not switches:
            output.note("each machine leads its share")
        elif not _is_only_plan(options):
            for each in switches:
                view = views[each.name]
                after = await sets.elect(view, member_at(_document(view), each.target), 10.0)
                output.note(f"member {after.master} leads {each.name} from epoch {after.epoch} on")


# The end of a set


def _remove_arguments(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument("--wait", metavar="TIME", type=duration, default=600.0, help="for each step; default 10m")
    parser.add_argument("--discard", action="store_true", help="do not wait for what was not read")
    _yes(parser)


async def _remove(options: argparse.Namespace) -> None:
    async with sets_of(options) as sets:
        view = await sets.find(options.name, options.cluster)
        for line in (
            f"1  brokerPermission=4 at the master of {view.name}: clients read and write no more",
            "2  wait until all groups have read all, and no delayed, timer or half message waits",
            "3  stop its brokers; their directories stay (cometmq store dump, Spark)",
            "4  drop the document of the set",
        ):
            output.note(line)
        if _is_only_plan(options):
            return
        if view.alive:
            await _drain(options, view)
            output.note(f"stop the brokers of {view.name} now: {output.joined(_addresses(view))}")
        end_s = asyncio.get_running_loop().time() + options.wait
        while view.alive:
            if asyncio.get_running_loop().time() >= end_s:
                raise Failure(EXIT_NO, f"members {sorted(view.alive)} still run: stop them, give the command again")
            await asyncio.sleep(LOOK_S)
            view = await sets.find(view.name, view.cluster)
        await sets.drop(view)
    output.record(options.output, {"set": view.name, "removed": True})


def _addresses(view: SetView) -> list[str]:
    return [member.address for member in _document(view).members.values()]


async def _drain(options: argparse.Namespace, view: SetView) -> None:
    master = _document(view).members[_document(view).master].address
    async with administration(options) as admin:
        await admin.set_broker_config({"brokerPermission": "4"}, broker=master)
        end_s = asyncio.get_running_loop().time() + options.wait
        while not options.discard:
            waiting = await _waiting(admin, view.name, master)
            if not waiting:
                return
            if asyncio.get_running_loop().time() >= end_s:
                raise Failure(EXIT_NO, f"not drained yet: {waiting}; give the command again, or add --discard")
            await asyncio.sleep(LOOK_S)


async def _waiting(admin: Admin, name: str, master: str) -> str:
    """What still has to leave this set; "" if nothing."""
    for group in await admin.groups():
        lags = await admin.group_lag(group)
        behind = sum(lag.behind for queue, lag in lags.items() if queue.broker_name == name)
        if behind:
            return f"group {group} has {behind} messages of {name} to read"
    figures = await admin.broker_figures(master)
    delayed = 0
    for key, text in figures.items():
        if key.startswith("scheduleMessageOffset_"):
            done, _, end = text.partition(",")
            delayed += max(0, int(end) - int(done))
    for count, what in (
        (delayed, "delayed messages"),
        (int(figures.get("timerOffsetBehind", "0") or 0), "timer messages to read"),
        (int(figures.get("timerCongestNum", "0") or 0), "timer messages"),
        (int(figures.get("cometmq.openHalves", "0") or 0), "open transactions"),
    ):
        if count > 0:
            return f"{count} {what} wait in {name}"
    return ""



VERBS: Final = (
    Verb("sets", "sets that elect their master: who leads, who is in sync; exit code 1 if not all are", _sets, _store),
    Verb("elect", "a planned switch of a set's master", _elect, _elect_arguments,
         example="cometmq cluster elect a 2 --yes"),
    Verb("adopt", "say whose old log is that of a new set", _adopt, _adopt_arguments),
    Verb("forget", "a member that will not come back", _forget, _forget_arguments),
    Verb("move", "a copy of a set to another machine, under load", _move, _move_arguments,
         example="cometmq cluster move a --from m1 --to m7 --yes"),
    Verb("plan", "which copies have to move so that machines share them evenly", _plan, _plan_arguments),
    Verb("balance", "let each machine lead its share of sets", _balance, _balance_arguments),
    Verb("remove", "take a set out of the cluster when it is drained", _remove, _remove_arguments),
)  # fmt: skip

