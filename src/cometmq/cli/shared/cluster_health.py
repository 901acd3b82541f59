"""`cometmq cluster health`: can every topic be sent to and read from, and is every promise kept right now?

    name servers    each answers
    brokers         each that is registered answers; it says itself which promise it does not keep (copies, disk,
                    dispatch, name servers: the conditions of /readyz)
    masters         each broker name has one; its replicas keep up
    copies          of RocketMQ's brokers, which do not say: a SYNC_MASTER has a replica
    topics          each has a master that takes sends, and somebody to read from
    sets, etcd      those that elect their masters: who leads, who is in sync, who sees which node

    ok, warn        exit code 0; a warning is a state that somebody may have chosen
    fail            exit code 1
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cometmq.cli.shared.times import bytes_text, span_text
from cometmq.errors import BrokerError, CallError, CometError
from cometmq.wire.codes import MASTER_ID, Request

if TYPE_CHECKING:
    from cometmq.client.admin import Admin, BrokerState
    from cometmq.wire.bodies import TopicRoute

DISK_FULL: Final = 0.85
# What a broker says of its promises while it keeps all.
KEPT: Final = "kept"
DISPATCH_BEHIND_BYTES: Final = 256 << 20
REPLICA_BEHIND_BYTES: Final = 256 << 20
TOPICS_MAX: Final = 1000
ROUTES_AT_ONCE: Final = 32
PERM_WRITE: Final = 2
PERM_READ: Final = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """`state` is ok, warn or fail."""

    state: str
    what: str
    found: str
    fix: str = ""


async def look(admin: "Admin", cluster: str | None) -> list[Finding]:
    found = [await _name_server_health(admin, address) for address in admin.name_servers()]
    states = await admin.cluster_state(cluster)
    for state in states:
        found += [_broker_health(state), *_store_health(state)]
    found += _group_health(states)
    found += await _copies(admin, states)
    found += _set_health(states)
    if not states:
        found.append(Finding("fail", "brokers", "none registered", "start one: cometmq broker --namesrv HOST:PORT"))
    else:
        found += await _topics(admin, states)
    return found


async def _name_server_health(admin: "Admin", address: str) -> Finding:
    try:
        await admin.ask(address, Request.GET_BROKER_CLUSTER_INFO)
    except (CallError, BrokerError) as error:
        return Finding("fail", f"name server {address}", str(error), "start it, or take it out of the list")
    return Finding("ok", f"name server {address}", "answers")


def _store_health(state: "BrokerState") -> list[Finding]:
    """Which nodes of etcd this broker sees, if it is in a set that elects its master."""
    found = []
    for text in filter(None, state.figures.get("cometmq.setStore", "").split("; ")):
        node, _, seen = text.partition(" ")
        what = f"etcd {node} from {state.member.name} {state.member.address}"
        if seen in ("ok", "not asked yet since 0"):
            found.append(Finding("ok", what, "answers" if seen == "ok" else "not asked yet"))
        else:
            cause, _, since = seen.rpartition(" since ")
            ago = span_text(time.time() * 1000 - int(since)) if since.isdecimal() else "?"
            found.append(Finding("fail", what, f"{cause}, for {ago}", "start that node, or look at the network"))
    return found


def _set_health(states: "list[BrokerState]") -> list[Finding]:
    """A row for each set that elects its master, as its newest member says."""
    sets: dict[tuple[str, str], dict[str, str]] = {}
    for state in states:
        key = (state.member.cluster, state.member.name)
        if int(state.figures.get("cometmq.setEpoch", "0")) > int(sets.get(key, {}).get("cometmq.setEpoch", "0")):
            sets[key] = dict(state.figures)
    found = []
    for (_, name), figures in sorted(sets.items()):
        in_sync = figures["cometmq.setInSync"].split(",")
        members = figures["cometmq.setMembers"].split(",")
        leads = [one for one in states if one.member.name == name and one.figures.get("cometmq.setRole") == "master"]
        text = (
            f"epoch {figures['cometmq.setEpoch']}, member {figures['cometmq.setMaster']} leads, {len(in_sync)} of "
            f"{len(members)} in sync, acked with {figures['cometmq.setCopies']} copies, "
            f"seals {figures['cometmq.setSeals']}"
        )
        if not leads:
            found.append(Finding("fail", f"set {name}", text, "nobody leads it now: see cometmq cluster sets"))
        elif len(in_sync) < len(members):
            found.append(Finding("fail", f"set {name}", text, "start what is down, or cometmq cluster forget it"))
        else:
            found.append(Finding("ok", f"set {name}", text))
    return found


def _broker_health(state: "BrokerState") -> Finding:
    what = f"broker {state.member.name} {state.member.id}"
    figures = state.figures
    if not state.is_up:
        return Finding("fail", what, state.error or "", "registered, but no answer: look at its host and log")
    ratio = _number(figures.get("commitLogDiskRatio"))
    broken = figures.get("cometmq.promises", KEPT)
    if broken != KEPT:
        return Finding("fail", what, broken, "see its log, and docs/operate.md")
    if ratio >= DISK_FULL:
        return Finding("fail", what, f"disk {ratio:.0%} used", "free some room: at 90 % messages are refused")
    behind = int(figures.get("dispatchBehindBytes", "0") or 0)
    text = f"up {uptime(figures) or '?'}, disk {ratio:.0%}, {bytes_text(behind)} to dispatch"
    if behind > DISPATCH_BEHIND_BYTES:
        return Finding("fail", what, text, "what was acknowledged cannot be read yet: the disk may be too slow")
    return Finding("ok", what, text)


def _group_health(states: "list[BrokerState]") -> list[Finding]:
    """Of each broker name: is there a master, and do its replicas keep up."""
    names: dict[tuple[str, str], list[BrokerState]] = {}
    for state in states:
        names.setdefault((state.member.cluster, state.member.name), []).append(state)
    found = []
    for (_, name), members in sorted(names.items()):
        masters = [one for one in members if one.member.id == MASTER_ID]
        if not masters:
            ids = ", ".join(str(one.member.id) for one in members)
            fix = "start its master, or make a replica the master (docs/replicas.md)"
            found.append(Finding("fail", f"master of {name}", f"gone, replicas {ids} remain: nobody can send", fix))
            continue
        end = _offset(masters[0])
        for replica in members:
            if replica.is_up and replica.member.id != MASTER_ID and masters[0].is_up:
                behind = max(0, end - _offset(replica))
                what = f"replica {name} {replica.member.id}"
                text = f"{bytes_text(behind)} behind its master"
                slow = behind > REPLICA_BEHIND_BYTES
                found.append(Finding("warn" if slow else "ok", what, text, "it may be too slow" if slow else ""))
    return found


async def _copies(admin: "Admin", states: "list[BrokerState]") -> list[Finding]:
    """Of RocketMQ's masters, which do not say what they promise: SYNC_MASTER without a replica."""
    found = []
    for state in states:
        if state.member.id != MASTER_ID or not state.is_up or "cometmq.promises" in state.figures:
            continue
        with suppress(CallError, BrokerError):
            settings = await admin.broker_config(state.member.address)
            replicas = [one for one in states if one.member.name == state.member.name and one.member.id != MASTER_ID]
            if settings.get("brokerRole") == "SYNC_MASTER" and not any(one.is_up for one in replicas):
                text = "SYNC_MASTER without a replica: messages are stored once"
                found.append(Finding("fail", f"copies of {state.member.name}", text, "start its replica"))
    return found


async def _topics(admin: "Admin", states: "list[BrokerState]") -> list[Finding]:
    """Whether each topic can be sent to and read from."""
    up = {state.member.name for state in states if state.is_up and state.member.id == MASTER_ID}
    readable = {state.member.name for state in states if state.is_up}
    names = await admin.topics()
    found = []
    for at in range(0, min(len(names), TOPICS_MAX), ROUTES_AT_ONCE):
        some = names[at : at + ROUTES_AT_ONCE]
        routes = await asyncio.gather(*[admin.topic_route(name) for name in some], return_exceptions=True)
        for name, route in zip(some, routes, strict=True):
            if isinstance(route, CometError):
                found.append(Finding("fail", f"topic {name}", str(route), "see cometmq topic route"))
            elif not isinstance(route, BaseException):
                found += _topic(name, route, up, readable)
    looked = min(len(names), TOPICS_MAX)
    if looked and not found:
        text = f"{looked} of {len(names)} can be sent to and read from"
        found.append(Finding("ok", "topics", text))
    elif len(names) > TOPICS_MAX:
        found.append(Finding("warn", "topics", f"{looked} of {len(names)} were looked at", ""))
    return found


def _topic(name: str, route: "TopicRoute", up: set[str], readable: set[str]) -> list[Finding]:
    queues = route.queue_datas
    sends = [one for one in queues if one.perm & PERM_WRITE and one.write_queue_nums > 0]
    reads = [one for one in queues if one.perm & PERM_READ and one.read_queue_nums > 0]
    found = []
    if not sends:
        found.append(Finding("warn", f"topic {name}", "closed for sends", "cometmq topic alter --permissions rw"))
    elif not any(one.broker_name in up for one in sends):
        brokers = ", ".join(sorted({one.broker_name for one in sends}))
        found.append(Finding("fail", f"topic {name}", f"cannot be sent to: no master of {brokers} answers", "start it"))
    if reads and not any(one.broker_name in readable for one in reads):
        brokers = ", ".join(sorted({one.broker_name for one in reads}))
        found.append(Finding("fail", f"topic {name}", f"cannot be read from: {brokers} do not answer", "start them"))
    return found


def _offset(state: "BrokerState") -> int:
    text = state.figures.get("commitLogMaxOffset", "0")
    return int(text) if text.isdecimal() else 0


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None else 0.0
    except ValueError:
        return 0.0


def uptime(figures: "Mapping[str, str]") -> str | None:
    """How long a broker runs."""
    started = figures.get("bootTimestamp", "")
    return span_text(time.time() * 1000 - int(started)) if started.isdecimal() and started != "0" else None
