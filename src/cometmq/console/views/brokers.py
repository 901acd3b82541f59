"""Brokers: who is there, how they do, and what is wrong with what to do about it.

RocketMQ's name server forgets a broker when its connection breaks. The console does not: a broker that was there keeps
its row, with the time since when it does not answer, until the console ends or the broker is back.
"""

import re
import time
from typing import Any, Final

from cometmq.client.admin import BrokerState
from cometmq.console.context import Context
from cometmq.errors import CallError, CometError

FIGURE_BYTES: Final = re.compile(r"([\d.]+) ?([KMGTPE]i?)?B?")
SCALE: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
DISK_WARN: Final = 0.75
DISK_FULL: Final = 0.90
BEHIND_BYTES_MAX: Final = 64 << 20
NEXT_DOOR_S: Final = 1.0


async def rows(context: Context) -> list[dict[str, Any]]:
    """Every broker that is there or was, by cluster, name and number."""
    return list(await context.remembered("brokers", lambda: _ask(context), NEXT_DOOR_S))


async def _ask(context: Context) -> list[dict[str, Any]]:
    now_ms = int(time.time() * 1000)
    states = await context.admin.cluster_state()
    known = context.seen.brokers
    present = set()
    for state in states:
        key = (state.member.name, state.member.id, state.member.address)
        present.add(key)
        before = known.get(key, {})
        if state.is_up:
            known[key] = _up(context, state) | {"seen_ms": now_ms}
        else:
            since_ms = before.get("since_ms") or before.get("seen_ms") or now_ms
            known[key] = _named(state) | before | {"up": False, "since_ms": since_ms, "error": state.error}
    for key, row in list(known.items()):
        if key in present:
            continue
        replaced = any(name == key[0] and number == key[1] for name, number, _ in present)
        if replaced:  # it is back at another address
            del known[key]
        elif row.get("up"):
            row |= {
                "up": False,
                "since_ms": row["seen_ms"],
                "error": "it is not registered with a name server any more",
            }
    return sorted(known.values(), key=lambda row: (row["cluster"], row["name"], row["number"]))


def _named(state: BrokerState) -> dict[str, Any]:
    member = state.member
    return {
        "cluster": member.cluster,
        "name": member.name,
        "number": member.id,
        "role": member.role,
        "address": member.address,
    }


def _up(context: Context, state: BrokerState) -> dict[str, Any]:
    figures = state.figures
    name = state.member.name
    row = _named(state) | {
        "up": True,
        "since_ms": None,
        "error": None,
        "version": state.version.removeprefix("V").replace("_", "."),
        "in_rate": first_number(figures.get("putTps")),
        "out_rate": first_number(figures.get("getTransferredTps")),
        "disk": _float(figures.get("commitLogDiskRatio")),
        "messages_today": _int(figures.get("msgPutTotalTodayNow"), 0) - _int(figures.get("msgPutTotalTodayMorning"), 0),
        "log_bytes": _int(figures.get("commitLogMaxOffset"), 0) - _int(figures.get("commitLogMinOffset"), 0),
        "flush_behind": bytes_of(figures.get("remainHowManyDataToFlush")),
        "dispatch_behind": _int(figures.get("dispatchBehindBytes"), 0),
        "boot_ms": _int(figures.get("bootTimestamp"), 0),
        "memory_bytes": _int(figures.get("cometmq.memoryBytes"), None),
        "make": "CometMQ" if any(key.startswith("cometmq.") for key in figures) else "RocketMQ",
    }
    if state.member.id == 0:
        context.history.add(f"broker-in:{name}", row["in_rate"])
        context.history.add(f"broker-out:{name}", row["out_rate"])
    return row


def findings(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What is wrong, worst first, with what to do."""
    found: list[dict[str, str]] = []

    def add(level: str, about: str, text: str, fix: str) -> None:
        found.append({"level": level, "about": about, "text": text, "fix": fix})

    if not rows:
        add("fail", "cluster", "no broker is registered with the name server", "start one: cometmq broker")
    for row in rows:
        name = f"{row['name']}" + (f" slave {row['number']}" if row["number"] else "")
        if not row["up"]:
            fix = f"start it again on {row['address']}; its log says why it ended (cometmq doctor checks the machine)"
            add("fail", name, f"{name} does not answer: {row['error']}", fix)
            continue
        disk = row["disk"]
        if disk is not None and disk >= DISK_FULL:
            add("fail", name, f"the disk of {name} is {disk:.0%} full", "free some: messages are refused from 90 % on")
        elif disk is not None and disk >= DISK_WARN:
            fix = "add disk or shorten fileReservedTime: from 75 % on old messages are deleted early"
            add("warn", name, f"the disk of {name} is {disk:.0%} full", fix)
        if (row["dispatch_behind"] or 0) > BEHIND_BYTES_MAX:
            fix = "its disk is too slow for what is sent; consumers see messages late"
            add("warn", name, f"{name} dispatches {row['dispatch_behind'] >> 20} MiB behind its log", fix)
    return sorted(found, key=lambda it: it["level"] != "fail")


async def figures(context: Context, name: str) -> dict[str, Any]:
    """Everything one broker tells about itself. What RocketMQ's does not have is empty, with the reason."""
    found: dict[str, Any] = {"figures": await context.admin.broker_figures(name), "unknown": {}}
    try:
        found["replication"] = await context.admin.replication(name)
    except CometError as error:
        found["replication"] = None
        found["unknown"]["replication"] = str(error)
    members = [row for row in await rows(context) if row["name"] == name or row["address"] == name]
    return found | {"members": members}


async def name_servers(context: Context) -> list[dict[str, Any]]:
    found = []
    for address in context.admin.name_servers():
        try:
            await context.admin.name_server_config(address)
            found.append({"address": address, "up": True, "error": None})
        except CallError as error:
            found.append({"address": address, "up": False, "error": str(error)})
        except CometError:
            found.append({"address": address, "up": True, "error": None})  # it answers, if only with a refusal
    return found


def first_number(text: str | None) -> float | None:
    return _float(text.split()[0]) if text and text.split() else None


def bytes_of(text: str | None) -> int | None:
    """`1.2 KiB` -> 1228."""
    match = FIGURE_BYTES.match(text or "")
    if match is None:
        return None
    return int(float(match[1]) * SCALE[(match[2] or "").removesuffix("i")])


def _float(text: str | None) -> float | None:
    try:
        return round(float(text), 4) if text else None
    except ValueError:
        return None


def _int(text: str | None, default: Any) -> Any:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else default
