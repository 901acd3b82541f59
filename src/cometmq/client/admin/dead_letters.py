"""Dead letters: what a group gave up on, and giving it another chance.

    to the group (the usual way)   its retry topic: no other group sees the message again. Id, keys and properties stay,
                                   so that a consumer which remembers ids recognises it; tries begin anew
    to the origin topic, or any    a new message with an id of its own, for every group that reads the topic

A replayed message carries the place of its dead letter in CMQ_DLQ (group/broker/queue/offset). Dead letters stay where
they are until they expire: what is in the group's retry topic already is not sent a second time, as far as the index of
the brokers reaches; to other topics, replaying twice sends twice.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from cometmq import names
from cometmq.client.admin.messages import MessageAdmin, origin_topic
from cometmq.client.admin.results import Resent
from cometmq.client.messages import Message
from cometmq.errors import CallError, CometError, ConfigError, NoRoute
from cometmq.wire.record.properties import Property

REPLAYED_FROM: Final = "CMQ_DLQ"
# Of a try that is over: when it was due, and that it was half of a transaction.
_OVER: Final = (
    Property.DELAY, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS,
    Property.TIMER_OUT_MS, Property.TRAN_MSG, Property.PGROUP, Property.REAL_TOPIC, Property.REAL_QID,
    Property.RECONSUME_TIME, Property.MAX_RECONSUME_TIMES, Property.POP_CK,
)  # fmt: skip


class DeadLetterAdmin(MessageAdmin):
    async def dead_letters(self, group: str) -> AsyncIterator[Message[bytes]]:
        """What a group gave up on, oldest first; nothing if there is nothing."""
        try:
            queues = await self.topic_queues(names.dlq_topic(group))
        except NoRoute as error:
            if isinstance(error.__cause__, CallError):
                raise  # no name server answered: nobody said that there are none
            return
        for queue in queues:
            async for message in self.read(queue):
                yield message

    async def replay_dead_letters(
        self,
        group: str,
        *,
        to_origin: bool = False,
        topic: str | None = None,
        rate: float | None = None,
        ids: Iterable[str] | None = None,
    ) -> AsyncIterator[Resent]:
        """Send dead letters again, all or those with the given ids, at most `rate` a second; says what came of each.

        They go to the group alone, by its retry topic; with `to_origin` to the topic that each was sent to, with
        `topic` to that one. ConfigError if the group's retry topic takes nothing.
        """
        if to_origin and topic is not None:
            raise ConfigError("to_origin and topic are two places: give one of them")
        wanted = frozenset(ids) if ids is not None else None
        retries = None if to_origin or topic is not None else await self.retry_topics(group)
        started = self.instance.clock.monotonic()
        count = 0
        async for letter in self.dead_letters(group):
            if wanted is not None and not wanted & {letter.id, letter.offset_id}:
                continue
            if rate is not None:
                due = started + count / rate
                await asyncio.sleep(max(0.0, due - self.instance.clock.monotonic()))
            count += 1
            target = topic or (origin_topic(letter) if retries is None else retries.get(origin_topic(letter), ""))
            target = target or names.retry_topic(group)
            try:
                yield await self._replay(group, letter, target, is_retry=retries is not None)
            except CometError as error:
                yield Resent(letter.id, target, error=str(error))

    async def _replay(self, group: str, letter: Message[bytes], target: str, *, is_retry: bool) -> Resent:
        place = dead_letter_place(group, letter)
        if not is_retry:
            receipt = await self.resend(letter, target, marks={REPLAYED_FROM: place})
            return Resent(letter.id, target, receipt.id)
        found = await self.of_id(target, letter.id)
        if any(message.properties.get(REPLAYED_FROM) == place for message in found):
            return Resent(letter.id, target, letter.id, skipped=True)
        producer = await self._sender()
        await producer.send_record(target, letter.body, retried_properties(letter, place), flag=letter.flag)
        return Resent(letter.id, target, letter.id)

    async def retry_topics(self, group: str) -> dict[str, str]:
        """Retry topics of a group that are for one topic only, by that topic: those of POP. Other messages go to the
        group's own. ConfigError if brokers take none."""
        prefix = names.retry_topic(group)
        known = set(await self.topics(system=True))
        if any(name.startswith(f"{prefix}_") for name in known) and prefix not in known:
            raise ConfigError(
                f"group {group} takes its messages by POP, and brokers let nobody send to its retry topics: replay to "
                "the origin topic instead (--to-origin, to_origin=True)"
            )
        return {name.removeprefix(f"{prefix}+"): name for name in known if name.startswith(f"{prefix}+")}


def dead_letter_place(group: str, letter: Message[Any]) -> str:
    """Where a dead letter lies, as a replayed message names it."""
    queue = letter.queue
    return f"{group}/{queue.broker_name}/{queue.queue_id}/{letter.offset}" if queue is not None else group


def retried_properties(letter: Message[Any], place: str) -> dict[str, str]:
    """Those of a message that its group gets again as if for the first time."""
    properties = {name: text for name, text in letter.properties.items() if name not in _OVER}
    properties[Property.RETRY_TOPIC] = origin_topic(letter)
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, letter.id)
    properties[REPLAYED_FROM] = place
    return properties
