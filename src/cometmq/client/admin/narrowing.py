"""Giving a topic fewer queues, which hides what lies in the others.

    plan      what lies in each queue that would be hidden, and which groups have not read it     changes nothing
    narrow    1. nobody writes to these queues any more      write queues := wanted
              2. groups read them to their ends              as long as `drain_s`
              3. nobody reads them any more                  read queues := wanted, only if 2 came to its end

What was read stays in the hidden queues until it expires; the topic made wide again shows it again. A group that is
not known at a broker cannot be waited for.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cometmq.client.admin.calls import each
from cometmq.client.admin.offsets import OffsetAdmin
from cometmq.client.admin.results import BrokerMember
from cometmq.errors import ConfigError
from cometmq.wire.bodies import MessageQueue, TopicConfig

LOOK_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class HiddenQueue:
    """A queue that a narrower topic would not show; `unread` is by group."""

    queue: MessageQueue
    messages: int
    unread: Mapping[str, int] = field(default_factory=dict)


class NarrowingAdmin(OffsetAdmin):
    async def plan_narrowing(
        self, topic: str, *, queues: int, cluster: str | None = None, broker: str | None = None
    ) -> list[HiddenQueue]:
        """The queues that `narrow_topic` would hide, with what is in them. NoRoute, ConfigError."""
        _check(queues)
        name = self.wrap(topic)
        brokers = {master.name for master in await self._chosen(name, cluster, broker)}
        stats = {
            queue: bounds
            for queue, bounds in (await self.topic_stats(topic)).items()
            if queue.queue_id >= queues and queue.broker_name in brokers
        }
        unread: dict[MessageQueue, dict[str, int]] = {queue: {} for queue in stats}
        for group in await self.topic_groups(topic):
            for queue, lag in (await self.group_lag(group, topic)).items():
                if queue in unread and lag.behind > 0:
                    unread[queue][group] = min(lag.behind, stats[queue].count)
        return [HiddenQueue(queue, bounds.count, unread[queue]) for queue, bounds in stats.items()]

    async def narrow_topic(
        self,
        topic: str,
        *,
        queues: int,
        drain_s: float = 60.0,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[HiddenQueue]:
        """Give a topic fewer queues. Returns what some group has not read after `drain_s`: then nobody writes to these
        queues, they can still be read, and the same call goes on from there. Empty: it is done."""
        _check(queues)
        name = self.wrap(topic)
        masters = await self._chosen(name, cluster, broker)
        await each(masters, lambda master: self._reduce(master, name, queues, reads_too=False))
        waiting_until_s = asyncio.get_running_loop().time() + drain_s
        while left := [one for one in await self.plan_narrowing(topic, queues=queues, cluster=cluster, broker=broker)
                       if one.unread]:  # fmt: skip
            if asyncio.get_running_loop().time() >= waiting_until_s:
                return left
            await asyncio.sleep(LOOK_AGAIN_S)
        await each(masters, lambda master: self._reduce(master, name, queues, reads_too=True))
        if await self._order_of(name) is not None:
            await self._fix_order(name, [queues] * len(masters), masters)
        return []

    async def _reduce(self, master: BrokerMember, name: str, queues: int, *, reads_too: bool) -> None:
        config: TopicConfig = await self._get_topic(master, name)
        config.attributes = {}
        config.write_queue_nums = min(config.write_queue_nums, queues)
        if reads_too:
            config.read_queue_nums = min(config.read_queue_nums, queues)
        await self._put_topic(master, config)


def _check(queues: int) -> None:
    if queues < 1:
        raise ConfigError(f"queues is {queues}: a topic needs at least one; delete_topic removes it")
