"""What the front needs of whatever stores the messages: this broker, or a cluster elsewhere.

Inside.ask(request, then)     any remoting request; a broker serves it, a proxy sends it on
Backend                       what is where: topics, groups, routes. `Wanted`: that has to be asked for first
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from cometmq.net.inside import Commands, Inside
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.command import Command


@dataclass(frozen=True, slots=True)
class BrokerQueues:
    """How many queues of a topic a broker has; `endpoint` is where clients reach its front."""

    broker: str
    perm: int
    read: int
    write: int
    endpoint: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    message_type: str
    brokers: tuple[BrokerQueues, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of the front; see docs/grpc.md."""

    body_bytes_max: int = 4 << 20
    delay_ms_max: int = 86_400_000
    check_message_types: bool = True
    invisible_ms_min: int = 10_000
    invisible_ms_max: int = 12 * 3_600_000
    poll_ms_min: int = 5_000
    poll_ms_max: int = 20_000
    producer_attempts_max: int = 3


class Wanted(Exception):
    """`load` brings what was asked for; then the call begins anew. `load` raises CometError if nobody knows it."""

    def __init__(self, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__("not known yet")
        self.load = load


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a call says about its sender."""

    authorization: str = field(default="", repr=False)
    date: str = ""
    source: str = ""


class Backend(Protocol):
    def limits(self) -> Limits: ...

    def now_ms(self) -> int: ...

    def enter(self, peer: tuple[str, int], peer_text: str, source: str, commands: Commands | None) -> Inside:
        """The inner connection of a client, or of a socket."""
        ...

    def check(self, request: Command, credentials: Credentials) -> None:
        """Whether the sender may do this; writes into the request who it is. Raises Refusal."""

    def topic(self, name: str) -> Topic | None:
        """Where sends go and receives come from. May raise Wanted."""
        ...

    def route(self, name: str) -> Topic | None:
        """Where clients are told to go. May raise Wanted."""
        ...

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """Made on demand, if that is allowed. May raise Wanted."""
        ...

    def broker_of(self, asked: str, topic: Topic) -> str:
        """Which broker serves a receive that names one, or none. Raises Refused."""
        ...
