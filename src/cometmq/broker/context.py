"""What the handlers of clients, offsets, locks, topics and groups use of the broker, and helpers they share.

`Broker` has more than `Parts`; whoever wants to call one of these handlers needs no more than this.
"""

from typing import Protocol, TypeVar

from cometmq.broker.config import BrokerConfig
from cometmq.broker.consume.locks import QueueLocks
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.offsets import Offsets
from cometmq.broker.tables.property_filters import PropertyFilters
from cometmq.broker.tables.sessions import Consumers, Producers
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock
from cometmq.errors import RequestError, WireError
from cometmq.store.disk import File
from cometmq.wire.bodies import Body
from cometmq.wire.codes import Response
from cometmq.wire.command import Command


class QueueStore(Protocol):
    """Of the store."""

    def queue_bounds(self, topic: str, queue_id: int, /) -> tuple[int, int]:
        """The first offset and the one behind the last; 0 and 0 for a queue that is not there."""

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, loaded: set[int] | None = None, /) -> int: ...

    def load_ranges(self, ranges: list[tuple[File, int, int]], /) -> None:
        """See cold_pages.py."""

    def is_in_memory(self, topic: str, queue_id: int, offset: int, /) -> bool:
        """Whether the message is there and can be read without waiting for the disk."""

    def delete_topic(self, topic: str, /) -> None: ...


class Figures(Protocol):
    """Of the counters: what is deleted is not counted on."""

    def drop_topic(self, topic: str, /) -> None: ...

    def drop_group(self, group: str, /) -> None: ...


class Parts(Protocol):
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def store(self) -> QueueStore: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def offsets(self) -> Offsets: ...
    @property
    def consumers(self) -> Consumers: ...
    @property
    def producers(self) -> Producers: ...
    @property
    def property_filters(self) -> PropertyFilters: ...
    @property
    def queue_locks(self) -> QueueLocks: ...
    @property
    def stats(self) -> Figures: ...
    @property
    def address(self) -> str:
        """`ip:port`, as clients know it."""

    def uptime_ms(self) -> int:
        """Monotonic time."""

    async def settled(self) -> None:
        """Return when changes of topics, groups and offsets made so far are on disk and name servers were told of them.

        Raises StoreError if they cannot be saved.
        """


B = TypeVar("B", bound=Body)


def body_of(kind: type[B], request: Command) -> B:
    """The body of a request; a bad one is refused, the connection stays."""
    if not request.body:
        raise RequestError(Response.SYSTEM_ERROR, f"request {request.code} has no body, {kind.__name__} is needed")
    try:
        return kind.decode_request(request.body)
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, f"request {request.code} has a bad body: {error}") from None
