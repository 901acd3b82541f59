"""Requests of one connection that were accepted and not answered at once.

Each is remembered with its family and its size until it is answered, which makes an answer happen at most once and a
closed connection give back all it held. A request that a task works on gives back only when the task ends: it goes on
using memory after its peer has gone.
"""

from typing import Final

from cometmq.net.dispatch import Family
from cometmq.net.endpoint import Endpoint
from cometmq.wire.command import Command

# What a waiting request costs besides its body and fields: command, dictionary, table entries.
REQUEST_BYTES: Final = 512


class Held:
    __slots__ = ("family", "size_bytes", "running")

    def __init__(self, family: Family, size_bytes: int, running: bool) -> None:
        self.family: Family = family
        self.size_bytes: int = size_bytes
        self.running: bool = running


class Waiting:
    __slots__ = ("size_bytes", "_endpoint", "_held")

    def __init__(self, endpoint: Endpoint) -> None:
        self.size_bytes: int = 0
        self._endpoint: Endpoint = endpoint
        self._held: dict[Command, Held] = {}

    @property
    def count(self) -> int:
        return len(self._held)

    def add(self, request: Command, family: Family, running: bool) -> None:
        size_bytes = REQUEST_BYTES + len(request.body)
        for value in request.ext.values():
            size_bytes += len(value)
        family.waiting += 1
        self._held[request] = Held(family, size_bytes, running)
        self.size_bytes += size_bytes
        self._endpoint.hold(size_bytes)

    def remove(self, request: Command) -> bool:
        """False if the request does not wait, or no longer."""
        held = self._held.pop(request, None)
        if held is None:
            return False
        held.family.waiting -= 1
        self.size_bytes -= held.size_bytes
        self._endpoint.release(held.size_bytes)
        return True

    def remove_parked(self) -> None:
        """The peer has gone: nobody will answer what is only kept."""
        for request in [request for request, held in self._held.items() if not held.running]:
            self.remove(request)
