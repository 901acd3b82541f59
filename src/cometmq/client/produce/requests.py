"""Request and reply over topics: the requester's table of what it waits for.

    requester  --request, CORRELATION_ID, REPLY_TO_CLIENT, TTL-->  topic  -->  replier
    requester  <--326 push--  broker  <--MSG_TYPE=reply, to <cluster>_REPLY_TOPIC--  replier

The broker pushes a reply over the requester's own connection; it knows the requester from its heartbeats. Each request
waits under its own timer, so one that is not answered fails at its limit.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from cometmq.clock import Clock, Timer
from cometmq.errors import CannotReply, RequestTimeout, WireError
from cometmq.net.connection import Connection
from cometmq.wire.codes import Response
from cometmq.wire.command import Command, reply
from cometmq.wire.compression import decompress
from cometmq.wire.headers import PushReplyMessage
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.properties import Property

logger = logging.getLogger(__name__)

REPLY_TYPE: Final = "reply"
REPLY_TOPIC: Final = "{cluster}_REPLY_TOPIC"
_COPIED: Final = (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL)


class Reply:
    """What came back: header, decompressed body, all properties."""

    __slots__ = ("body", "header", "properties")

    def __init__(self, header: PushReplyMessage, body: bytes, properties: dict[str, str]) -> None:
        self.header = header
        self.body = body
        self.properties = properties


class Replies:
    """Requests that wait, by correlation id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._timers: dict[str, Timer] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str, timeout_s: float) -> "asyncio.Future[Reply]":
        """A future that has the reply, or fails with RequestTimeout when `timeout_s` is over. `forget` it then."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(timeout_s, lambda: _expire(future, timeout_s))
        self._waiting[correlation_id] = future
        self._timers[correlation_id] = timer
        return future

    def forget(self, correlation_id: str) -> None:
        """Whoever waited does so no more, whatever came of it."""
        self._timers.pop(correlation_id).cancel()
        self._waiting.pop(correlation_id).cancel()

    def take(self, connection: Connection, pushed: Command) -> Command:
        """Handles PUSH_REPLY_MESSAGE_TO_CLIENT. One that nobody waits for any more is answered, too."""
        header = PushReplyMessage.decode(pushed.ext)
        properties = wire_properties.decode_text(header.properties or "")
        try:
            body = decompress(pushed.body, header.sys_flag)
        except WireError as error:
            logger.warning("fail reply peer=%s cause=%s", connection.peer_text, error)
            return reply(pushed, Response.SYSTEM_ERROR, str(error))
        correlation_id = properties.get(Property.CORRELATION_ID, "")
        properties[Property.ARRIVE_TIME] = str(self._clock.now_ms())
        future = self._waiting.get(correlation_id)
        if future is not None and not future.done():
            future.set_result(Reply(header, body, properties))
        else:
            logger.warning("drop reply correlation_id=%s: nobody waits for it", correlation_id)
        return reply(pushed)

    def stop(self, error: Exception) -> None:
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)


def reply_address(properties: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Topic and properties of the reply to a message with these properties. CannotReply if it was no request."""
    missing = [name for name in (Property.CLUSTER, *_COPIED) if not properties.get(name)]
    if missing:
        raise CannotReply(f"the message is not a request: it has no {', '.join(missing)}")
    copied = {name: properties[name] for name in _COPIED}
    topic = REPLY_TOPIC.format(cluster=properties[Property.CLUSTER])
    return topic, {Property.MSG_TYPE: REPLY_TYPE, **copied}


def _expire(future: "asyncio.Future[Reply]", timeout_s: float) -> None:
    if not future.done():
        future.set_exception(RequestTimeout(f"no reply within {timeout_s} s"))
