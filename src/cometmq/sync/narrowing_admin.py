"""The sync twin of `cometmq.client.admin.narrowing.NarrowingAdmin`. Written by scripts/sync_twin.py."""

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.narrowing import HiddenQueue
from cometmq.client.loop_thread import LoopThread


class NarrowingAdmin:
    """Part of the administration: `NarrowingAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def plan_narrowing(
        self, topic: str, *, queues: int, cluster: str | None = None, broker: str | None = None
    ) -> list[HiddenQueue]:
        """The queues that `narrow_topic` would hide, with what is in them. NoRoute, ConfigError."""
        return self._thread.run(self._inner.plan_narrowing(topic, queues=queues, cluster=cluster, broker=broker))

    def narrow_topic(
        self, topic: str, *, queues: int, drain_s: float = 60.0, cluster: str | None = None, broker: str | None = None
    ) -> list[HiddenQueue]:
        """Give a topic fewer queues. Returns what some group has not read after `drain_s`: then nobody writes to these
        queues, they can still be read, and the same call goes on from there. Empty: it is done.
        """
        return self._thread.run(
            self._inner.narrow_topic(topic, queues=queues, drain_s=drain_s, cluster=cluster, broker=broker)
        )
