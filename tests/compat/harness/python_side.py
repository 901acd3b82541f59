"""The Python client behind the words of `sides.py`: it runs on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from cometmq.client.client import Client
from cometmq.client.codecs import text_codec
from cometmq.client.consume.pull import PullConsumer
from cometmq.client.consume.push import PushConsumer
from cometmq.client.messages import Message
from cometmq.client.options import ConsumerOptions, StartFrom
from cometmq.client.produce.producer import Producer
from cometmq.client.produce.transactions import TransactionProducer, Tx
from cometmq.wire.bodies import MessageQueue
from tests.compat.harness.sides import TAKE_TIMEOUT_S, Consuming, Got, Out, Pulling, Sent, Transacting

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0
SEND_TIMEOUT_S = 20.0
ROUTE_REFRESH_S = 1.0
STATES = {"commit": Tx.COMMIT, "rollback": Tx.ROLLBACK, "unknown": Tx.UNKNOWN}


class LoopThread:
    """An event loop that a test reaches from its own thread. What went wrong unseen is raised at the end."""

    def __init__(self) -> None:
        self.unseen: list[dict[str, Any]] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.unseen.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = CALL_TIMEOUT_S) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def close(self) -> None:
        left = self.run(self._others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert not self.unseen, self.unseen
        assert not left, left

    async def _others(self) -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


class PythonSide:
    name = "python"

    def __init__(self, namesrv: str, directory: Path) -> None:
        self._namesrv = namesrv
        self._directory = directory
        self._threads = LoopThread()
        self._clients: list[Client] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            self._run(client.stop())
        self._threads.close()

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float = CALL_TIMEOUT_S) -> T:
        return self._threads.run(work, timeout_s)

    async def _client(self, namespace: str = "", member: str = "") -> Client:
        client = Client(
            self._namesrv,
            namespace=namespace or None,
            instance_name=member or "DEFAULT",
            route_refresh=ROUTE_REFRESH_S,
            call_timeout=SEND_TIMEOUT_S,
        )
        await client.start()
        self._clients.append(client)
        return client

    # Sending

    def send(
        self, topic: str, *messages: Out, how: str = "sync", compression: str = "zlib", namespace: str = ""
    ) -> list[Sent]:
        return self._run(self._send(topic, messages, how, compression, namespace))

    async def _send(
        self, topic: str, messages: tuple[Out, ...], how: str, compression: str, namespace: str
    ) -> list[Sent]:
        client = await self._client(namespace)
        async with client.producer(
            f"{topic}_p", codec=text_codec, timeout=SEND_TIMEOUT_S, compression=compression
        ) as producer:
            if how == "batch":
                receipts = await producer.send_many(topic, [message.body for message in messages])
            elif how == "async":
                receipts = await asyncio.gather(*[_send_one(producer, topic, message) for message in messages])
            elif how == "oneway":
                for message in messages:
                    await producer.send_oneway(topic, message.body)
                receipts = []
            else:
                receipts = [await _send_one(producer, topic, message) for message in messages]
        return [Sent(it.id, it.status.value, it.queue.queue_id, it.offset) for it in receipts]

    def transact(self, topic: str, group: str) -> Transacting:
        return PythonTransacting(self._threads, self._run(self._client()), topic, group)

    def request(self, topic: str, *bodies: str) -> list[str]:
        return self._run(self._request(topic, bodies))

    async def _request(self, topic: str, bodies: tuple[str, ...]) -> list[str]:
        client = await self._client()
        async with client.producer(f"{topic}_asker", codec=text_codec) as producer:
            return [(await producer.request(topic, body, timeout=SEND_TIMEOUT_S)).value for body in bodies]

    # Consuming

    def consume(
        self,
        topic: str,
        group: str,
        *,
        tag: str = "*",
        sql: str = "",
        ordered: bool = False,
        broadcast: bool = False,
        member: str = "",
        fails: int = 0,
        retries_max: int = 16,
        namespace: str = "",
        serve: bool = False,
    ) -> Consuming:
        options = ConsumerOptions(
            start=StartFrom.FIRST,
            broadcast=broadcast,
            offsets_dir=self._directory if broadcast else None,
            max_retries=retries_max,
            suspend=0.1,
        )
        client = self._run(self._client(namespace, member))
        consumer = PushConsumer(group, options, codec=text_codec, instance=client.instance)
        client.adopt(consumer)
        consuming = PythonConsuming(self._threads, consumer, fails, serve)
        consumer.subscribe(
            topic, consuming.handle, tag=None if sql else tag, sql=sql or None, ordered=ordered, codec=text_codec
        )
        self._run(consumer.start())
        return consuming

    def serve(self, topic: str, group: str) -> Consuming:
        return self.consume(topic, group, serve=True)

    def pull(self, topic: str, group: str) -> Pulling:
        client = self._run(self._client())
        consumer = client.pull_consumer(group, codec=text_codec, auto_commit=False, start=StartFrom.FIRST)
        return PythonPulling(self._threads, consumer, topic)


class PythonConsuming:
    def __init__(self, threads: LoopThread, consumer: PushConsumer, fails: int, serve: bool) -> None:
        self._threads = threads
        self._consumer = consumer
        self._fails = fails
        self._serve = serve
        self._rows: list[Got] = []
        self._taken = 0
        self._changed = threading.Condition()

    async def handle(self, message: Message[str]) -> str | None:
        queue = message.queue
        assert queue is not None
        times = message.delivery_count - 1
        got = Got(
            message.value,
            message.id,
            message.topic,
            message.tag,
            " ".join(message.keys),
            dict(message.properties),
            queue.queue_id,
            message.offset,
            times,
        )
        with self._changed:
            self._rows.append(got)
            self._changed.notify_all()
        if message.value.startswith("bad") and times < self._fails:
            raise LookupError("as agreed")
        return f"re: {message.value}" if self._serve else None

    def take(self, count: int = 1, timeout_s: float = TAKE_TIMEOUT_S) -> list[Got]:
        target = self._taken + count
        with self._changed:
            done = self._changed.wait_for(lambda: len(self._rows) >= target, timeout_s)
            assert done, f"{len(self._rows) - self._taken} of {count} messages within {timeout_s:g} s: {self._rows}"
            taken, self._taken = self._rows[self._taken : target], target
        return taken

    @property
    def seen(self) -> list[Got]:
        return list(self._rows)

    def stop(self) -> None:
        self._threads.run(self._consumer.stop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class PythonPulling:
    def __init__(self, threads: LoopThread, consumer: PullConsumer[str], topic: str) -> None:
        self._threads = threads
        self._consumer = consumer
        self._queues: dict[int, MessageQueue] = {}
        threads.run(self._start(topic))

    async def _start(self, topic: str) -> None:
        await self._consumer.start()
        queues = await self._consumer.queues(topic)
        self._queues = {queue.queue_id: queue for queue in queues}
        await self._consumer.assign(queues)

    def seek(self, queue_id: int, offset: int) -> None:
        self._threads.run(self._consumer.seek(self._queues[queue_id], offset))

    def poll(self) -> list[str]:
        return [message.value for message in self._threads.run(self._consumer.poll(timeout=2.0))]

    def commit(self) -> None:
        self._threads.run(self._consumer.commit())

    def committed(self, queue_id: int) -> int:
        offset = self._threads.run(self._consumer.committed(self._queues[queue_id]))
        return -1 if offset is None else offset

    def stop(self) -> None:
        self._threads.run(self._consumer.stop())


async def _send_one(producer: Producer[str], topic: str, message: Out) -> Any:
    return await producer.send(
        topic,
        message.body,
        tag=message.tag,
        keys=message.keys.split(),
        properties=message.properties,
        ordering_key=message.key,
        delay_level=message.delay_level or None,
    )


class PythonTransacting:
    def __init__(self, threads: LoopThread, client: Client, topic: str, group: str) -> None:
        self._threads = threads
        self._topic = topic
        self._asked: list[str] = []
        self._changed = threading.Condition()
        self._producer: TransactionProducer[str] = client.transaction_producer(
            group, check=self._check, codec=text_codec, timeout=SEND_TIMEOUT_S
        )
        threads.run(self._producer.start())

    async def _check(self, message: Message[str]) -> Tx:
        with self._changed:
            self._asked.append(message.value)
            self._changed.notify_all()
        return STATES[message.properties["answer"]]

    def send(self, body: str, state: str, answer: str = "commit") -> None:
        self._threads.run(self._send(body, state, answer))

    async def _send(self, body: str, state: str, answer: str) -> None:
        async with self._producer.begin(self._topic, body, properties={"answer": answer}) as transaction:
            transaction.state = STATES[state]

    def await_asked(self, *bodies: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: set(bodies) <= set(self._asked), CALL_TIMEOUT_S), self._asked

    def stop(self) -> None:
        self._threads.run(self._producer.stop())
