"""A store in this process: what tests of one process use, and the measure of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from cometmq.failover.stores import OnEntry, OnLive, StoreUnknown


class _Shared:
    """All stores of one name."""

    def __init__(self) -> None:
        self.version = 0
        self.entries: dict[str, tuple[bytes, int]] = {}
        self.watches: list[tuple[str, MemoryStore, OnEntry, OnLive]] = []

    def put(self, key: str, value: bytes | None) -> None:
        self.version += 1
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = (value, self.version)
        for prefix, store, on_entry, _ in list(self.watches):
            if key.startswith(prefix) and not store.is_down:
                asyncio.get_running_loop().call_soon(on_entry, key, value, self.version)


_NAMED: dict[str, _Shared] = {}


class MemoryStore:
    """`cut_off` plays a store that nobody reaches."""

    def __init__(self, name: str) -> None:
        self.address = f"memory:{name}"
        self.is_down = False
        self._shared = _NAMED.setdefault(name, _Shared())
        self._announced: set[str] = set()

    def _ask(self) -> _Shared:
        if self.is_down:
            raise StoreUnknown(f"{self.address} does not answer")
        return self._shared

    async def get(self, key: str) -> tuple[bytes | None, int]:
        await asyncio.sleep(0)
        return self._ask().entries.get(key, (None, 0))

    async def list(self, prefix: str) -> dict[str, tuple[bytes, int]]:
        await asyncio.sleep(0)
        return {key: entry for key, entry in self._ask().entries.items() if key.startswith(prefix)}

    async def swap(self, key: str, version: int, value: bytes | None) -> bool:
        await asyncio.sleep(0)
        shared = self._ask()
        if shared.entries.get(key, (None, 0))[1] != version:
            return False
        shared.put(key, value)
        return True

    def watch(self, prefix: str, on_entry: OnEntry, on_live: OnLive) -> Callable[[], None]:
        row = (prefix, self, on_entry, on_live)
        self._shared.watches.append(row)
        if not self.is_down:
            self._tell(row)

        def end() -> None:
            with suppress(ValueError):
                self._shared.watches.remove(row)

        return end

    def _tell(self, row: tuple[str, MemoryStore, OnEntry, OnLive]) -> None:
        prefix, _, on_entry, on_live = row
        loop = asyncio.get_running_loop()
        for key, (value, version) in sorted(self._shared.entries.items()):
            if key.startswith(prefix):
                loop.call_soon(on_entry, key, value, version)
        loop.call_soon(on_live, True)

    def cut_off(self, is_down: bool) -> None:
        """Nobody who has this store reaches it, or they do again."""
        self.is_down = is_down
        for row in self._shared.watches:
            if row[1] is self:
                if is_down:
                    row[3](False)
                else:
                    self._tell(row)

    async def announce(self, key: str, value: bytes, session_ms: int) -> None:
        await asyncio.sleep(0)
        self._announced.add(key)
        self._ask().put(key, value)

    def seen_text(self) -> str:
        return f"{self.address} ok"

    async def stop(self) -> None:
        for key in self._announced:
            self._shared.put(key, None)
        self._announced.clear()
        self._shared.watches = [row for row in self._shared.watches if row[1] is not self]
