"""Requests of one connection that were accepted and not answered at once.

Each is remembered with its family and its size until it is answered, which makes an answer happen at most once and a
closed connection give back all it held. A request that a task works on gives back only when the task ends: it goes on
using memory after its peer has gone.
"""

from typing import Final

from cometmq.net.family import Family
from cometmq.wire.command import Command

# What a waiting request costs besides its body and fields: command, dictionary, table entries; and each field.
REQUEST_BYTES: Final = 512
FIELD_BYTES: Final = 64


class Budget:
    """What requests that wait take, of all connections of one server or client together."""

    def __init__(self) -> None:
        self.waiting: int = 0
        self.inflight_bytes: int = 0

    def hold(self, size_bytes: int) -> None:
        """A request waits for its answer from now on."""
        self.waiting += 1
        self.inflight_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """It has its answer, or will get none."""
        self.waiting -= 1
        self.inflight_bytes -= size_bytes


class Held:
    __slots__ = ("family", "size_bytes", "running", "since_s")

    def __init__(self, family: Family, size_bytes: int, running: bool, since_s: float) -> None:
        self.family: Family = family
        self.size_bytes: int = size_bytes
        self.running: bool = running
        self.since_s: float = since_s


class Waiting:
    __slots__ = ("size_bytes", "ended_since_s", "_budget", "_held", "_address", "_counts")

    def __init__(self, budget: Budget, address: str) -> None:
        self.size_bytes: int = 0
        self.ended_since_s: float = 0.0  # since when the request had waited that was removed last
        self._budget: Budget = budget
        self._held: dict[Command, Held] = {}
        self._address: str = address
        self._counts: dict[Family, int] = {}

    @property
    def count(self) -> int:
        return len(self._held)

    def has(self, request: Command) -> bool:
        return request in self._held

    def count_of(self, family: Family) -> int:
        return self._counts.get(family, 0)

    def parked(self) -> list[tuple[Command, Family, int]]:
        """What no task works on, the oldest first: request, family, bytes."""
        return [(request, held.family, held.size_bytes) for request, held in self._held.items() if not held.running]

    def add(self, request: Command, family: Family, running: bool, kept_bytes: int = 0, since_s: float = 0.0) -> None:
        """`kept_bytes` is what its handler keeps of it besides."""
        size_bytes = REQUEST_BYTES + len(request.body) + kept_bytes
        for value in request.ext.values():
            size_bytes += FIELD_BYTES + len(value)
        family.waiting += 1
        family.waiting_of[self._address] = family.waiting_of.get(self._address, 0) + 1
        self._counts[family] = self._counts.get(family, 0) + 1
        self._held[request] = Held(family, size_bytes, running, since_s)
        self.size_bytes += size_bytes
        self._budget.hold(size_bytes)

    def remove(self, request: Command) -> bool:
        """False if the request does not wait, or no longer."""
        held = self._held.pop(request, None)
        if held is None:
            return False
        self.ended_since_s = held.since_s
        family = held.family
        family.waiting -= 1
        left = family.waiting_of[self._address] - 1
        if left:
            family.waiting_of[self._address] = left
        else:
            del family.waiting_of[self._address]
        self._counts[family] -= 1
        self.size_bytes -= held.size_bytes
        self._budget.release(held.size_bytes)
        return True

    def remove_parked(self) -> None:
        """The peer has gone: nobody will answer what is only kept."""
        for request in [request for request, held in self._held.items() if not held.running]:
            self.remove(request)
