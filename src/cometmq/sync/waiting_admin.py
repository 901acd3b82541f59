"""The sync twin of `cometmq.client.admin.waiting.WaitingAdmin`. Written by scripts/sync_twin.py."""

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.waiting import LOOKED_MAX, HalfMessage, Waiting, WaitingMessages
from cometmq.client.loop_thread import LoopThread


class WaitingAdmin:
    """Part of the administration: `WaitingAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def waiting_messages(self, *, looked_max: int = LOOKED_MAX) -> WaitingMessages:
        """Timers and messages with a delay level that are not due, earliest first."""
        return self._thread.run(self._inner.waiting_messages(looked_max=looked_max))

    def recall_timer(self, waiting: Waiting) -> str:
        """Take a timer back before it is due; gives its id. BrokerError if the broker allows no recalls."""
        return self._thread.run(self._inner.recall_timer(waiting))

    def open_halves(self, *, looked_max: int = LOOKED_MAX) -> list[HalfMessage]:
        """Halves that are neither committed nor rolled back, oldest first. A half that was copied counts once."""
        return self._thread.run(self._inner.open_halves(looked_max=looked_max))

    def end_half(self, half: HalfMessage, *, commit: bool) -> None:
        """Commit a half message or roll it back, in the place of its producer. BrokerError if it has ended."""
        self._thread.run(self._inner.end_half(half, commit=commit))
