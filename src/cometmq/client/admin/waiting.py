"""What a cluster keeps back: delayed messages by due time, transactions that nobody has decided.

    timers     topic rmq_sys_wheel_timer     a record each, and one more for a recall; due time in a property
    levels     SCHEDULE_TOPIC_XXXX           a queue for each level; due when stored plus the level's delay
    halves     RMQ_SYS_TRANS_HALF_TOPIC      from the brokers' progress on, without those that ops name

All are read from the newest record backwards, at most `looked_max` of a queue: brokers have no request for this. What
was delivered is told by its due time, so the last second is not exact.
"""

import base64
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from cometmq import names
from cometmq.client.admin.browsing import BrowsingAdmin, StoredCopy
from cometmq.client.admin.cluster import ClusterAdmin
from cometmq.errors import BrokerError, ConfigError, NoRoute, NotFound
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.headers import EndTransaction, RecallMessage
from cometmq.wire.record.properties import Property

LOOKED_MAX: Final = 20_000
PROGRESS_GROUP: Final = "CID_RMQ_SYS_TRANS"
OP_TAG: Final = "d"
COMMIT: Final = 8
ROLLBACK: Final = 12
UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that is not due. `kind` is timer or level; `handle` takes a timer back, "" where that cannot be."""

    copy: StoredCopy
    topic: str
    due_ms: int
    kind: str
    handle: str = ""


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    """`looked` records were read; `all_looked` is False if there were more than that."""

    messages: tuple[Waiting, ...]
    looked: int
    all_looked: bool


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message: its transaction is neither committed nor rolled back yet. `checks` counts the questions to its
    producers."""

    copy: StoredCopy
    topic: str
    group: str
    checks: int


class WaitingAdmin(BrowsingAdmin, ClusterAdmin):
    async def waiting_messages(self, *, looked_max: int = LOOKED_MAX) -> WaitingMessages:
        """Timers and messages with a delay level that are not due, earliest first."""
        now_ms = self.instance.clock.now_ms()
        found: dict[tuple[str, int], Waiting] = {}
        recalled: set[str] = set()
        looked, all_looked = 0, True
        for queue in await self._queues_of(names.TIMER_TOPIC):
            async for copy in self._backwards(queue, looked_max):
                looked += 1
                taken_back = copy.message.properties.get(Property.TIMER_DEL_UNIQKEY)
                due_ms = _number(copy.message.properties.get(Property.TIMER_OUT_MS))
                if taken_back is not None:
                    recalled.add(taken_back)
                elif due_ms > now_ms:
                    found[queue.broker_name, copy.message.physical_offset] = self._timer(copy, due_ms)
            all_looked = all_looked and looked < looked_max
        messages = [
            it
            for it in found.values()
            if not recalled & {it.copy.message.id, f"{self.wrap(it.topic)}+{it.copy.message.id}"}
        ]
        levels: dict[str, dict[int, int]] = {}
        for queue in await self._queues_of(names.SCHEDULE_TOPIC):
            if queue.broker_name not in levels:
                levels[queue.broker_name] = _levels(await self._level_text(queue.broker_name))
            delay_ms = levels[queue.broker_name].get(queue.queue_id + 1, 0)
            async for copy in self._backwards(queue, looked_max):
                looked += 1
                due_ms = copy.message.stored_ms + delay_ms
                if due_ms <= now_ms:
                    break  # all before it were due earlier
                topic = self.strip(copy.message.properties.get(Property.REAL_TOPIC, copy.message.topic))
                messages.append(Waiting(copy, topic, due_ms, "level"))
        newest: dict[str, Waiting] = {}  # a message that was rolled on is there several times
        for it in sorted(messages, key=lambda it: it.copy.message.physical_offset):
            newest[it.copy.message.id] = it
        return WaitingMessages(tuple(sorted(newest.values(), key=lambda it: it.due_ms)), looked, all_looked)

    async def recall_timer(self, waiting: Waiting) -> str:
        """Take a timer back before it is due; gives its id. BrokerError if the broker allows no recalls."""
        if not waiting.handle:
            raise ConfigError("only timers can be recalled: a message with a delay level comes when it is due")
        (master,) = await self.masters(broker=waiting.copy.broker)
        header = RecallMessage(self.wrap(waiting.topic), waiting.handle, None)
        await self.ask(master.address, Request.RECALL_MESSAGE, header)
        return waiting.copy.message.id

    async def open_halves(self, *, looked_max: int = LOOKED_MAX) -> list[HalfMessage]:
        """Halves that are neither committed nor rolled back, oldest first. A half that was copied counts once."""
        found: dict[str, HalfMessage] = {}
        for queue in await self._queues_of(names.HALF_TOPIC):
            begin = max(0, await self._committed(PROGRESS_GROUP, queue))
            ended = await self._ended(queue, looked_max)
            passed: set[str] = set()
            async for copy in self._backwards(queue, looked_max, begin):
                message = copy.message
                if message.offset in ended:
                    passed.add(message.id)
                elif message.id not in passed and message.id not in found:
                    found[message.id] = self._half(copy)
        return sorted(found.values(), key=lambda half: half.copy.message.born_ms)

    async def end_half(self, half: HalfMessage, *, commit: bool) -> None:
        """Commit a half message or roll it back, in the place of its producer. BrokerError if it has ended."""
        message = half.copy.message
        header = EndTransaction(
            self.wrap(half.group),
            message.offset,
            message.physical_offset,
            COMMIT if commit else ROLLBACK,
            message.id,
            message.id,
            topic=self.wrap(half.topic),
            broker_name=half.copy.broker,
        )
        (master,) = await self.masters(broker=half.copy.broker)
        await self.ask(master.address, Request.END_TRANSACTION, header)

    # How

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        """None where no broker has the topic."""
        try:
            return await self.topic_queues(topic)
        except NoRoute:
            return []

    async def _backwards(self, queue: MessageQueue, count_max: int, begin: int = 0) -> AsyncIterator[StoredCopy]:
        """Newest first, 32 at a time."""
        try:
            first, end = await self.earliest_offset(queue), await self.latest_offset(queue)
        except NotFound:
            return
        first = max(first, begin, end - count_max)
        while end > first:
            start = max(first, end - 32)
            at, block = start, list[StoredCopy]()
            while at < end:
                page = await self.read_page(queue, at, end - at)
                block += [copy for copy in page.copies if copy.message.offset < end]
                if page.next_offset <= at:
                    break
                at = page.next_offset
            for copy in reversed(block):
                yield copy
            end = start

    async def _ended(self, queue: MessageQueue, looked_max: int) -> set[int]:
        ops = MessageQueue(queue.broker_name, queue.queue_id, names.OP_TOPIC)
        ended: set[int] = set()
        try:
            async for copy in self._backwards(ops, looked_max):
                if copy.message.tag == OP_TAG:
                    ended.update(int(part) for part in copy.message.body.split(b",") if part.strip().isdigit())
        except (NoRoute, BrokerError):
            return ended
        return ended

    async def _level_text(self, broker: str) -> str:
        return (await self.broker_config(broker)).get("messageDelayLevel", "")

    def _timer(self, copy: StoredCopy, due_ms: int) -> Waiting:
        wired = copy.message.properties.get(Property.REAL_TOPIC, copy.message.topic)
        text = f"v1 {wired} {copy.broker} {due_ms + 1} {copy.message.id}"
        handle = base64.urlsafe_b64encode(text.encode()).decode()
        return Waiting(copy, self.strip(wired), due_ms, "timer", handle)

    def _half(self, copy: StoredCopy) -> HalfMessage:
        properties = copy.message.properties
        return HalfMessage(
            copy,
            self.strip(properties.get(Property.REAL_TOPIC, copy.message.topic)),
            self.strip(properties.get(Property.PGROUP, "")),
            _number(properties.get(Property.TRANSACTION_CHECK_TIMES)),
        )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else 0


def _levels(text: str) -> dict[int, int]:
    """`1s 5s 10s` -> {1: 1000, 2: 5000, 3: 10000}."""
    found = {}
    for number, word in enumerate(text.split(), 1):
        match = re.fullmatch(r"(\d{1,9})([smhd])", word)
        if match is not None:
            found[number] = int(match[1]) * UNITS_MS[match[2]]
    return found
