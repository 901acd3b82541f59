"""Ordered consumption: one message, or batch, of a queue at a time, in the order of its offsets.

    run of a queue    a job of the workers, one at a time per queue; ends when the cache is empty, after a failure, or
                      after 60 s so that other queues have their turn
    needs             the broker's lock, renewed within `lock_expiry` (broadcasting needs none)

    outcome           with auto_commit (the default)        without
    SUCCESS           commits                               counts: stays in the hand
    COMMIT            commits, with a warning               commits the whole hand
    ROLLBACK          commits, with a warning               puts the whole hand back, the queue rests
    LATER, an error   puts the batch back, the queue rests; or, when its retries are used up, the message goes to the
                      dead letters and the queue goes on

The hand is what was taken from the cache and is not committed. Retries are counted here, in memory. A committed offset
may also go back: it is the one after the hand, not the highest ever seen.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cometmq.client.consume.failures import cause_of
from cometmq.client.consume.handlers import Handler, Refused
from cometmq.client.consume.outcomes import DEAD_LETTER, Outcome, Verdict
from cometmq.client.consume.process_queue import Held, ProcessQueue

if TYPE_CHECKING:
    from cometmq.client.consume.group_member import Member

logger = logging.getLogger(__name__)

RUN_S_MAX: Final = 60.0
RESUME_S: Final = 0.01
REFUSED_S: Final = 5.0
SUSPEND_S_MIN: Final = 0.01
SUSPEND_S_MAX: Final = 30.0


class Ordered:
    """One handler's messages."""

    def __init__(self, member: "Member", handler: Handler) -> None:
        self._member = member
        self.handler = handler

    def submit(self, queue: ProcessQueue, held: Sequence[Held]) -> None:
        """There is something new in the cache. A queue that rests is not disturbed."""
        if not queue.is_scheduled:
            queue.is_scheduled = True
            self.schedule(queue)

    def schedule(self, queue: ProcessQueue) -> None:
        self._member.workers.submit(Run(self, queue))

    def rest(self, queue: ProcessQueue, delay_s: float) -> None:
        self._member.later(delay_s, lambda: self.schedule(queue))

    async def run(self, queue: ProcessQueue) -> float | None:
        """Handle what is cached; how long the queue rests then, None if there is nothing left to do."""
        member = self._member
        began_s = member.clock.monotonic()
        while queue.is_owned:
            if not member.may_handle(queue):
                member.lose(queue)
                return None
            if member.clock.monotonic() - began_s > RUN_S_MAX:
                return RESUME_S
            held = queue.take(self.handler.batch_size)
            if not held:
                return None
            rest_s = await self._handle(queue, held)
            if rest_s is not None:
                return rest_s
        return None

    async def _handle(self, queue: ProcessQueue, held: list[Held]) -> float | None:
        """Handle what was taken; how long the queue rests then, None if it goes on."""
        queue.is_busy = True
        try:
            verdict = await self._member.call(self.handler, queue, held)
            return await self._conclude(queue, held, verdict)
        except Refused as error:
            logger.warning("defer messages group=%s count=%d cause=%s", self._member.group, len(held), error)
            queue.put_back(held)
            return REFUSED_S
        except BaseException:  # cancelled: whoever handles the queue next begins with these
            queue.put_back(held)
            raise
        finally:
            queue.is_busy = False
            if not queue.is_owned:
                self._member.rebalance.wake()  # it could not leave while we were at it

    async def _conclude(self, queue: ProcessQueue, held: list[Held], verdict: Verdict) -> float | None:
        outcome = verdict.outcome
        rest_s = self._member.options.suspend if verdict.suspend_s is None else verdict.suspend_s
        rest_s = min(max(rest_s, SUSPEND_S_MIN), SUSPEND_S_MAX)
        if self.handler.auto_commit and outcome in (Outcome.COMMIT, Outcome.ROLLBACK):
            logger.warning("take %s for SUCCESS group=%s: auto_commit is on", outcome.name, self._member.group)
            outcome = Outcome.SUCCESS
        if outcome is Outcome.LATER:
            return rest_s if await self._try_again(queue, held, verdict) else None
        if outcome is Outcome.ROLLBACK:
            queue.put_back()
            return rest_s
        if outcome is Outcome.COMMIT or self.handler.auto_commit:
            self._commit(queue)
        return None

    def _commit(self, queue: ProcessQueue) -> None:
        offset = queue.commit()
        if offset is not None and queue.may_commit:
            self._member.offsets.update(queue.queue, offset)

    async def _try_again(self, queue: ProcessQueue, held: list[Held], verdict: Verdict) -> bool:
        """Put back what shall be tried again, give up what was tried often enough. False if nothing was put back."""
        again: list[Held] = []
        gone = held[: verdict.done]
        for one in held[verdict.done :]:
            is_rejected = verdict.delay_level == DEAD_LETTER
            if (is_rejected or not self._may_retry(one)) and await self._member.bury(
                queue, one, is_rejected, cause_of(verdict)
            ):
                gone.append(one)
            else:
                one.message.reconsume_times += 1
                again.append(one)
        if again:
            queue.put_back(again)
            # They are dealt with, but an offset beyond one that is tried again cannot be committed.
            queue.discard([one for one in gone if one.offset > again[0].offset])
        if self.handler.auto_commit:
            self._commit(queue)
        return bool(again)

    def _may_retry(self, one: Held) -> bool:
        retries_max = self._member.options.max_retries
        return retries_max is None or one.message.reconsume_times < retries_max


class Run:
    """A queue's turn at the workers."""

    __slots__ = ("_lane", "_queue")

    def __init__(self, lane: Ordered, queue: ProcessQueue) -> None:
        self._lane = lane
        self._queue = queue

    async def run(self) -> None:
        rest_s: float | None = None
        try:
            rest_s = await self._lane.run(self._queue)
        finally:
            if rest_s is None:
                self._queue.is_scheduled = False
            else:
                self._lane.rest(self._queue, rest_s)
