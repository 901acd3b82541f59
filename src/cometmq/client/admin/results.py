"""What the administration answers: frozen values, ready for tables and JSON.

Names of topics and groups are as users say them, without a namespace. Times are milliseconds since 1970, UTC; 0 means
never.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cometmq.wire.bodies import MessageQueue


@dataclass(frozen=True, slots=True)
class BrokerMember:
    """One broker process as the name server knows it. `id` 0 is the master of its name."""

    cluster: str
    name: str
    id: int
    address: str

    @property
    def role(self) -> str:
        return "master" if self.id == 0 else "slave"


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A member and what it says about itself; `error` says why it says nothing."""

    member: BrokerMember
    version: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None

    @property
    def is_up(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True)
class TopicOnBroker:
    """How one broker has a topic. `permissions`: any of r, w."""

    broker: str
    read_queues: int
    write_queues: int
    permissions: str
    ordered: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    brokers: tuple[TopicOnBroker, ...]
    order_config: str | None = None

    @property
    def kind(self) -> str:
        """NORMAL, FIFO, DELAY, TRANSACTION, MIXED or UNSPECIFIED: what messages it is for, where brokers know."""
        kinds = {on.attributes.get("message.type", "UNSPECIFIED") for on in self.brokers}
        return kinds.pop() if len(kinds) == 1 else "UNSPECIFIED"


@dataclass(frozen=True, slots=True)
class QueueStats:
    """`begin` is the first offset that is there, `end` the one after the last."""

    begin: int
    end: int
    updated_ms: int

    @property
    def count(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Group:
    """How brokers have a consumer group; `brokers` are those that know it."""

    name: str
    brokers: tuple[str, ...]
    enabled: bool
    broadcast_allowed: bool
    ordered: bool
    retries_max: int
    retry_queues: int
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: str
    expression: str
    kind: str


@dataclass(frozen=True, slots=True)
class Connection:
    """A client that is connected now. `version` is the number of its RocketMQ protocol."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class GroupConnections:
    """Members of a consumer group that are online, and what they subscribe to."""

    group: str
    consume_type: str
    message_model: str
    start_from: str
    connections: tuple[Connection, ...]
    subscriptions: tuple[Subscription, ...]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is in one queue. `owner` is the client that has the queue now, if that was asked and known."""

    committed: int
    end: int
    consumed_ms: int = 0
    owner: str | None = None
    pulled: int = -1

    @property
    def behind(self) -> int:
        return max(0, self.end - max(0, self.committed))

    @property
    def consumed_at(self) -> datetime | None:
        """When the last message that was consumed had been stored."""
        return datetime.fromtimestamp(self.consumed_ms / 1000, UTC) if self.consumed_ms > 0 else None


@dataclass(frozen=True, slots=True)
class Move:
    """A queue's committed offset before and after; `before` -1: there was none."""

    queue: MessageQueue
    before: int
    after: int

    @property
    def skipped(self) -> int:
        """Messages that will not be delivered (negative: that will be delivered again)."""
        return self.after - max(0, self.before)


@dataclass(frozen=True, slots=True)
class Resent:
    """What came of sending one message again: the id of the new one, or why there is none."""

    id: str
    topic: str
    new_id: str | None = None
    error: str | None = None
    skipped: bool = False
    """It was sent before."""


@dataclass(frozen=True, slots=True)
class DirectResult:
    """How a consumer handled a message that it was handed directly."""

    client_id: str
    result: str
    took_ms: int
    remark: str = ""

    @property
    def is_success(self) -> bool:
        return self.result in ("CR_SUCCESS", "CR_COMMIT")


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """What a consumer says about itself: RocketMQ's running info."""

    client_id: str
    properties: Mapping[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: Mapping[MessageQueue, Mapping[str, int]]
    rates: Mapping[str, Mapping[str, float]]
    stacks: str | None = None


@dataclass(frozen=True, slots=True)
class StatsWindow:
    sum: int
    per_second: float
    average: float


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """One counter of a broker, over the last minute, hour and day."""

    minute: StatsWindow
    hour: StatsWindow
    day: StatsWindow


@dataclass(frozen=True, slots=True)
class ProgressSpan:
    """Times of the oldest and newest message of a queue, and of the last that the group consumed."""

    queue: MessageQueue
    oldest_ms: int
    newest_ms: int
    consumed_ms: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class User:
    """Who may sign requests. `differs` names the brokers that know the user otherwise than the first, or not at all."""

    name: str
    is_super: bool
    is_enabled: bool
    brokers: tuple[str, ...]
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """One entry of a user's policies: `Topic:orders` Pub, Sub. `decision` is Allow or Deny; no `sources`: from
    everywhere; `policy` is Custom, or Default for what is asked when no entry of Custom matches."""

    resource: str
    actions: tuple[str, ...]
    decision: str = "Allow"
    sources: tuple[str, ...] = ()
    policy: str = "Custom"


@dataclass(frozen=True, slots=True)
class Access:
    """All entries of one user. `differs` names the brokers that have other entries than the first."""

    user: str
    entries: tuple[AccessEntry, ...]
    brokers: tuple[str, ...]
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessChange:
    """What a grant or a revocation does to one entry of a user on one broker; None: there is none."""

    broker: str
    before: AccessEntry | None
    after: AccessEntry | None
