"""Live updates: the hub asks the cluster once for all who look, and tells each what changed.

    page --GET /api/events?watch=groups,group:billing--> Hub
                                                         one Watch a key: poll -> parts, by name, with a version
    page <--event: parts, id: EPOCH.42, data: {"watch": ..., "parts": {...}, "gone": [...]}--

A watch polls while it has somebody who looks, and ends with the last one: a console that nobody looks at asks nothing.
Each part has the version in which it changed last; a page that comes back with the id of its last event gets what is
newer. A poll that fails keeps the parts and says why: event `trouble`.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from cometmq.console.answers import Problem
from cometmq.console.context import Context
from cometmq.errors import CometError

logger = logging.getLogger(__name__)

WATCHES_MAX: Final = 90
HEARTBEAT_S: Final = 15.0
GONE_KEPT: Final = 10_000

Parts = dict[str, Any]
Poll = Callable[[Context, str], Awaitable[Parts]]


class Watch:
    """What one key shows now, and who looks at it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: dict[str, tuple[int, bytes, Any]] = {}
        self.gone: dict[str, int] = {}
        self.version = 0
        self.trouble: str | None = None
        self.changed = asyncio.Event()
        self.lookers = 0
        self.task: asyncio.Task[None] | None = None

    def put(self, parts: Parts) -> None:
        self.version += 1
        for name, value in parts.items():
            raw = msgspec.json.encode(value)
            known = self.parts.get(name)
            if known is None or known[1] != raw:
                self.parts[name] = (self.version, raw, value)
                self.gone.pop(name, None)
        for name in self.parts.keys() - parts.keys():
            del self.parts[name]
            self.gone[name] = self.version
            if len(self.gone) > GONE_KEPT:
                self.gone.pop(next(iter(self.gone)))
        self.trouble = None
        self._tell()

    def fail(self, cause: str) -> None:
        if self.trouble != cause:
            self.trouble = cause
            self._tell()

    def since(self, version: int) -> tuple[Parts, list[str]]:
        changed = {name: value for name, (at, _, value) in self.parts.items() if at > version}
        return changed, [name for name, at in self.gone.items() if at > version] if version >= 0 else []

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Hub:
    """`polls` by the first word of a key; a value says how often: every poll, or every so many seconds at least."""

    def __init__(self, context: Context, polls: dict[str, tuple[Poll, float]]) -> None:
        self._context = context
        self._polls = polls
        self._watches: dict[str, Watch] = {}
        self.epoch = secrets.token_hex(4)
        self.asked = 0

    def check(self, keys: list[str]) -> None:
        if not keys or len(keys) > WATCHES_MAX:
            raise Problem(400, f"watch names {len(keys)} keys, 1 to {WATCHES_MAX} are taken")
        for key in keys:
            if key.partition(":")[0] not in self._polls or len(key) > 300:
                known = ", ".join(sorted(self._polls))
                raise Problem(400, f"watch has {key[:60]!r}: known are {known}, some with :NAME behind")

    async def events(self, keys: list[str], last_id: str | None) -> AsyncIterator[bytes]:
        """Server-sent events for one page, until it goes."""
        watches = [self._enter(key) for key in dict.fromkeys(keys)]
        known = self._versions(last_id, watches)
        told: dict[str, str | None] = {}
        try:
            yield b"retry: 1000\n\n"
            while True:
                waits = [watch.changed for watch in watches]
                for watch in watches:
                    if watch.version > max(0, known[watch.name]):  # at 0 it has asked nobody yet
                        parts, gone = watch.since(known[watch.name])
                        if parts or gone or known[watch.name] < 0:
                            content = {"watch": watch.name, "parts": parts, "gone": gone, "full": known[watch.name] < 0}
                            known[watch.name] = watch.version
                            yield self._event("parts", content, known)
                        known[watch.name] = watch.version
                    if watch.trouble != told.get(watch.name):
                        told[watch.name] = watch.trouble
                        yield self._event("trouble", {"watch": watch.name, "cause": watch.trouble}, known)
                if not await _any(waits, HEARTBEAT_S):
                    yield b": here\n\n"
        finally:
            for watch in watches:
                self._leave(watch)

    async def snapshot(self, key: str) -> Parts:
        """Once, for a request: shared with those who look now."""
        self.check([key])
        watch = self._watches.get(key)
        if watch is not None and watch.parts and watch.trouble is None:
            return {name: value for name, (_, _, value) in watch.parts.items()}
        result = await self._context.remembered(f"snapshot {key}", lambda: self._ask(key), 1.0)
        assert isinstance(result, dict)
        return result

    async def close(self) -> None:
        tasks = [watch.task for watch in self._watches.values() if watch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watches.clear()

    async def _ask(self, key: str) -> Parts:
        self.asked += 1
        word, _, rest = key.partition(":")
        return await self._polls[word][0](self._context, rest)

    def _enter(self, key: str) -> Watch:
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = Watch(key)
            watch.task = asyncio.get_running_loop().create_task(self._run(watch))
        watch.lookers += 1
        return watch

    def _leave(self, watch: Watch) -> None:
        watch.lookers -= 1
        if watch.lookers == 0 and watch.task is not None:
            watch.task.cancel()
            if self._watches.get(watch.name) is watch:
                del self._watches[watch.name]

    async def _run(self, watch: Watch) -> None:
        pause_s = max(self._context.options.poll_s, self._polls[watch.name.partition(":")[0]][1])
        while True:
            began_s = time.monotonic()
            try:
                watch.put(await self._ask(watch.name))
            except (CometError, Problem) as error:
                watch.fail(str(error))
            except Exception:
                logger.exception("fail poll watch=%s", watch.name)
                watch.fail("the console failed here: its log says where")
            if self._context.history.is_due():
                await asyncio.to_thread(self._context.history.save)
            await asyncio.sleep(max(0.05, pause_s - (time.monotonic() - began_s)))

    def _versions(self, last_id: str | None, watches: list[Watch]) -> dict[str, int]:
        known = {watch.name: -1 for watch in watches}
        epoch, _, numbers = (last_id or "").partition(".")
        parts = numbers.split(".")
        if epoch == self.epoch and len(parts) == len(watches) and all(part.isdecimal() for part in parts):
            for watch, number in zip(watches, parts, strict=True):
                if 0 < int(number) <= watch.version:
                    known[watch.name] = int(number)
        return known

    def _event(self, kind: str, content: Any, known: dict[str, int]) -> bytes:
        numbers = ".".join(str(max(0, version)) for version in known.values())
        head = f"event: {kind}\nid: {self.epoch}.{numbers}\n".encode()
        return head + b"data: " + msgspec.json.encode(content) + b"\n\n"


async def _any(events: list[asyncio.Event], timeout_s: float) -> bool:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*waits, return_exceptions=True)
