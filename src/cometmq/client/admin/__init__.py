"""Administration of a cluster, CometMQ's or RocketMQ's: topics, groups, offsets, messages, brokers, settings.

    async with client.admin() as admin:
        await admin.create_topic("orders", queues=8)
        lag = await admin.group_lag("billing-cg")
        await admin.reset_offsets("billing-cg", "orders", to="earliest")

By subject: `topics`, `groups`, `offsets`, `messages`, `dead_letters`, `browsing`, `waiting`, `cluster`, `users`,
`access`; what they answer is in `results`. All are methods of one object, because an operator's question seldom stops
at one subject. Nothing here runs between two calls.
"""

from types import TracebackType
from typing import Self

from cometmq.client.admin.access import AccessAdmin
from cometmq.client.admin.browsing import Page, StoredCopy
from cometmq.client.admin.dead_letters import DeadLetterAdmin
from cometmq.client.admin.messages import origin_topic
from cometmq.client.admin.narrowing import HiddenQueue, NarrowingAdmin
from cometmq.client.admin.offsets import Place
from cometmq.client.admin.results import (
    Access,
    AccessChange,
    AccessEntry,
    BrokerMember,
    BrokerState,
    BrokerStats,
    Connection,
    ConsumerState,
    DirectResult,
    Group,
    GroupConnections,
    Lag,
    Move,
    ProgressSpan,
    QueueStats,
    Resent,
    StatsWindow,
    Subscription,
    Topic,
    TopicOnBroker,
    User,
)
from cometmq.client.admin.trace_records import TraceRecord
from cometmq.client.admin.waiting import HalfMessage, Waiting, WaitingAdmin, WaitingMessages
from cometmq.client.cluster.instance import Instance
from cometmq.client.options import ClientOptions


class Admin(NarrowingAdmin, DeadLetterAdmin, WaitingAdmin, AccessAdmin):
    """Made by `Client.admin()`; on its own, `Admin(namesrv="host:9876")` has a private client. `timeout_s` bounds every
    single request."""

    def __init__(
        self, instance: Instance | None = None, timeout_s: float = 5.0, *, namesrv: str | None = None
    ) -> None:
        self._owns_instance = instance is None
        super().__init__(instance if instance is not None else Instance(ClientOptions(namesrv)), timeout_s)
        self._producer = None

    @property
    def is_running(self) -> bool:
        return self.instance.is_running

    async def start(self) -> None:
        if not self._owns_instance:
            self.instance.check_running()
        await self.instance.start()

    async def stop(self) -> None:
        if self._producer is not None and self._producer.is_running:
            await self._producer.stop()
        self._producer = None
        if self._owns_instance:
            await self.instance.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


__all__ = [
    "Access",
    "AccessChange",
    "AccessEntry",
    "Admin",
    "BrokerMember",
    "BrokerState",
    "BrokerStats",
    "Connection",
    "ConsumerState",
    "DirectResult",
    "Group",
    "GroupConnections",
    "HalfMessage",
    "HiddenQueue",
    "Lag",
    "Move",
    "Page",
    "Place",
    "ProgressSpan",
    "QueueStats",
    "Resent",
    "StatsWindow",
    "StoredCopy",
    "Subscription",
    "Topic",
    "TopicOnBroker",
    "TraceRecord",
    "User",
    "Waiting",
    "WaitingMessages",
    "origin_topic",
]
