"""Where messages of one topic can go: its publish queues, each with the part of a request that never changes.

A target is made from a route and thrown away with it.
"""

from collections.abc import Sequence
from typing import Any

from cometmq.client.cluster.namespaces import strip
from cometmq.client.cluster.routes import Route
from cometmq.client.messages import Message
from cometmq.client.produce.broker_faults import Faults
from cometmq.client.produce.outgoing import Outgoing
from cometmq.client.produce.selectors import RoundRobin, Selector, index_of_key
from cometmq.errors import ConfigError, NoRoute
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.headers import SendMessage, SendTemplate
from cometmq.wire.record import properties as wire_properties


class Lane:
    """One queue to write to. `queue` is as users know it; `broker` is the one that has it."""

    __slots__ = ("broker", "header", "queue", "template")

    def __init__(self, queue: MessageQueue, broker: str, header: SendMessage) -> None:
        self.queue = queue
        self.broker = broker
        self.header = header
        self.template = SendTemplate(header)

    def ext(self, outgoing: Outgoing) -> dict[str, str]:
        """The fields of a request that sends this message here."""
        if outgoing.code == Request.SEND_MESSAGE_V2 and not outgoing.reconsume_times:
            return self.template.fill(outgoing.sys_flag, outgoing.born_ms, outgoing.flag, outgoing.properties)
        common = self.header
        header = SendMessage(
            common.producer_group,
            common.topic,
            common.default_topic,
            common.default_topic_queue_nums,
            common.queue_id,
            outgoing.sys_flag,
            outgoing.born_ms,
            outgoing.flag,
            outgoing.properties,
            outgoing.reconsume_times,
            common.unit_mode,
            outgoing.max_reconsume_times,
            outgoing.is_batch,
            common.broker_name,
        )
        return header.encode_v2()


class Target:
    """All lanes of a topic, for one producer group."""

    def __init__(
        self,
        route: Route,
        group: str,
        namespace: str | None,
        template_topic: str,
        template_queues: int,
        unit_mode: bool,
        robin: RoundRobin,
    ) -> None:
        if not route.publish:
            raise NoRoute(f"topic {route.topic} has no queue that can be written to: no writable broker has a master")
        self.route = route
        self.robin = robin
        self.shown_topic = strip(namespace, route.topic)
        self.lanes: list[Lane] = []
        for queue in route.publish:
            header = SendMessage(
                group,
                route.topic,
                template_topic,
                template_queues,
                queue.queue_id,
                0,
                0,
                0,
                unit_mode=unit_mode,
                broker_name=queue.broker_name,
            )
            shown = MessageQueue(queue.broker_name, queue.queue_id, self.shown_topic)
            self.lanes.append(Lane(shown, route.host(queue), header))

    def next(self, last_broker: str | None = None) -> Lane:
        """The next in turn, if possible not of the broker that was used last."""
        lanes = self.lanes
        if last_broker is not None:
            index = self.robin.next_where(len(lanes), lambda at: lanes[at].broker != last_broker)
            if index is not None:
                return lanes[index]
        return lanes[self.robin.next_index(len(lanes))]

    def next_healthy(self, faults: Faults, now_s: float, last_broker: str | None) -> Lane:
        """The next in turn that is available, else reachable, else any."""
        lanes = self.lanes
        if last_broker is not None:
            self.robin.reseed()
        for is_good in (
            lambda broker: faults.is_available(broker, now_s),
            faults.is_reachable,
        ):
            index = self.robin.next_where(
                len(lanes), lambda at: lanes[at].broker != last_broker and is_good(lanes[at].broker)  # noqa: B023
            )
            if index is not None:
                return lanes[index]
        return self.next(last_broker)

    def by_key(self, key: str | int) -> Lane:
        return self.lanes[index_of_key(key, len(self.lanes))]

    def by_queue(self, queue: MessageQueue) -> Lane:
        for lane in self.lanes:
            if lane.queue == queue:
                return lane
        raise ConfigError(f"queue {queue.broker_name}-{queue.queue_id} is not one of topic {self.shown_topic}")

    def by_selector(self, selector: Selector, outgoing: Outgoing) -> Lane:
        """One attempt at choosing; whatever the selector raises fails the call."""
        properties = wire_properties.decode_text(outgoing.properties)
        message: Message[Any] = Message(
            self.shown_topic, outgoing.body, outgoing.body, properties, outgoing.id, born_ms=outgoing.born_ms
        )
        queues: Sequence[MessageQueue] = tuple(lane.queue for lane in self.lanes)
        chosen: object = selector(queues, message)
        for lane in self.lanes:
            if lane.queue == chosen:
                return lane
        raise ConfigError(f"the selector chose {chosen!r}, which is none of the {len(queues)} queues it was given")
