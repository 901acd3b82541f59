"""The client's cache of one queue: messages that were pulled and are not finished.

    offset     40   41   42   43   44   45             cached, in order; 41 and 43 are finished and gone
                ^         ^         ^    ^
             lowest   in handlers       highest        commit offset = lowest cached; when empty, where pulls go on

So one message that is stuck holds the committed offset back, however many after it are finished: that is what makes
delivery at-least-once.

    OWNED     ours: pulled, handled, committed
    LEAVING   given up in an orderly way: nothing new starts, what is in a handler may still be committed
    LOST      not ours any more: nothing may be committed

Ordered consumption takes messages from the low end into its hand, and commits the hand or puts it back.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from cometmq.wire.bodies import MessageQueue, ProcessQueueInfo
from cometmq.wire.record.message import StoredMessage

OWNED: Final = "owned"
LEAVING: Final = "leaving"
LOST: Final = "lost"

MIB: Final = 1 << 20


class Held:
    """A message in the cache. `started_s` is when it was handed to a handler."""

    __slots__ = ("message", "offset", "size_bytes", "started_s")

    def __init__(self, message: StoredMessage) -> None:
        self.message = message
        self.offset = message.queue_offset
        self.size_bytes = len(message.body)
        self.started_s: float | None = None


class ProcessQueue:
    """All times are the monotonic clock's, but for those in `info`."""

    def __init__(self, queue: MessageQueue, now_s: float) -> None:
        self.queue = queue
        self.state = OWNED
        self.count = 0
        self.size_bytes = 0
        self.highest = -1
        self.pulled_to = 0  # what lies between the highest and this did not pass the filter
        self.min_offset = 0
        self.max_offset = 0
        self.last_pull_s = now_s
        self.last_consume_s = now_s
        # Ordered consumption
        self.lock_s: float | None = None
        self.is_scheduled = False  # a run of its messages waits or goes on
        self.is_busy = False  # ... and is in the handler
        self.unlock_tries = 0
        self._held: dict[int, Held] = {}
        self._order: deque[int] = deque()
        self._hand: dict[int, Held] = {}

    @property
    def is_owned(self) -> bool:
        return self.state == OWNED

    @property
    def may_commit(self) -> bool:
        return self.state != LOST

    @property
    def backlog(self) -> int:
        """Messages that the broker has and this cache never saw, as far as the last pull knew."""
        return max(0, self.max_offset - self.highest - 1) if self.highest >= 0 else 0

    @property
    def span(self) -> int:
        """How far the cached offsets reach."""
        lowest = self.lowest
        return self.highest - lowest if lowest is not None else 0

    @property
    def lowest(self) -> int | None:
        """The lowest cached offset; what is in the ordered hand is not counted."""
        order, held = self._order, self._held
        while order and order[0] not in held:
            order.popleft()
        return order[0] if order else None

    @property
    def commit_offset(self) -> int | None:
        """Everything below it is finished. None as long as nothing came."""
        if self.highest < 0:
            return None
        lowest = self.lowest
        return max(self.highest + 1, self.pulled_to) if lowest is None else lowest

    def put(self, messages: Iterable[StoredMessage]) -> list[Held]:
        """Cache what a pull brought, in its order; what is cached already is left out."""
        added: list[Held] = []
        for message in messages:
            if message.queue_offset <= self.highest:
                continue
            one = Held(message)
            self._held[one.offset] = one
            self._order.append(one.offset)
            self.highest = one.offset
            self.size_bytes += one.size_bytes
            added.append(one)
        self.count += len(added)
        return added

    def __contains__(self, one: Held) -> bool:
        return self._held.get(one.offset) is one

    def remove(self, done: Iterable[Held]) -> int | None:
        """Forget finished messages; the new commit offset."""
        for one in done:
            if self._held.pop(one.offset, None) is not None:
                self.count -= 1
                self.size_bytes -= one.size_bytes
        return self.commit_offset

    def clear(self) -> None:
        self._held.clear()
        self._order.clear()
        self._hand.clear()
        self.count = self.size_bytes = 0

    def oldest(self) -> Held | None:
        lowest = self.lowest
        return self._held[lowest] if lowest is not None else None

    # Ordered consumption

    @property
    def in_hand(self) -> int:
        return len(self._hand)

    def take(self, count_max: int) -> list[Held]:
        """The lowest messages, into the hand."""
        taken: list[Held] = []
        while len(taken) < count_max and (lowest := self.lowest) is not None:
            one = self._held.pop(lowest)
            self._order.popleft()
            self._hand[lowest] = one
            taken.append(one)
        return taken

    def commit(self) -> int | None:
        """Finish the hand; the offset after its highest, None if it is empty."""
        if not self._hand:
            return None
        offset = max(self._hand) + 1
        for one in self._hand.values():
            self.count -= 1
            self.size_bytes -= one.size_bytes
        self._hand.clear()
        return offset

    def discard(self, held: Iterable[Held]) -> None:
        """These need no commit: somebody else has them. What is committed later passes them."""
        for one in held:
            if self._hand.pop(one.offset, None) is not None:
                self.count -= 1
                self.size_bytes -= one.size_bytes

    def put_back(self, held: Sequence[Held] | None = None) -> None:
        """Back from the hand into the cache: these, or all."""
        back = list(self._hand.values()) if held is None else held
        for one in sorted(back, key=lambda one: one.offset, reverse=True):
            if self._hand.pop(one.offset, None) is not None:
                self._held[one.offset] = one
                self._order.appendleft(one.offset)

    def info(self, commit_offset: int, now_s: float, now_ms: int) -> ProcessQueueInfo:
        """For the tools that ask a consumer how it is doing."""
        offsets = sorted([*self._held, *self._hand])
        hand = sorted(self._hand)

        def wall_ms(moment_s: float | None) -> int:
            return now_ms - round((now_s - moment_s) * 1000) if moment_s is not None else 0

        return ProcessQueueInfo(
            cached_msg_count=len(self._held),
            cached_msg_max_offset=offsets[-1] if offsets else 0,
            cached_msg_min_offset=offsets[0] if offsets else 0,
            cached_msg_size_mib=self.size_bytes // MIB,
            commit_offset=commit_offset,
            dropped=self.state != OWNED,
            last_consume_timestamp=wall_ms(self.last_consume_s),
            last_lock_timestamp=wall_ms(self.lock_s),
            last_pull_timestamp=wall_ms(self.last_pull_s),
            locked=self.lock_s is not None,
            transaction_msg_count=len(hand),
            transaction_msg_max_offset=hand[-1] if hand else 0,
            transaction_msg_min_offset=hand[0] if hand else 0,
            try_unlock_times=self.unlock_tries,
        )
