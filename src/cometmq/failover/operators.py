"""What operators see of sets and change in them: for `cometmq cluster` and the front end for mqadmin.

A change is a function from one document to the next (failover.document), tried again while others change it too. No
broker is asked: members act on what the document says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from cometmq.clock import Clock
from cometmq.errors import ConfigError
from cometmq.failover import document as documents
from cometmq.failover.document import Document, Refused
from cometmq.failover.keeper import Alive, adopt_key, document_key
from cometmq.failover.stores import SetStore

ROOT: Final = "/cometmq/"
TRIES: Final = 20
LOOK_S: Final = 0.05


@dataclass(slots=True)
class SetView:
    """One set as the store has it. `fault`: why its document cannot be read."""

    cluster: str
    name: str
    document: Document | None
    version: int
    alive: dict[int, Alive] = field(default_factory=dict)
    fault: str = ""


class Sets:
    """StoreUnknown from any call: the store gave no answer. Refused: the change may not be made."""

    def __init__(self, store: SetStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock

    async def all(self) -> list[SetView]:
        """In the order of their names."""
        found: dict[tuple[str, str], SetView] = {}
        alive: list[tuple[str, str, str, bytes]] = []
        for key, (value, version) in (await self.store.list(ROOT)).items():
            parts = key.removeprefix(ROOT).split("/")
            if len(parts) == 3 and parts[1] == "sets":
                found[parts[0], parts[2]] = _view(parts[0], parts[2], value, version)
            elif len(parts) == 4 and parts[1] == "alive":
                alive.append((parts[0], parts[2], parts[3], value))
        for cluster, name, number, value in alive:
            view = found.get((cluster, name))
            if view is not None and number.isdecimal():
                view.alive[int(number)] = _alive(value)
        return [found[key] for key in sorted(found)]

    async def find(self, name: str, cluster: str | None = None) -> SetView:
        """Refused: there is none, or several clusters have one."""
        views = [view for view in await self.all() if view.name == name and cluster in (None, view.cluster)]
        if not views:
            known = ", ".join(view.name for view in await self.all()) or "none"
            raise Refused(f"there is no set {name} in {self.store.address}; it has {known}")
        if len(views) > 1:
            raise Refused(f"the clusters {', '.join(view.cluster for view in views)} have a set {name}: add --cluster")
        view = views[0]
        if view.document is None:
            raise Refused(f"the document of set {name}: {view.fault}")
        return view

    async def change(self, view: SetView, change: Callable[[Document], Document]) -> Document:
        """The document after it. Refused: by the change, or because others change it all the time."""
        key = document_key(view.cluster, view.name)
        for _ in range(TRIES):
            data, version = await self.store.get(key)
            if data is None:
                raise Refused(f"the set {view.name} has no document any more")
            before = documents.decode(data)
            after = change(before)
            if after == before or await self.store.swap(key, version, after.encode()):
                return after
            await asyncio.sleep(LOOK_S)
        raise Refused(f"the document of set {view.name} changed {TRIES} times meanwhile: try again")

    async def when(self, view: SetView, holds: Callable[[Document], bool], limit_s: float) -> Document | None:
        """The document that this holds for first; None: none did in time."""
        end_s = self._clock.monotonic() + limit_s
        while True:
            data, _ = await self.store.get(document_key(view.cluster, view.name))
            document = None if data is None else documents.decode(data)
            if document is not None and holds(document):
                return document
            if self._clock.monotonic() >= end_s:
                return None
            await asyncio.sleep(LOOK_S)

    async def elect(self, view: SetView, number: int, limit_s: float) -> Document:
        """A planned switch. Refused: it may not lead, or it took too long; then nothing stays asked for."""
        assert view.document is not None
        before = view.document.epoch
        if view.document.master == number:
            return view.document
        asked = await self.change(view, lambda document: documents.wished(document, number))
        after = await self.when(view, lambda document: document.epoch > before or not document.wish, limit_s)
        if after is not None and after.master == number and after.epoch > before:
            return after
        if after is None:
            await self.change(view, lambda now: documents.unwished(now) if now.wish == number else now)
        raise Refused(
            f"member {number} did not become the master of {view.name} within {limit_s:g} s: it must be in sync "
            f"({list(asked.in_sync)} are), and the master must reach the store"
        )

    async def force(self, view: SetView, number: int, by: str, at_ms: int) -> Document:
        return await self.change(view, lambda document: documents.forced(document, number, by, at_ms))

    async def forget(self, view: SetView, number: int) -> Document:
        return await self.change(view, lambda document: documents.forgotten(document, number))

    async def adopt(self, cluster: str, name: str, address: str) -> None:
        """The broker at `address` makes the document of the set at its next start, with the log that it has."""
        data, _ = await self.store.get(document_key(cluster, name))
        if data is not None:
            raise Refused(f"the set {name} has a document: its members are known, see cometmq cluster sets")
        key = adopt_key(cluster, name)
        _, version = await self.store.get(key)
        if not await self.store.swap(key, version, address.encode()):
            raise Refused(f"somebody else adopts {name} now: look at cometmq cluster sets")

    async def drop(self, view: SetView) -> None:
        """The set is no more. Its brokers must be stopped."""
        if view.alive:
            raise Refused(f"members {sorted(view.alive)} of {view.name} run: stop them first")
        key = document_key(view.cluster, view.name)
        _, version = await self.store.get(key)
        if not await self.store.swap(key, version, None):
            raise Refused(f"the document of {view.name} changed meanwhile: is a broker of it still there?")


def member_at(document: Document, text: str) -> int:
    """A member by id, address, or host if only one is there. Refused: there is none."""
    if text.isdecimal() and int(text) in document.members:
        return int(text)
    found = [
        number
        for number, member in document.members.items()
        if text in (member.address, member.address.rpartition(":")[0])
    ]
    if len(found) != 1:
        known = ", ".join(f"{number} ({member.address})" for number, member in sorted(document.members.items()))
        raise Refused(f"{text} is {'no member' if not found else 'several members'} of the set: it has {known}")
    return found[0]


def _view(cluster: str, name: str, value: bytes, version: int) -> SetView:
    try:
        return SetView(cluster, name, documents.decode(value), version)
    except Refused as error:
        return SetView(cluster, name, None, version, fault=str(error))


def _alive(value: bytes) -> Alive:
    try:
        return msgspec.json.decode(value, type=Alive)
    except msgspec.MsgspecError:
        return Alive()


def check_address(address: str) -> str:
    """ConfigError: no host:port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{address!r} is no address of a broker: HOST:PORT as it registers itself")
    return address


