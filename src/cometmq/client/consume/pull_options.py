"""What a pull consumer is told, and what it gives: options, places to seek, batches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Generic, TypedDict, TypeVar

from cometmq.client.consume.allocation import Average, Strategy
from cometmq.client.messages import Message
from cometmq.client.options import BAD_RECORDS, MIB, StartFrom, need_choice
from cometmq.errors import ConfigError
from cometmq.wire.bodies import MessageQueue

T = TypeVar("T")


class Edge(Enum):
    BEGIN = "the first message that is there"
    END = "behind the last"


@dataclass(frozen=True, slots=True)
class PullOptions:
    """start                      where a queue begins of which no offset is stored
    auto_commit, commit_interval  store what was handed out, how often
    prefetch, prefetch_bytes      most of a queue that is held here
    pull_batch, poll_hold         messages per pull; how long a broker holds one that finds nothing
    bad_records, bad_record_tries
                                  a message that cannot be read is tried so often, then "skip"ped or "block"ing
    allocation, rebalance_interval  of `subscribe`: how members share the queues, how often that is looked at
    """

    start: StartFrom | datetime = StartFrom.LAST
    auto_commit: bool = True
    commit_interval: float = 5.0
    prefetch: int = 1000
    prefetch_bytes: int = 100 * MIB
    pull_batch: int = 32
    poll_hold: float = 15.0
    bad_records: str = "skip"
    bad_record_tries: int = 5
    allocation: Strategy = field(default_factory=Average)
    rebalance_interval: float = 20.0

    def __post_init__(self) -> None:
        for name in ("commit_interval", "prefetch", "prefetch_bytes", "poll_hold", "rebalance_interval"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be more than 0")
        need_choice("bad_records", self.bad_records, BAD_RECORDS)
        if not 1 <= self.bad_record_tries <= 1_000_000:
            raise ConfigError(f"bad_record_tries is {self.bad_record_tries}, allowed are 1 to 1000000")
        if not 1 <= self.pull_batch <= 1024:
            raise ConfigError(f"pull_batch is {self.pull_batch}, allowed are 1 to 1024")


class PullKeywords(TypedDict, total=False):
    """`PullOptions` as keyword arguments; compared by a test."""

    start: StartFrom | datetime
    auto_commit: bool
    commit_interval: float
    prefetch: int
    prefetch_bytes: int
    pull_batch: int
    poll_hold: float
    bad_records: str
    bad_record_tries: int
    allocation: Strategy
    rebalance_interval: float


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """What one poll gave. `positions` are what to commit when all of it is done: the next offset of each queue."""

    messages: tuple[Message[T], ...] = ()
    positions: Mapping[MessageQueue, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message[T]]:
        return iter(self.messages)
