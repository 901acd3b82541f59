"""The sync twin of `cometmq.client.admin.topics.TopicAdmin`. Written by scripts/sync_twin.py."""

from collections.abc import Mapping

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.results import QueueStats, Topic, TopicOnBroker
from cometmq.client.loop_thread import LoopThread
from cometmq.wire.bodies import MessageQueue, TopicRoute


class TopicAdmin:
    """Part of the administration: `TopicAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        permissions: str | None = None,
        kind: str | None = None,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> Topic:
        """Make a topic where it is missing, with permissions "rw" unless given.

        Where it is there already it stays as it is, except for what is given here, and it never gets fewer queues than
        it has: `narrow_topic` does that.

        `ordered` also fixes the list of its queues in name servers; those with orderMessageEnable=true then tell it to
        producers, whose keys stay in their queues while a broker is away. `kind` is NORMAL, FIFO, DELAY, TRANSACTION or
        MIXED, for brokers that check it.
        """
        return self._thread.run(
            self._inner.create_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                permissions=permissions,
                kind=kind,
                ordered=ordered,
                attributes=attributes,
                cluster=cluster,
                broker=broker,
            )
        )

    def alter_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        permissions: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> Topic:
        """Change what is given, on every broker that has the topic. An attribute of None is removed.

        ConfigError for fewer queues than there are, which would hide messages: `narrow_topic` does that.
        """
        return self._thread.run(
            self._inner.alter_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                permissions=permissions,
                attributes=attributes,
                cluster=cluster,
                broker=broker,
            )
        )

    def delete_topic(self, topic: str, *, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """From brokers, then from name servers; its messages go with it. Gives the names of the brokers. NoRoute."""
        return self._thread.run(self._inner.delete_topic(topic, cluster=cluster, broker=broker))

    def describe_topic(self, topic: str) -> Topic:
        """How every broker has it. NoRoute if nobody has."""
        return self._thread.run(self._inner.describe_topic(topic))

    def topics(self, *, cluster: str | None = None, system: bool = False) -> list[str]:
        """Names of topics; with `system` also those that servers made: their own, retries, dead letters."""
        return self._thread.run(self._inner.topics(cluster=cluster, system=system))

    def topic_configs(self, broker: str) -> dict[str, TopicOnBroker]:
        """Every topic of one broker."""
        return self._thread.run(self._inner.topic_configs(broker))

    def topic_route(self, topic: str) -> TopicRoute:
        """What the name server tells clients. NoRoute."""
        return self._thread.run(self._inner.topic_route(topic))

    def topic_stats(self, topic: str) -> dict[MessageQueue, QueueStats]:
        """Bounds and last change of every queue. NoRoute."""
        return self._thread.run(self._inner.topic_stats(topic))

    def topic_groups(self, topic: str) -> list[str]:
        """Groups that consume it, or did."""
        return self._thread.run(self._inner.topic_groups(topic))

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue as users name it."""
        return self._thread.call(lambda: self._inner.shown(queue))
