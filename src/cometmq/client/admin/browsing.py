"""Reading topics page by page, for people and tools that look around: nothing is registered, no offset changes.

    page = await admin.read_page(queue, begin=120)        up to 32 messages from an offset on, and where to go on
    copies = await admin.copies("orders", key="4711")     what the index knows

A `StoredCopy` is a message with what its record says beside it: flags, sizes, hosts. A body that cannot be decompressed
is given as it is, with the fault: somebody who looks at a message wants to see it all the more then.
"""

import ipaddress
from dataclasses import dataclass
from typing import Final

from cometmq.client.admin.calls import each
from cometmq.client.admin.messages import I64_MAX, READ_COUNT, READ_GROUP, MessageAdmin
from cometmq.client.admin.results import BrokerMember
from cometmq.client.cluster.queue_client import ALL, PullStatus, pull_command, read_pull
from cometmq.client.codecs import bytes_codec
from cometmq.client.messages import Message, received
from cometmq.errors import BrokerError, ConfigError, NotFound, WireError
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request, Response
from cometmq.wire.compression import decompress
from cometmq.wire.headers import GetEarliestStoreTime, QueryMessage, TimestampResponse, ViewMessage
from cometmq.wire.record.message import StoredMessage, decode_record, decode_records
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.sysflag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZSTD,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)

PAGE_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """One stored record. `body_fault` says why the body is still compressed; "" if it is not."""

    message: Message[bytes]
    broker: str
    sys_flag: int
    record_bytes: int
    stored_body_bytes: int
    born_host: str
    store_host: str
    body_fault: str = ""

    @property
    def compression(self) -> str:
        """zlib, lz4, zstd, or "" if the body was stored as it is."""
        if not self.sys_flag & COMPRESSED:
            return ""
        return {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}.get(self.sys_flag & COMPRESSION_MASK, "zlib")

    @property
    def transaction(self) -> str:
        """half, committed, or "" for a message without a transaction."""
        kind = self.sys_flag & TRANSACTION_MASK
        return {TRANSACTION_PREPARED: "half", TRANSACTION_COMMIT: "committed"}.get(kind, "")


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of a queue in the order of their offsets, and the offset to go on from."""

    copies: tuple[StoredCopy, ...]
    next_offset: int


class BrowsingAdmin(MessageAdmin):
    async def read_page(
        self, queue: MessageQueue, begin: int, count: int = READ_COUNT, *, tag: str | None = None
    ) -> Page:
        """Messages from an offset on, as many as the broker gives at once and at most `count`.

        With `tag` the broker leaves out the others. At the end of the queue the page is empty and `next_offset` is
        `begin` or the end. NoRoute, BrokerError."""
        if not 1 <= count <= PAGE_MAX:
            raise ConfigError(f"count is {count}, allowed are 1 to {PAGE_MAX}")
        command = pull_command(
            self.instance, self._wired(queue), READ_GROUP, max(0, begin), count_max=count, subscription=tag or ALL
        )
        response = await self.instance.call(await self._home(queue), command, self.timeout_s)
        pulled = read_pull(response, queue.broker_name, command)
        if pulled.status is not PullStatus.FOUND:
            return Page((), pulled.next_offset)
        copies = tuple(self._copy(stored, queue.broker_name) for stored in decode_records(response.body))
        return Page(copies, pulled.next_offset)

    async def oldest_stored_ms(self, queue: MessageQueue) -> int:
        """When the first message that is still there was stored; 0 if the queue is empty."""
        header = GetEarliestStoreTime(self.wrap(queue.topic), queue.queue_id)
        response = await self.ask(await self._home(queue), Request.GET_EARLIEST_MSG_STORETIME, header)
        return max(0, TimestampResponse.decode(response.ext).timestamp)

    async def copies(self, topic: str, *, key: str, by_id: bool = False, max_messages: int = 64) -> list[StoredCopy]:
        """What the index finds for a key, or with `by_id` for the id that a producer gave. NoRoute."""
        name = self.wrap(topic)
        header = QueryMessage(name, key, max_messages, 0, I64_MAX, unique_key_query=by_id)

        async def ask(master: BrokerMember) -> list[StoredCopy]:
            try:
                response = await self.ask(master.address, Request.QUERY_MESSAGE, header)
            except BrokerError as error:
                if error.code == Response.QUERY_NOT_FOUND:
                    return []
                raise
            return [self._copy(stored, master.name) for stored in decode_records(response.body)]

        found = {
            copy.message.offset_id: copy
            for copies in await each(await self.masters_of(name), ask)
            for copy in copies
            if copy.message.queue is not None
            and copy.message.queue.topic == topic
            and (copy.message.id == key if by_id else key in copy.message.keys)
        }
        return sorted(found.values(), key=lambda copy: copy.message.stored_ms)

    async def copy_at(self, offset_id: str) -> StoredCopy:
        """The record that an offset id names. NotFound, ConfigError if it is not an offset id."""
        try:
            place = decode_offset_id(offset_id)
        except WireError as error:
            raise ConfigError(f"{offset_id!r} is not an offset id: {error}") from error
        message = await self.message(offset_id)
        broker = message.queue.broker_name if message.queue is not None else ""
        (member,) = await self.masters(broker=broker)
        response = await self.ask(member.address, Request.VIEW_MESSAGE_BY_ID, ViewMessage(place.physical_offset))
        copy = self._copy(decode_record(response.body), broker)
        if copy.message.offset_id != offset_id.upper():
            raise NotFound(f"broker {broker} has another message at that position by now: it was deleted")
        return copy

    def _copy(self, stored: StoredMessage, broker: str) -> StoredCopy:
        flags, size, fault = stored.sys_flag, len(stored.body), ""
        if flags & COMPRESSED:
            try:
                decompress(stored.body, flags)
            except WireError as error:
                fault = str(error)
                stored.sys_flag = flags & ~COMPRESSED
        message = received(stored, broker, bytes_codec, self.instance.namespace)
        return StoredCopy(
            message,
            broker,
            flags,
            stored.record_bytes,
            size,
            _host(stored.born_host),
            _host(stored.store_host),
            fault,
        )


def _host(host: tuple[bytes, int]) -> str:
    address = ipaddress.ip_address(host[0])
    return f"[{address}]:{host[1]}" if address.version == 6 else f"{address}:{host[1]}"
