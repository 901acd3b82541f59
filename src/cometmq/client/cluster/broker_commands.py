"""What a broker asks of a client, over the client's own connection.

    39   a transaction's state       -> its producer group            never answered; the producer sends 37 later
    40   members of a group changed  -> its consumer group            never answered
    220  offsets were reset          -> its consumer group            never answered
    221  offsets of a consumer       -> its consumer group            answered
    307  how a consumer is doing     -> its consumer group            answered; with stacks if asked
    309  consume this one message    -> its consumer group            answered when the handler has run
    326  a reply                     -> whoever waits for it          answered at once

A group that is not here is ignored, or answered with code 1 where an answer is due. Other codes are answered with 3.
"""

import asyncio
import io
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from cometmq.client.produce.requests import Replies
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatus,
    MessageQueue,
    ResetOffsets,
    SubscriptionData,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import (
    CheckTransactionState,
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    NotifyConsumerIdsChanged,
    ResetConsumerClientOffset,
)
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message import StoredMessage, decode_record
from cometmq.wire.record.properties import Property

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

logger = logging.getLogger(__name__)

# Commands of one kind whose answers are outstanding; a broker asks for little and seldom.
WAITING_MAX = 2000


class RegisteredProducer(Protocol):
    """What an instance needs of a producer. The group is the one on the wire."""

    @property
    def group(self) -> str: ...

    def on_check(self, address: str, header: CheckTransactionState, message: StoredMessage) -> None:
        """A broker wants to know the state of a transaction; must not block."""


class RegisteredConsumer(Protocol):
    """What an instance needs of a consumer. Names are those on the wire."""

    @property
    def group(self) -> str: ...

    @property
    def consume_type(self) -> str:
        """CONSUME_ACTIVELY, CONSUME_PASSIVELY or CONSUME_POP."""

    @property
    def message_model(self) -> str:
        """CLUSTERING or BROADCASTING."""

    @property
    def start_from(self) -> str:
        """CONSUME_FROM_LAST_OFFSET and so on."""

    def subscriptions(self) -> list[SubscriptionData]:
        """For the heartbeat; called again for each."""

    def on_members_changed(self) -> None:
        """The group changed, or a broker is back: look at the shares again. Must not block."""

    def on_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> Awaitable[None]: ...

    def positions(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self) -> ConsumerRunningInfo: ...

    def consume_directly(self, message: StoredMessage, broker_name: str) -> Awaitable[ConsumeMessageDirectlyResult]: ...


class Commands:
    def __init__(self, instance: "Instance", replies: Replies) -> None:
        self._instance = instance
        self.dispatcher = Dispatcher()
        family = Family("broker command", WAITING_MAX)
        for code, handler in (
            (Request.CHECK_TRANSACTION_STATE, self._check_transaction),
            (Request.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed),
            (Request.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offsets),
            (Request.GET_CONSUMER_STATUS_FROM_CLIENT, self._consumer_status),
            (Request.GET_CONSUMER_RUNNING_INFO, self._running_info),
            (Request.CONSUME_MESSAGE_DIRECTLY, self._consume_directly),
            (Request.PUSH_REPLY_MESSAGE_TO_CLIENT, replies.take),
        ):
            self.dispatcher.add(code, handler, family)

    def _check_transaction(self, connection: Connection, received: Command) -> None:
        connection.answer(received, None)
        message = decode_record(received.body)
        group = wire_properties.decode(message.properties).get(Property.PGROUP, "")
        producer = self._instance.producers.get(group)
        if producer is None:
            logger.warning("drop check group=%s: no such producer here", group)
            return
        producer.on_check(connection.peer_text, CheckTransactionState.decode(received.ext), message)

    def _members_changed(self, connection: Connection, received: Command) -> None:
        connection.answer(received, None)
        consumer = self._instance.consumers.get(NotifyConsumerIdsChanged.decode(received.ext).consumer_group)
        if consumer is not None:
            consumer.on_members_changed()

    def _reset_offsets(self, connection: Connection, received: Command) -> None:
        connection.answer(received, None)
        header = ResetConsumerClientOffset.decode(received.ext)
        consumer = self._instance.consumers.get(header.group)
        if consumer is not None:
            offsets = ResetOffsets.decode(received.body).offset_table
            logger.info("reset offsets group=%s topic=%s queues=%d", header.group, header.topic, len(offsets))
            self._instance.spawn(_wait_for(consumer.on_reset(header.topic, offsets)))

    def _consumer_status(self, _: Connection, received: Command) -> Command:
        header = GetConsumerStatus.decode(received.ext)
        consumer = self._instance.consumers.get(header.group)
        positions = consumer.positions(header.topic) if consumer is not None else {}
        return reply(received, body=ConsumerStatus(message_queue_table=positions).encode())

    def _running_info(self, _: Connection, received: Command) -> Command:
        header = GetConsumerRunningInfo.decode(received.ext)
        info = self._consumer(header.consumer_group).running_info()
        if header.jstack_enable:
            info.jstack = stacks()
        return reply(received, body=info.encode())

    def _consume_directly(self, _: Connection, received: Command) -> Coroutine[Any, Any, Command]:
        header = ConsumeMessageDirectly.decode(received.ext)
        consumer = self._consumer(header.consumer_group)
        message = decode_record(received.body)

        async def consume() -> Command:
            result = await consumer.consume_directly(message, header.broker_name or "")
            return reply(received, body=result.encode())

        return consume()

    def _consumer(self, group: str) -> RegisteredConsumer:
        consumer = self._instance.consumers.get(group)
        if consumer is None:
            raise RequestError(Response.SYSTEM_ERROR, f"no consumer of group {group} in this client")
        return consumer


async def _wait_for(work: Awaitable[None]) -> None:
    await work


def stacks() -> str:
    """What every thread and every task of this process is doing."""
    text = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        text.write(f"thread {names.get(ident, ident)}\n")
        traceback.print_stack(frame, file=text)
    for task in asyncio.all_tasks():
        text.write(f"task {task.get_name()}\n")
        task.print_stack(file=text)
    return text.getvalue()
