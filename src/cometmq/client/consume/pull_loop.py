"""The pull that circulates for one queue as long as it is ours. No task: timers and answers drive it.

             +----------------------------- found, nothing new, no match -----------------------------+
             v                                                                                        |
    turn ----+-- not ours any more       end                                                          |
             +-- paused, or no lock      again after 1 s                                              |
             +-- cache is full           again after 50 ms                                            |
             +-- ask the broker ----------------------------------------------- answer ---------------+
                                                                                  |
                                          offset illegal: the queue is taken anew +
                                          broker says 215: again after 20 ms      |
                                          error: again after `error_delay`        +

Full means more than `prefetch` messages, `prefetch_bytes`, or a span of offsets over `prefetch_span`; it is looked at
before a pull, so a batch may go over. What is finished rides to the master on the next pull as a commit.
"""

import logging
from typing import TYPE_CHECKING, Final

from cometmq.client.cluster.queue_client import PullStatus
from cometmq.client.consume import pull_request
from cometmq.client.consume.process_queue import ProcessQueue
from cometmq.client.consume.pull_request import BadRecords, PullResult, Unreadable
from cometmq.clock import Timer
from cometmq.errors import BrokerError, CallError, CometError
from cometmq.wire.codes import MASTER_ID, Response
from cometmq.wire.command import Command

if TYPE_CHECKING:
    from cometmq.client.consume.group_member import Member

logger = logging.getLogger(__name__)

PAUSED_S: Final = 1.0
FULL_S: Final = 0.05
FLOW_CONTROL_S: Final = 0.02
LOG_EVERY: Final = 1000


class PullLoop:
    """`next_offset` is where the next pull begins."""

    __slots__ = (
        "_asked", "_asked_s", "_bad", "_full_count", "_is_failing", "_member", "_queue", "_suggested", "_timer",
        "next_offset", "ordered",
    )  # fmt: skip

    def __init__(self, member: "Member", queue: ProcessQueue, next_offset: int, ordered: bool) -> None:
        self._member = member
        self._queue = queue
        self._suggested = MASTER_ID
        self._full_count = 0
        options = member.options
        self._bad = BadRecords(member.group, queue.queue, options.bad_record_tries, options.bad_records)
        self._asked = 0
        self._asked_s = 0.0
        self._is_failing = False
        self._timer: Timer | None = None
        self.next_offset = next_offset
        self.ordered = ordered

    def start(self, delay_s: float) -> None:
        """Begin, after a rest in which the last owner of the queue stores how far it came."""
        if delay_s > 0 and not self.ordered and not self._member.options.broadcast:
            self._timer = self._member.clock.call_later(delay_s, self._catch_up_soon)
        else:
            self._again(delay_s)

    def _catch_up_soon(self) -> None:
        self._timer = None
        self._member.instance.spawn(self._catch_up())

    async def _catch_up(self) -> None:
        """Look once more where to begin: what was stored during the rest need not be handled again."""
        try:
            stored = await self._member.offsets.query(self._queue.queue)
        except CometError as error:
            logger.debug("keep start offset=%d cause=%s", self.next_offset, error)
        else:
            self.next_offset = self.next_offset if stored is None else stored
        self._turn()

    def stop(self) -> None:
        """An answer that comes later finds a queue that is not ours, and is thrown away."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self, delay_s: float) -> None:
        if delay_s > 0:
            self._timer = self._member.clock.call_later(delay_s, self._turn)
        else:
            self._turn()

    def _turn(self) -> None:
        self._timer = None
        queue, member = self._queue, self._member
        if not queue.is_owned or not member.is_running:
            return
        queue.last_pull_s = member.clock.monotonic()
        if member.is_paused or (self.ordered and not member.may_handle(queue)):
            self._again(PAUSED_S)
        elif self._is_full():
            self._again(FULL_S)
        else:
            self._ask()

    def _is_full(self) -> bool:
        queue, bounds = self._queue, self._member.bounds
        if queue.count > bounds.messages_max:
            why = f"{queue.count} messages"
        elif queue.size_bytes > bounds.bytes_max:
            why = f"{queue.size_bytes} bytes"
        elif not self.ordered and queue.span > bounds.span_max:
            why = f"a span of {queue.span}"
        else:
            return False
        self._full_count += 1
        if self._full_count % LOG_EVERY == 1:
            logger.warning(
                "hold pulls group=%s topic=%s broker=%s queue=%d: %s wait for handlers, count=%d",
                self._member.group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id, why,
                self._full_count,
            )  # fmt: skip
        return True

    def _ask(self) -> None:
        member, queue = self._member, self._queue.queue
        subscription = member.announced.get(queue.topic)
        reader = member.instance.brokers.reader(member.instance.host(queue), self._suggested)
        if subscription is None or reader is None:
            member.find_route(queue.topic)
            self._again(PAUSED_S)
            return
        address, broker_id = reader
        options = member.options
        self._asked = self._bad.count_max(options.pull_batch)
        command = pull_request.compose(
            member.instance, queue, member.group, self.next_offset,
            subscription=subscription,
            count_max=self._asked,
            bytes_max=options.pull_batch_bytes,
            suspend_s=options.poll_hold,
            commit_offset=member.commit_for_pull(queue) if broker_id == MASTER_ID else None,
            with_subscription=options.post_subscription,
        )  # fmt: skip
        self._asked_s = member.clock.monotonic()
        try:
            member.instance.net.call_soon(address, command, options.poll_timeout, self._answered)
        except CallError as error:
            self._failed(error)

    def _answered(self, response: Command | None, error: CallError | None) -> None:
        queue, member = self._queue, self._member
        if not queue.is_owned or not member.is_running:
            return
        if response is None:
            assert error is not None
            self._failed(error)
            return
        subscription = member.announced.get(queue.queue.topic)
        if subscription is None:  # unsubscribed meanwhile
            self._again(PAUSED_S)
            return
        try:
            result = pull_request.read(response, queue.queue, subscription)
        except CometError as failure:
            following = None
            if isinstance(failure, Unreadable):
                following = self._bad.failed(failure, self.next_offset, self._asked)
            if following is None:
                self._failed(failure)
            else:
                self._pass_over(following)
            return
        self._bad.passed(result.next_offset)
        self._take(result)

    def _pass_over(self, offset: int) -> None:
        """Go on behind a record that cannot be read, and let the group's progress do so."""
        queue = self._queue
        self._is_failing = False
        self.next_offset = queue.pulled_to = offset
        if queue.count == 0:
            self._member.offsets.update(queue.queue, offset, increase_only=True)
        self._again(0)

    def _take(self, result: PullResult) -> None:
        queue, member = self._queue, self._member
        self._is_failing = False
        self._suggested = result.suggested_broker_id
        queue.min_offset, queue.max_offset = result.min_offset, result.max_offset
        if result.status is PullStatus.ILLEGAL:
            logger.warning(
                "repair offset group=%s topic=%s broker=%s queue=%d illegal=%d next=%d",
                member.group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id, self.next_offset,
                result.next_offset,
            )  # fmt: skip
            member.repair(queue, result.next_offset)
            return
        self.next_offset = result.next_offset
        now_s = member.clock.monotonic()
        if result.messages:
            member.figures.pulled(queue.queue.topic, now_s, len(result.messages), now_s - self._asked_s)
            held = queue.put(result.messages)
            queue.pulled_to = result.next_offset
            member.submit(queue, held)
            self._again(member.options.pull_interval)
            return
        if queue.count == 0:  # what the filter skipped is done
            member.offsets.update(queue.queue, result.next_offset, increase_only=True)
        self._again(0)

    def _failed(self, error: CometError) -> None:
        queue, options = self._queue.queue, self._member.options
        code = error.code if isinstance(error, BrokerError) else 0
        logger.log(
            logging.DEBUG if self._is_failing or code == Response.FLOW_CONTROL else logging.WARNING,
            "fail pull group=%s topic=%s broker=%s queue=%d offset=%d cause=%s",
            self._member.group, queue.topic, queue.broker_name, queue.queue_id, self.next_offset, error,
        )  # fmt: skip
        self._is_failing = True
        self._suggested = MASTER_ID if not isinstance(error, BrokerError) else self._suggested
        self._again(FLOW_CONTROL_S if code == Response.FLOW_CONTROL else options.error_delay)
