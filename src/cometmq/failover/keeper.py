"""Carries out what member.py decides: one broker's part in the life of its set, between the store and the broker.

    document changed ┐                                   ┌ follow, lead, rest, seal, unseal   the broker's `Actor`
    seen of master   ├──> next_step, until there is none ┤
    reports, time    ┘                                   └ change                             the store, then look again

Keys, below the prefix of the store's address:

    /cometmq/<cluster>/sets/<name>           the document
    /cometmq/<cluster>/alive/<name>/<id>     who is there, under a session: a hint, never a right

A store that does not answer stops nothing but changes: who leads leads on, who follows follows on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Final, Protocol

import msgspec

from cometmq.clock import Clock, Timer
from cometmq.errors import ConfigError
from cometmq.failover import document as documents
from cometmq.failover.document import Document, Member, Refused
from cometmq.failover.member import (
    HAND_OVER,
    Change,
    Follow,
    Lead,
    Promises,
    Rest,
    Seal,
    Seen,
    Step,
    Unseal,
    next_step,
)
from cometmq.failover.stores import SetStore, StoreUnknown
from cometmq.rate_limited_log import ThinnedLog

log = logging.getLogger(__name__)

RETRY_S: Final = 0.1
LOOK_S: Final = 0.5


def document_key(cluster: str, name: str) -> str:
    return f"/cometmq/{cluster}/sets/{name}"


def documents_prefix(cluster: str) -> str:
    return f"/cometmq/{cluster}/sets/"


def adopt_key(cluster: str, name: str) -> str:
    """The address of the broker whose log an operator declared to be that of the set."""
    return f"/cometmq/{cluster}/adopt/{name}"


def alive_prefix(cluster: str, name: str) -> str:
    return f"/cometmq/{cluster}/alive/{name}/"


class Alive(msgspec.Struct, frozen=True):
    address: str = ""
    role: str = ""
    epoch: int = 0


class Actor(Protocol):
    """The broker, as its set sees it. What raises StoreError or OSError has not been done."""

    def promises(self) -> Promises: ...

    def seen(self) -> Seen: ...

    async def follow(self, epoch: int, master: Member) -> None: ...

    async def lead(self, epoch: int, document: Document, version: int) -> None: ...

    async def rest(self) -> None: ...

    async def seal(self, epoch: int) -> None: ...

    async def unseal(self, epoch: int) -> None: ...

    def asks(self, kind: str, version: int, after: Document) -> bool:
        """A change is about to be sent; False: not now."""

    def learns(self, document: Document, version: int) -> None: ...


class Keeper:
    """`document` is the newest that is known; `changed()` has it look whether there is something to do."""

    def __init__(
        self, store: SetStore, clock: Clock, actor: Actor, cluster: str, name: str, session_ms: int
    ) -> None:
        self.store = store
        self.document: Document | None = None
        self.version: int = 0
        self.alive: dict[int, Alive] = {}
        self.is_live = False
        self.own_id: int = 0
        self._actor = actor
        self._clock = clock
        self._cluster = cluster
        self._name = name
        self._session_ms = session_ms
        self._key = document_key(cluster, name)
        self._changed = asyncio.Event()
        self._knows_alive = False
        self._running: asyncio.Task[None] | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._announced: Alive | None = None
        self._timer: Timer | None = None
        self._failures = ThinnedLog(log, clock)
        self._stopped = False

    # Joining

    async def join(
        self, own: Member, number: int, copies: int, *, is_empty: bool, newest_epoch: int = 0
    ) -> tuple[int, str]:
        """Be a member of the set, which is made if there is none: the own id, and the check to keep with it.
        `newest_epoch` is the newest that this broker knows of.

        ConfigError or Refused: not with this store. Waits for a store that does not answer.
        """
        check = own.check or secrets.token_hex(8)
        member = Member(own.address, own.ha, check)
        while True:
            try:
                data, version = await self.store.get(self._key)
                before = None if data is None else documents.decode(data)
                if before is None:
                    may_make = (is_empty and not number) or await self._is_adopted(own.address)
                    after, found = self._made(member, copies, may_make, newest_epoch + 1), 1
                else:
                    after, found = self._with(before, member, number, is_empty)
                if before is not None and after == before:
                    return self._joined(before, version, found, check)
                if await self.store.swap(self._key, version, after.encode()):
                    log.info("joined set name=%s id=%d address=%s", self._name, found, own.address)
                    continue
            except StoreUnknown as error:
                self._failures.warning("wait for the store of the set cause=%s", error)
            await asyncio.sleep(RETRY_S)

    async def _is_adopted(self, address: str) -> bool:
        return (await self.store.get(adopt_key(self._cluster, self._name)))[0] == address.encode()

    def _made(self, member: Member, copies: int, may_make: bool, epoch: int) -> Document:
        if not may_make:
            raise ConfigError(
                f"the set {self._name} has no document in {self.store.address}, and this broker has a log: say whose "
                f"log counts with cometmq cluster adopt {self._name} --broker {member.address}, or start with an empty "
                "store"
            )
        return documents.created(member, copies, epoch)

    def _with(self, before: Document, member: Member, number: int, is_empty: bool) -> tuple[Document, int]:
        for known, each in before.members.items():
            if each.check == member.check:
                return documents.moved(before, known, member), known
        if number:
            return documents.moved(before, number, member), number
        if not is_empty:
            raise ConfigError(
                f"this broker has a log and is not a member of the set {self._name}: start it with an empty store, it "
                "gets all from the master"
            )
        return documents.joined(before, member)

    def _joined(self, document: Document, version: int, number: int, check: str) -> tuple[int, str]:
        self.own_id = number
        self._learn(document, version)
        return number, check

    # Running

    def start(self) -> None:
        self.store.watch(self._key, self._on_document, self._on_live)
        self.store.watch(alive_prefix(self._cluster, self._name), self._on_alive, self._on_alive_live)
        self._running = asyncio.get_running_loop().create_task(self._run())
        self._look()

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._running, self._announcing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self.store.stop()

    def changed(self) -> None:
        self._changed.set()

    def _look(self) -> None:
        """Time is a reason too: somebody has fallen behind, or is back."""
        self._timer = self._clock.call_later(LOOK_S, self._look)
        self._changed.set()

    async def _run(self) -> None:
        while not self._stopped:
            await self._changed.wait()
            self._changed.clear()
            try:
                while await self._next():
                    pass
            except asyncio.CancelledError:
                raise
            except Exception as error:  # a set whose member stops deciding is stuck; it must not be for ever
                log.exception("fail to act for set name=%s cause=%s", self._name, error)
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def _next(self) -> bool:
        """One step; False: there is none now."""
        document = self.document
        if document is None:
            return False
        seen = self._actor.seen()
        seen.is_master_gone = self._knows_alive and self.is_live and document.master not in self.alive
        step = next_step(document, self._actor.promises(), seen)
        if step is None:
            return False
        return await self._do(step, document, self.version)

    async def _do(self, step: Step, document: Document, version: int) -> bool:
        if isinstance(step, Change):
            return await self._change(step, version)
        log.info("step set=%s epoch=%d do=%s", self._name, document.epoch, step)
        if isinstance(step, Follow):
            await self._actor.follow(step.epoch, document.members[step.master])
            self._announce("replica", step.epoch)
        elif isinstance(step, Lead):
            await self._actor.lead(step.epoch, document, version)
            self._announce("master", step.epoch)
        elif isinstance(step, Rest):
            await self._actor.rest()
            self._announce("none", step.epoch)
        elif isinstance(step, Seal):
            await self._actor.seal(step.epoch)
        elif isinstance(step, Unseal):
            await self._actor.unseal(step.epoch)
        return True

    # The store

    async def _change(self, step: Change, version: int) -> bool:
        if not self._actor.asks(step.kind, version, step.document):
            return False
        try:
            done = await self.store.swap(self._key, version, step.document.encode())
            if done:
                log.info("changed set name=%s kind=%s epoch=%d", self._name, step.kind, step.document.epoch)
            await self._read()
        except StoreUnknown as error:
            self._failures.warning("unknown outcome set=%s kind=%s cause=%s", self._name, step.kind, error)
            await asyncio.sleep(RETRY_S)
            try:
                await self._read()
            except StoreUnknown:
                return False
        return self.version > version or step.kind == HAND_OVER

    async def _read(self) -> None:
        data, version = await self.store.get(self._key)
        if data is not None:
            self._learn(documents.decode(data), version)

    def _learn(self, document: Document, version: int) -> None:
        if version > self.version:
            self.document, self.version = document, version
            self._actor.learns(document, version)
            self._changed.set()

    def _on_document(self, key: str, value: bytes | None, version: int) -> None:
        if key != self._key:
            return
        if value is None:
            log.error("lost document of set name=%s store=%s: nobody can be elected", self._name, self.store.address)
            return
        try:
            self._learn(documents.decode(value), version)
        except Refused as error:
            log.error("fail to read set name=%s cause=%s", self._name, error)

    def _on_live(self, is_live: bool) -> None:
        self.is_live = is_live

    def _on_alive(self, key: str, value: bytes | None, version: int) -> None:
        text = key.rpartition("/")[2]
        if not text.isdigit():
            return
        if value is None:
            self.alive.pop(int(text), None)
        else:
            try:
                self.alive[int(text)] = msgspec.json.decode(value, type=Alive)
            except msgspec.MsgspecError:
                self.alive[int(text)] = Alive()
        self._changed.set()

    def _on_alive_live(self, is_live: bool) -> None:
        self._knows_alive = is_live
        self._changed.set()

    # Who is there

    def _announce(self, role: str, epoch: int) -> None:
        """Behind whatever is said already: nobody waits for it."""
        document = self.document
        own = None if document is None else document.members.get(self.own_id)
        self._announced = Alive(own.address if own is not None else "", role, epoch)
        if self._announcing is None:
            self._announcing = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._announced is not None:
                said, self._announced = self._announced, None
                key = f"{alive_prefix(self._cluster, self._name)}{self.own_id}"
                try:
                    await self.store.announce(key, msgspec.json.encode(said), self._session_ms)
                except StoreUnknown as error:
                    self._failures.warning("fail to say that this broker lives cause=%s", error)
                    self._keep_unsaid(said)
                    await asyncio.sleep(1.0)
        finally:
            self._announcing = None

    def _keep_unsaid(self, said: Alive) -> None:
        """Unless there is something newer to say."""
        if self._announced is None:
            self._announced = said

    # Operators, and a master that stops

    async def ask(self, change: documents.Document | None, version: int) -> bool:
        """Swap in what somebody else has decided."""
        if change is None:
            return False
        done = await self.store.swap(self._key, version, change.encode())
        await self._read()
        return done
