"""Concurrent consumption: messages of a queue are handled side by side, in any order.

    pulled 32, batch 10   ->   10, 10, 10, 2   ->   workers   ->   handler   ->   settle

    settle     the done ones           leave the cache
               the others              go back to the broker (broadcasting: are logged and skipped) and leave the cache
               those it does not take  stay, and are handled again after 5 s, counted as tried once more
    then       committed offset = lowest still cached; it only grows

What comes from a queue that was dropped meanwhile counts for nothing: its new owner has the messages.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cometmq.client.consume.failures import Cause, cause_of
from cometmq.client.consume.handlers import Handler, Refused
from cometmq.client.consume.outcomes import Outcome, Verdict
from cometmq.client.consume.process_queue import Held, ProcessQueue
from cometmq.log_lines import one_line

if TYPE_CHECKING:
    from cometmq.client.consume.group_member import Member

logger = logging.getLogger(__name__)

AGAIN_S: Final = 5.0


class Concurrent:
    """One handler's messages."""

    def __init__(self, member: "Member", handler: Handler) -> None:
        self._member = member
        self.handler = handler

    def submit(self, queue: ProcessQueue, held: Sequence[Held]) -> None:
        size = self.handler.batch_size
        for at in range(0, len(held), size):
            self._member.workers.submit(Chunk(self, queue, held[at : at + size]))

    async def run(self, queue: ProcessQueue, held: Sequence[Held]) -> None:
        if not queue.is_owned:
            return
        try:
            verdict = await self._member.call(self.handler, queue, held)
        except Refused as error:
            logger.warning("defer messages group=%s count=%d cause=%s", self._member.group, len(held), error)
            self._member.later(AGAIN_S, lambda: self.submit(queue, held))
            return
        await self.settle(queue, held, verdict)

    async def settle(self, queue: ProcessQueue, held: Sequence[Held], verdict: Verdict) -> None:
        done = len(held) if verdict.outcome in (Outcome.SUCCESS, Outcome.COMMIT) else min(verdict.done, len(held))
        failed = [] if done == len(held) else await give_back(
            self._member, queue, held[done:], verdict.delay_level, cause_of(verdict)
        )
        self._member.finish(queue, [one for one in held if one not in failed])
        if failed:
            self._member.later(AGAIN_S, lambda: self.submit(queue, failed))


class Chunk:
    """Messages that one call of a handler gets."""

    __slots__ = ("_held", "_lane", "_queue")

    def __init__(self, lane: Concurrent, queue: ProcessQueue, held: Sequence[Held]) -> None:
        self._lane = lane
        self._queue = queue
        self._held = held

    async def run(self) -> None:
        await self._lane.run(self._queue, self._held)


async def give_back(
    member: "Member", queue: ProcessQueue, held: Sequence[Held], delay_level: int, cause: Cause
) -> list[Held]:
    """Send back what is still ours; returns what no broker took, counted as tried once more."""
    wanted = [one for one in held if queue.is_owned and one in queue]
    if member.options.broadcast:
        for one in wanted:
            logger.warning(
                "skip message group=%s topic=%s broker=%s queue=%d offset=%d type=%s cause=%s: it is a broadcast",
                member.group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id, one.offset, cause.kind,
                one_line(cause.text, 500),
            )  # fmt: skip
        return []
    taken = await asyncio.gather(*[member.send_back(queue, one, delay_level, cause) for one in wanted])
    failed = [one for one, is_taken in zip(wanted, taken, strict=True) if not is_taken]
    for one in failed:
        one.message.reconsume_times += 1
        one.started_s = None
    return failed
