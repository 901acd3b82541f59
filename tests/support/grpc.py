"""A gRPC client with nothing but calls, over a real socket: what RocketMQ's 5.x clients send, spelled out.

async with GrpcPeer.of(broker) as peer:
    await peer.settle_consumer("g", {"T": "*"})
    answer = await peer.call("SendMessage", send_request("T", b"hello"), pb.SendMessageResponse)
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from google.protobuf.message import Message

from cometmq.broker.server import Broker
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2 import frames as h2
from tests.support.http2 import GREETING, Frames, call_headers, frame, header_block, prefixed

M = TypeVar("M", bound=Message)
PATIENCE_S = 30.0
WINDOW = 1 << 30


def send_request(topic: str, *bodies: bytes, **system: object) -> pb.SendMessageRequest:
    """`system` are fields of SystemProperties; `properties` those of the user."""
    user = system.pop("properties", {})
    messages = []
    for number, body in enumerate(bodies):
        fields = {"message_id": f"ID{number:032d}", "born_host": "here", **system}
        message = pb.Message(topic=pb.Resource(name=topic), body=body, user_properties=user)  # type: ignore[arg-type]
        message.system_properties.CopyFrom(pb.SystemProperties(**fields))  # type: ignore[arg-type]
        message.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
        messages.append(message)
    return pb.SendMessageRequest(messages=messages)


def receive_request(
    topic: str, group: str = "g", count: int = 32, invisible_ms: int = 15_000, poll_ms: int = 5_000, **fields: object
) -> pb.ReceiveMessageRequest:
    request = pb.ReceiveMessageRequest(
        group=pb.Resource(name=group),
        message_queue=pb.MessageQueue(topic=pb.Resource(name=topic)),
        batch_size=count,
        filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
    )
    request.invisible_duration.FromMilliseconds(invisible_ms)
    request.long_polling_timeout.FromMilliseconds(poll_ms)
    request.MergeFrom(pb.ReceiveMessageRequest(**fields))  # type: ignore[arg-type]
    return request


class GrpcPeer:
    """`headers` go with every call."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self.frames = Frames()
        self.headers: dict[str, str] = {"x-mq-client-id": client_id, "x-mq-language": "JAVA",
                                        "x-mq-client-version": "5.2.0"}  # fmt: skip
        self._reader = reader
        self.writer = writer
        self._next_id = 1
        self._news = asyncio.Event()
        self.is_closed = False
        self._task = asyncio.ensure_future(self._read())

    @classmethod
    @asynccontextmanager
    async def of(
        cls, broker: Broker, client_id: str = "c1", tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[GrpcPeer]:
        assert broker.grpc_address is not None
        async with cls.at(broker.grpc_address, client_id, tls) as peer:
            yield peer

    @classmethod
    @asynccontextmanager
    async def at(
        cls, address: str, client_id: str = "c1", tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[GrpcPeer]:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=tls, server_hostname="localhost" if tls else None
        )
        peer = cls(reader, writer, client_id)
        writer.write(GREETING + frame(h2.SETTINGS, 0, 0, b"\x00\x04\x40\x00\x00\x00")
                     + frame(h2.WINDOW_UPDATE, 0, 0, WINDOW.to_bytes(4, "big")))  # fmt: skip
        try:
            yield peer
        finally:
            peer._task.cancel()
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await self._reader.read(1 << 16):
                self.frames.feed(data)
                self._news.set()
        self.is_closed = True
        self._news.set()

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # type: ignore[operator]
                assert not self.is_closed, "the connection was closed"
                self._news.clear()
                await self._news.wait()

    # Calls

    def begin(self, rpc: str, request: Message | None = None, *, ends: bool = True, **more: str) -> int:
        """The stream of a call."""
        stream_id, self._next_id = self._next_id, self._next_id + 2
        fields = call_headers(rpc) | self.headers | {name.replace("_", "-"): value for name, value in more.items()}
        parts = [frame(h2.HEADERS, h2.END_HEADERS, stream_id, header_block(fields))]
        if request is not None:
            data = prefixed(request.SerializeToString())
            for start in range(0, len(data), h2.FRAME_BYTES_MAX):
                piece = data[start : start + h2.FRAME_BYTES_MAX]
                is_last = start + len(piece) == len(data)
                parts.append(frame(h2.DATA, h2.END_STREAM if ends and is_last else 0, stream_id, piece))
        self.writer.write(b"".join(parts))
        return stream_id

    def say(self, stream_id: int, message: Message) -> None:
        self.writer.write(frame(h2.DATA, 0, stream_id, prefixed(message.SerializeToString())))

    def give_up(self, stream_id: int) -> None:
        self.writer.write(frame(h2.RST_STREAM, 0, stream_id, b"\x00\x00\x00\x08"))

    async def end(self, stream_id: int) -> list[bytes]:
        """All messages of a call's answer; AssertionError unless its status is 0."""
        await self.until(lambda: self.frames.trailers(stream_id) is not None)
        assert self.status(stream_id) == 0, self.frames.trailers(stream_id)
        return self.frames.messages(stream_id)

    def status(self, stream_id: int) -> int:
        trailers = self.frames.trailers(stream_id) or b""
        start = trailers.index(b"grpc-status") + 11
        return int(trailers[start + 1 : start + 1 + trailers[start]])

    async def call(self, rpc: str, request: Message, kind: type[M], **more: str) -> M:
        (message,) = await self.end(self.begin(rpc, request, ends=True, **more))
        return kind.FromString(message)

    async def refused(self, rpc: str, request: Message | None = None, **more: str) -> int:
        """The status of gRPC with which a call ends."""
        stream_id = self.begin(rpc, request, ends=True, **more)
        await self.until(lambda: self.frames.trailers(stream_id) is not None)
        return self.status(stream_id)

    # What clients do

    async def settle(self, settings: pb.Settings) -> tuple[int, pb.TelemetryCommand]:
        """The telemetry stream, and the first answer on it."""
        stream_id = self.begin("Telemetry", pb.TelemetryCommand(settings=settings), ends=False)
        await self.until(lambda: self.frames.messages(stream_id))
        return stream_id, pb.TelemetryCommand.FromString(self.frames.messages(stream_id)[0])

    async def settle_producer(self, *topics: str) -> int:
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.topics.extend(pb.Resource(name=topic) for topic in topics)
        stream_id, answer = await self.settle(settings)
        assert answer.status.code == pb.OK, answer
        return stream_id

    async def settle_consumer(
        self, group: str, topics: Mapping[str, str], kind: pb.ClientType = pb.SIMPLE_CONSUMER
    ) -> pb.Settings:
        _, answer = await self.settle(consumer_settings(group, topics, kind))
        assert answer.status.code == pb.OK, answer
        return answer.settings

    async def told(self, stream_id: int, count: int) -> list[pb.TelemetryCommand]:
        """The first so many commands of the server."""
        await self.until(lambda: len(self.frames.messages(stream_id)) >= count)
        return [pb.TelemetryCommand.FromString(it) for it in self.frames.messages(stream_id)]

    async def send(self, topic: str, *bodies: bytes, **system: object) -> pb.SendMessageResponse:
        return await self.call("SendMessage", send_request(topic, *bodies, **system), pb.SendMessageResponse)

    async def receive(self, topic: str, group: str = "g", **fields: object) -> list[pb.Message]:
        code, messages = await self.try_receive(topic, group, **fields)
        assert code in (pb.OK, pb.MESSAGE_NOT_FOUND), pb.Code.Name(code)
        return messages

    async def try_receive(self, topic: str, group: str = "g", **fields: object) -> tuple[pb.Code, list[pb.Message]]:
        stream_id = self.begin("ReceiveMessage", receive_request(topic, group, **fields))  # type: ignore[arg-type]
        return received(await self.end(stream_id))

    async def ack(self, message: pb.Message, group: str = "g") -> pb.Code:
        answer = await self.call("AckMessage", ack_request(message, group), pb.AckMessageResponse)
        assert answer.status.code == answer.entries[0].status.code
        return answer.status.code

    async def later(self, message: pb.Message, ms: int, group: str = "g") -> pb.ChangeInvisibleDurationResponse:
        system = message.system_properties
        request = pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name=group), topic=message.topic, receipt_handle=system.receipt_handle,
            message_id=system.message_id,
        )  # fmt: skip
        request.invisible_duration.FromMilliseconds(ms)
        return await self.call("ChangeInvisibleDuration", request, pb.ChangeInvisibleDurationResponse)


def consumer_settings(group: str, topics: Mapping[str, str], kind: pb.ClientType = pb.SIMPLE_CONSUMER) -> pb.Settings:
    settings = pb.Settings(client_type=kind)
    settings.subscription.group.name = group
    for topic, expression in topics.items():
        entry = pb.SubscriptionEntry(topic=pb.Resource(name=topic))
        entry.expression.CopyFrom(pb.FilterExpression(type=pb.TAG, expression=expression))
        settings.subscription.subscriptions.append(entry)
    return settings


def ack_request(message: pb.Message, group: str = "g") -> pb.AckMessageRequest:
    system = message.system_properties
    entry = pb.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
    return pb.AckMessageRequest(group=pb.Resource(name=group), topic=message.topic, entries=[entry])


def received(parts: list[bytes]) -> tuple[pb.Code, list[pb.Message]]:
    """Of the messages of a receive's answer: status first, delivery time last."""
    whole = [pb.ReceiveMessageResponse.FromString(part) for part in parts]
    assert whole[0].HasField("status")
    assert whole[-1].HasField("delivery_timestamp")
    return whole[0].status.code, [it.message for it in whole[1:-1]]


def signed(user: str, password: str, date: str = "20261119T120000Z") -> dict[str, str]:
    """The headers with which a 5.x client signs."""
    digest = hmac.new(password.encode(), date.encode(), hashlib.sha1).hexdigest().upper()
    parts = f"Credential={user}/x/Rocketmq, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": date, "authorization": f"MQv2-HMAC-SHA1 {parts}"}
