"""Where the document of a set lies: a store with compare-and-swap, a watch, and keys that vanish with their owner.

    etcd://host:2379,host:2379[/prefix][?user=u&password-file=f&ca=f&cert=f&key=f]
    memory:NAME        in this process, for tests

`SetStore` is what failover needs of one, and tests/failover/test_stores.py is the contract that each has to pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cometmq.clock import Clock
from cometmq.errors import CometError, ConfigError


class StoreUnknown(CometError):
    """The store gave no answer: what was asked for may have been done, or be done yet."""


# A key, its value or None if it is gone, and the version of this change.
OnEntry = Callable[[str, bytes | None, int], object]
# Whether what the watch says is the present: False from the moment it may have missed something.
OnLive = Callable[[bool], object]


class SetStore(Protocol):
    """All on one event loop. StoreUnknown from any call but `watch`."""

    address: str

    async def get(self, key: str) -> tuple[bytes | None, int]:
        """The newest value and its version; None and 0 if there is none."""

    async def list(self, prefix: str) -> dict[str, tuple[bytes, int]]: ...

    async def swap(self, key: str, version: int, value: bytes | None) -> bool:
        """Put it if nobody changed it since `version`; 0: if there is none. None removes it. False: somebody did."""

    def watch(self, prefix: str, on_entry: OnEntry, on_live: OnLive) -> Callable[[], None]:
        """Tell of all that is there, then of each change, in order; a newer value may hide older ones. Gives what ends
        it."""

    async def announce(self, key: str, value: bytes, session_ms: int) -> None:
        """Put it, and keep it as long as this process lives and reaches the store; again: another value."""

    def seen_text(self) -> str:
        """What is seen of each node: `host:2379 ok; host:2379 refused since 1712...`, in ms since 1970."""

    async def stop(self) -> None:
        """What was announced vanishes."""


def open_store(address: str, clock: Clock) -> SetStore:
    """ConfigError: no such store."""
    from cometmq.failover.stores.etcd import EtcdStore
    from cometmq.failover.stores.memory import MemoryStore

    kind, _, rest = address.partition(":")
    if kind == "etcd":
        return EtcdStore(address, clock)
    if kind == "memory":
        return MemoryStore(rest)
    raise ConfigError(f"controllerStore={address[:80]} is no store: etcd://host:2379,host:2379 is one")
