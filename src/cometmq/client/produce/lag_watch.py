"""How far a group is behind in each queue of a topic, asked of the brokers again and again: for `LeastLag`."""

import asyncio
import logging
from typing import Final

from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import strip
from cometmq.client.produce.selectors import LeastLag
from cometmq.errors import CometError
from cometmq.wire.bodies import ConsumeStats, MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.headers import GetConsumeStats

logger = logging.getLogger(__name__)

ASK_LIMIT_S: Final = 6.0


async def group_lag(instance: Instance, group: str, topic: str) -> dict[MessageQueue, int]:
    """Messages behind by queue, from every broker of the topic that answers. Names are those on the wire."""
    route = await instance.route(topic)
    names = sorted({route.host(queue) for queue in route.publish})
    tables = await asyncio.gather(*[_ask(instance, name, group, topic) for name in names])
    lags: dict[MessageQueue, int] = {}
    for stats in tables:
        for queue, progress in stats.offset_table.items():
            shown = MessageQueue(queue.broker_name, queue.queue_id, strip(instance.namespace, queue.topic))
            lags[shown] = max(0, progress.broker_offset - progress.consumer_offset)
    return lags


async def _ask(instance: Instance, broker: str, group: str, topic: str) -> ConsumeStats:
    header = GetConsumeStats(consumer_group=group, topic=topic)
    command = instance.request(Request.GET_CONSUME_STATS, header.encode())
    try:
        response = await instance.ask(broker, command, ASK_LIMIT_S)
    except CometError as error:
        logger.warning("fail lag of group=%s broker=%s cause=%s", group, broker, error)
        return ConsumeStats()
    return ConsumeStats.decode(response.body)


class LagWatch:
    """Keeps a `LeastLag` up to date until it is stopped."""

    def __init__(self, instance: Instance, group: str, topic: str, slack: int) -> None:
        self.selector = LeastLag(slack)
        self._instance = instance
        self._group, self._topic = group, topic
        self._timer = f"lag of {group} in {topic} for {id(self)}"

    async def start(self, refresh_s: float) -> None:
        await self._update()
        self._instance.every(self._timer, refresh_s, lambda: self._instance.spawn(self._update()))

    def stop(self) -> None:
        self._instance.cancel_timer(self._timer)

    async def _update(self) -> None:
        self.selector.update(await group_lag(self._instance, self._group, self._topic))
