"""Stored messages: find them by id, key or time, read queues, send them again.

    id          what its producer gave it          the index of every broker of the topic is asked
    offset id   broker address and log position    that broker is asked; if it has another address by now, every one
    key         one of the message's keys          as by id; other messages with the same hash are left out here
    time        queue by queue, from the first message stored then
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final

from cometmq.client.admin.calls import each
from cometmq.client.admin.offsets import OffsetAdmin, time_ms
from cometmq.client.admin.results import BrokerMember
from cometmq.client.admin.trace_records import TraceRecord, read_records
from cometmq.client.cluster.queue_client import PullStatus, pull_command, read_pull
from cometmq.client.codecs import bytes_codec
from cometmq.client.messages import Message, SendReceipt, received
from cometmq.client.options import ProducerOptions
from cometmq.client.produce.producer import Producer
from cometmq.errors import BrokerError, CallError, ConfigError, NotFound, WireError
from cometmq.names import is_system_topic
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.headers import QueryMessage, ViewMessage
from cometmq.wire.record.message import StoredMessage, decode_record, decode_records
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.properties import Property

I64_MAX: Final = 2**63 - 1
FOUND_MAX: Final = 64
READ_COUNT: Final = 32
TOPICS_AT_ONCE: Final = 16
# Groups that every broker has, for tools.
READ_GROUP: Final = "TOOLS_CONSUMER"


class MessageAdmin(OffsetAdmin):
    async def message(self, message_id: str, topic: str | None = None) -> Message[bytes]:
        """By offset id, or by id if the topic is given. NotFound.

        Ids of both kinds have 32 digits, so any of them can be read as address and position. Only brokers that the
        name server knows are asked. The one with the address that an offset id names is asked first; others may have
        had that address, and a record keeps it.
        """
        if topic is not None:
            found = await self._query(topic, message_id, 0, I64_MAX, READ_COUNT, by_id=True)
            for message in found:
                if message_id in (message.id, message.offset_id):
                    return message
            at_offset = await self._by_offset_id(message_id)
            if at_offset is not None:
                return at_offset
            raise NotFound(f"topic {topic} has no message with id {message_id}: it was deleted, or never there")
        if not _is_offset_id(message_id):
            raise ConfigError(f"{message_id!r} is not an offset id: to find a message by its id, give the topic too")
        at_offset = await self._by_offset_id(message_id)
        if at_offset is None:
            raise NotFound(
                f"no broker of this cluster has a message with offset id {message_id} ({_address_of(message_id)}): it "
                "was deleted, or it is the id of its producer: then give the topic too"
            )
        return at_offset

    async def find_message(self, message_id: str) -> Message[bytes]:
        """By an id of either kind, whatever its topic: every topic's index is asked, so that this takes a while in a
        large cluster. NotFound."""
        if _is_offset_id(message_id):
            at_offset = await self._by_offset_id(message_id)
            if at_offset is not None:
                return at_offset
        known = sorted(await self.topics(system=True), key=is_of_servers)
        for at in range(0, len(known), TOPICS_AT_ONCE):
            some = known[at : at + TOPICS_AT_ONCE]
            answers = await asyncio.gather(*[self.of_id(topic, message_id) for topic in some], return_exceptions=True)
            for answer in answers:
                if isinstance(answer, list) and answer:
                    return answer[0]
        raise NotFound(
            f"no message of {len(known)} topics has the id {message_id}: it was deleted, or never there, or its broker "
            "is down (cometmq cluster health)"
        )

    async def of_id(self, topic: str, message_id: str) -> list[Message[bytes]]:
        """All messages of a topic with this id: one that is tried again keeps it. Empty if there is none."""
        found = await self._query(topic, message_id, 0, I64_MAX, READ_COUNT, by_id=True)
        return [message for message in found if message.id == message_id]

    async def find(
        self,
        topic: str,
        *,
        key: str,
        begin: datetime | None = None,
        end: datetime | None = None,
        max_messages: int = FOUND_MAX,
    ) -> list[Message[bytes]]:
        """Messages that carry a key, oldest first. NoRoute; empty if there is none."""
        begin_ms = time_ms(begin) if begin is not None else 0
        end_ms = time_ms(end) if end is not None else I64_MAX
        found = await self._query(topic, key, begin_ms, end_ms, max_messages)
        return [message for message in found if key in message.keys][:max_messages]

    async def find_by_time(
        self, topic: str, begin: datetime, end: datetime | None = None
    ) -> AsyncIterator[Message[bytes]]:
        """Messages of a topic that were stored from `begin` to before `end`, queue by queue. NoRoute."""
        end_ms = time_ms(end) if end is not None else I64_MAX
        for queue in await self.topic_queues(topic):
            async for message in self.read(queue, await self.offset_at(queue, begin)):
                if message.stored_ms >= end_ms:
                    break
                if message.stored_ms >= time_ms(begin):
                    yield message

    async def read(
        self, queue: MessageQueue, begin: int = 0, end: int | None = None
    ) -> AsyncIterator[Message[bytes]]:
        """Messages of one queue by offset, to `end` or to what is its end now. Changes no offsets."""
        last = await self.latest_offset(queue)
        end = last if end is None else min(end, last)
        at = max(begin, await self.earliest_offset(queue))
        while at < end:
            found, at = await self._pull(queue, at, min(READ_COUNT, end - at))
            for message in found:
                if message.offset >= end:
                    return
                yield message

    # Sending again

    async def resend(
        self, message: Message[Any], topic: str | None = None, *, marks: Mapping[str, str] | None = None
    ) -> SendReceipt:
        """A new message like this one: same body, tag, keys and application properties, to its own topic or another.
        `marks` are further properties.

        A dead letter and a message that waits for another try go to the topic they were sent to.
        """
        producer = await self._sender()
        return await producer.send(
            topic or origin_topic(message),
            message.body,
            tag=message.tag,
            keys=message.keys,
            properties={**message.user_properties, **(marks or {})},
        )

    # Traces

    async def trace(
        self, message_id: str, *, trace_topic: str = "RMQ_SYS_TRACE_TOPIC", max_messages: int = FOUND_MAX
    ) -> list[TraceRecord]:
        """What producers and consumers wrote down about a message, by its id, in the order of time.

        Empty if nobody did: tracing is off unless a client switches it on. NoRoute if no broker keeps traces.
        """
        found = await self._query(trace_topic, message_id, 0, I64_MAX, max_messages)
        records = [it for message in found for it in read_records(message.body) if it.id == message_id]
        return sorted(records, key=lambda record: (record.time_ms, record.kind == "SubAfter"))

    # How

    async def _query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count: int, *, by_id: bool = False
    ) -> list[Message[bytes]]:
        name = self.wrap(topic)
        header = QueryMessage(name, key, count, begin_ms, end_ms, unique_key_query=by_id)

        async def ask(master: BrokerMember) -> list[Message[bytes]]:
            try:
                response = await self.ask(master.address, Request.QUERY_MESSAGE, header)
            except BrokerError as error:
                if error.code == Response.QUERY_NOT_FOUND:
                    return []
                raise
            return self._messages(response, master.name)

        answers = await each(await self.masters_of(name), ask)
        found = {
            message.offset_id: message
            for messages in answers
            for message in messages
            if message.queue is not None and message.queue.topic == topic
        }
        return sorted(found.values(), key=lambda message: message.stored_ms)

    async def _by_offset_id(self, offset_id: str) -> Message[bytes] | None:
        """None if no broker has it. CallError if one did not answer that might."""
        if not _is_offset_id(offset_id):
            return None
        members = await self.members()
        holder = await _holder(members, _address_of(offset_id))
        if holder is not None:
            found = await self._at_offset(offset_id, holder)
            if found is not None:
                return found
        silent: list[CallError] = []

        async def ask(member: BrokerMember) -> Message[bytes] | None:
            try:
                return await self._at_offset(offset_id, member)
            except CallError as error:
                silent.append(error)
                return None

        for message in await each([member for member in members if member != holder], ask):
            if message is not None:
                return message
        if silent:
            raise silent[0]
        return None

    async def _at_offset(self, offset_id: str, member: BrokerMember) -> Message[bytes] | None:
        """What a broker has at that position, if it was stored there under this very id."""
        header = ViewMessage(decode_offset_id(offset_id).physical_offset)
        try:
            response = await self.ask(member.address, Request.VIEW_MESSAGE_BY_ID, header)
            message = self._message(decode_record(response.body), member.name)
        except (BrokerError, WireError) as error:
            if isinstance(error, WireError) or error.code in (Response.SYSTEM_ERROR, Response.QUERY_NOT_FOUND):
                return None
            raise
        return message if message.offset_id == offset_id.upper() else None

    async def _pull(self, queue: MessageQueue, at: int, count: int) -> tuple[list[Message[bytes]], int]:
        wired = self._wired(queue)
        command = pull_command(self.instance, wired, READ_GROUP, at, count_max=count)
        response = await self.instance.call(await self._home(queue), command, self.timeout_s)
        pulled = read_pull(response, queue.broker_name, command)
        if pulled.status is PullStatus.FOUND:
            return self._messages(response, queue.broker_name), pulled.next_offset
        # Nothing there that the broker would give: go on behind it rather than ask for ever.
        return [], pulled.next_offset if pulled.next_offset > at else at + count

    def _messages(self, response: Command, broker: str) -> list[Message[bytes]]:
        return [self._message(stored, broker) for stored in decode_records(response.body)]

    def _message(self, stored: StoredMessage, broker: str) -> Message[bytes]:
        return received(stored, broker, bytes_codec, self.instance.namespace)

    async def _sender(self) -> Producer[bytes]:
        if self._producer is None:
            group = f"cometmq-admin-{id(self):x}"
            producer = Producer(group, bytes_codec, ProducerOptions(), instance=self.instance)
            await producer.start()
            self._producer = producer
        return self._producer

    _producer: Producer[bytes] | None = None


def origin_topic(message: Message[Any]) -> str:
    """Where a message was sent first; its own topic unless it is a dead letter or waits for another try."""
    for name in (Property.DLQ_ORIGIN_TOPIC, Property.RETRY_TOPIC):
        topic = message.properties.get(name)
        if topic:
            return topic
    return message.topic


def is_of_servers(topic: str) -> bool:
    """To be asked last: an application's message is not there."""
    return is_system_topic(topic) or topic.startswith("%")


async def _holder(members: list[BrokerMember], wanted: str) -> BrokerMember | None:
    """Whose address this is; brokers may be registered by host names."""
    for member in members:
        if member.address == wanted:
            return member
    for member in members:
        if wanted in await _resolved(member.address):
            return member
    return None


def _is_offset_id(text: str) -> bool:
    try:
        decode_offset_id(text)
    except WireError:
        return False
    return True


def _address_of(offset_id: str) -> str:
    place = decode_offset_id(offset_id)
    return _address_text(ipaddress.ip_address(place.address), place.port)


def _address_text(host: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


async def _resolved(address: str) -> set[str]:
    """The numeric forms of an address with a host name; nothing if there is no such host."""
    host, _, port = address.rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return set()
    return {_address_text(ipaddress.ip_address(where[4][0]), int(port)) for where in found}
