"""The sync twin of `cometmq.client.admin.dead_letters.DeadLetterAdmin`. Written by scripts/sync_twin.py."""

from collections.abc import Iterable, Iterator

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.results import Resent
from cometmq.client.loop_thread import LoopThread
from cometmq.client.messages import Message


class DeadLetterAdmin:
    """Part of the administration: `DeadLetterAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def dead_letters(self, group: str) -> Iterator[Message[bytes]]:
        """What a group gave up on, oldest first; nothing if there is nothing."""
        return self._thread.iterate(self._inner.dead_letters(group))

    def replay_dead_letters(
        self,
        group: str,
        *,
        to_origin: bool = False,
        topic: str | None = None,
        rate: float | None = None,
        ids: Iterable[str] | None = None,
    ) -> Iterator[Resent]:
        """Send dead letters again, all or those with the given ids, at most `rate` a second; says what came of each.

        They go to the group alone, by its retry topic; with `to_origin` to the topic that each was sent to, with
        `topic` to that one. ConfigError if the group's retry topic takes nothing.
        """
        return self._thread.iterate(
            self._inner.replay_dead_letters(group, to_origin=to_origin, topic=topic, rate=rate, ids=ids)
        )

    def retry_topics(self, group: str) -> dict[str, str]:
        """Retry topics of a group that are for one topic only, by that topic: those of POP. Other messages go to the
        group's own. ConfigError if brokers take none.
        """
        return self._thread.run(self._inner.retry_topics(group))
