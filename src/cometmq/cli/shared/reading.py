"""Reading topics for commands: all queues at once, from a place, to their ends or for ever. Changes no offsets.

    start        `--from`: earliest, latest, a moment, an offset, or -N for the last N of every queue
    queues       one task each pulls into a common, bounded queue; messages of one queue stay in order
    follow       a pull that finds nothing is held by the broker until something comes

Tag and SQL expressions travel with each pull, so the broker filters. Messages are read as the tool group that every
broker has.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from cometmq.cli.shared.times import moment_ms
from cometmq.client.admin import Admin
from cometmq.client.cluster.queue_client import pull_command, read_pull
from cometmq.client.codecs import bytes_codec
from cometmq.client.messages import Message, received
from cometmq.errors import ConfigError, NoRoute
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.record.message import decode_records

GROUP: Final = "TOOLS_CONSUMER"
PULL_COUNT: Final = 32
HELD_MAX: Final = 1024
HOLD_S: Final = 10.0
SLACK_S: Final = 10.0
OFFSET_DIGITS_MAX: Final = 11


class Ended:
    """A queue was read to its end."""


async def start_offset(admin: Admin, queue: MessageQueue, place: str) -> int:
    """The offset that `--from` means in one queue. ConfigError."""
    if place == "earliest":
        return await admin.earliest_offset(queue)
    if place == "latest":
        return await admin.latest_offset(queue)
    digits = place.removeprefix("-")
    if digits.isdecimal() and len(digits) <= OFFSET_DIGITS_MAX:
        low, high = await admin.earliest_offset(queue), await admin.latest_offset(queue)
        wanted = high - int(digits) if place.startswith("-") else int(place)
        return min(max(wanted, low), high)
    try:
        at_ms = moment_ms(place, int(time.time() * 1000))
    except ConfigError:
        known = "earliest, latest, an offset, -N for the last N, a moment (2026-11-15T12:00) or how long ago (-1h)"
        raise ConfigError(f"--from {place!r} is none of: {known}") from None
    return await admin.offset_at(queue, datetime.fromtimestamp(at_ms / 1000, UTC))


class Reader:
    """`expression` and `kind` (TAG or SQL92) are the broker's filter; `pulled` is told how long each pull took, ms."""

    def __init__(
        self,
        admin: Admin,
        topic: str,
        *,
        expression: str = "*",
        kind: str = "TAG",
        follow: bool = False,
        pulled: Callable[[float], None] | None = None,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._expression = expression
        self._kind = kind
        self._follow = follow
        self._pulled = pulled
        self._found: asyncio.Queue[Message[bytes] | Exception | Ended] = asyncio.Queue(HELD_MAX)

    async def messages(self, place: str, queue_id: int | None = None) -> AsyncGenerator[Message[bytes], None]:
        """NoRoute, ConfigError; BrokerError of any queue ends it."""
        queues = await self._admin.topic_queues(self._topic)
        if not queues:
            raise NoRoute(f"topic {self._topic} has no queue that can be read")
        chosen = [queue for queue in queues if queue_id in (None, queue.queue_id)]
        if not chosen:
            raise ConfigError(f"topic {self._topic} has no queue {queue_id}: it has {len(queues)}, counted from 0")
        starts = {queue: await start_offset(self._admin, queue, place) for queue in chosen}
        tasks = [asyncio.create_task(self._read(queue, start)) for queue, start in starts.items()]
        try:
            open_queues = len(tasks)
            while open_queues:
                found = await self._found.get()
                if isinstance(found, Ended):
                    open_queues -= 1
                elif isinstance(found, Exception):
                    raise found
                else:
                    yield found
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def _read(self, queue: MessageQueue, at: int) -> None:
        try:
            end = None if self._follow else await self._admin.latest_offset(queue)
            while end is None or at < end:
                found, after = await self._pull(queue, at)
                for message in found:
                    if end is None or message.offset < end:
                        await self._found.put(message)
                if after <= at and end is not None:
                    break  # nothing more comes, whatever the end was said to be
                at = max(at, after)
            await self._found.put(Ended())
        except Exception as error:
            await self._found.put(error)

    async def _pull(self, queue: MessageQueue, at: int) -> tuple[list[Message[bytes]], int]:
        admin = self._admin
        wired = MessageQueue(queue.broker_name, queue.queue_id, admin.wrap(queue.topic))
        command = pull_command(
            admin.instance, wired, GROUP, at, count_max=PULL_COUNT, subscription=self._expression, kind=self._kind,
            hold_s=HOLD_S if self._follow else 0.0,
        )  # fmt: skip
        host = await admin.instance.master(queue.broker_name, wired.topic)
        began_s = time.perf_counter()
        response = await admin.instance.call(host, command, HOLD_S + SLACK_S)
        if self._pulled is not None:
            self._pulled((time.perf_counter() - began_s) * 1000)
        pulled = read_pull(response, queue.broker_name, command)
        name, namespace = queue.broker_name, admin.instance.namespace
        return [received(one, name, bytes_codec, namespace) for one in decode_records(pulled.body)], pulled.next_offset
