"""`cometmq bench`: load from the tool itself, against any cluster.

    cometmq bench send --mode sync|async|oneway|batch --count 20000 --size 1024 --senders 32
    cometmq bench consume --topic cometmq-bench
    cometmq bench latency --rate 200 --count 1000          from before the send to after the receive, one clock

    sync      each sender waits for its answer before its next message
    async     as many on their way as --in-flight allows
    oneway    no answers: the fastest, and what is lost is lost
    batch     many messages in one request

One process of Python is the load: it measures what such a client gets, not what a broker can do at most. Topic
`cometmq-bench` is made if it is not there and stays; delete it when you are done.
"""

import argparse
import asyncio
import os
import struct
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, count, run_noun, size
from cometmq.cli.shared.connect import administration, client_of
from cometmq.cli.shared.failures import EXIT_NO
from cometmq.cli.shared.histogram import Histogram
from cometmq.cli.shared.reading import Reader
from cometmq.errors import Backpressure, CometError, NoRoute

if TYPE_CHECKING:
    from cometmq.client.client import Client
    from cometmq.client.messages import Message, SendReceipt
    from cometmq.client.produce.producer import Producer

TOPIC: Final = "cometmq-bench"
GROUP: Final = "cometmq-bench"
MODES: Final = ("sync", "async", "oneway", "batch")
BATCH_COUNT: Final = 32
# Which run sent it, and when: another bench may send to the same topic.
_STAMP: Final = struct.Struct(">8sd")


def main(argv: list[str]) -> int:
    return run_noun("bench", "Load from the tool itself: send, consume, latency.", VERBS, argv)


class Run:
    """What happened: counts, times, the first error."""

    def __init__(self, wanted: int) -> None:
        self.left = wanted
        self.done = 0
        self.failed = 0
        self.unconfirmed = 0
        self.error: CometError | None = None
        self.times = Histogram()
        self._began_s = time.perf_counter()

    def take(self, most: int = 1) -> int:
        """How many the caller may send now; 0: all were taken."""
        taken = min(self.left, most)
        self.left -= taken
        return taken

    async def measure(self, work: "Awaitable[SendReceipt | list[SendReceipt]]", messages: int = 1) -> None:
        began_s = time.perf_counter()
        try:
            receipts = await work
        except CometError as error:
            self.failed += messages
            self.error = self.error or error
        else:
            self.done += messages
            self.times.add((time.perf_counter() - began_s) * 1000)
            given = receipts if isinstance(receipts, list) else [receipts]
            self.unconfirmed += sum(not receipt.is_confirmed for receipt in given)

    def figures(self, body_bytes: int) -> dict[str, Any]:
        seconds = max(1e-9, time.perf_counter() - self._began_s)
        return {
            "messages": self.done,
            "failed": self.failed,
            "unconfirmed": self.unconfirmed,
            "seconds": round(seconds, 3),
            "per_second": round(self.done / seconds, 1),
            "mib_per_second": round(self.done * body_bytes / seconds / (1 << 20), 2),
        }


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", default=TOPIC, help=f"default {TOPIC}")
    parser.add_argument("-n", "--count", type=count, default=10_000, metavar="N", help="messages; default 10000")


def _send_arguments(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument("--mode", choices=MODES, default="sync")
    parser.add_argument("--size", type=size, default=1024, metavar="BYTES", help="of a body; default 1024")
    parser.add_argument("--senders", type=count, default=32, metavar="N", help="at once in sync and batch; default 32")
    parser.add_argument("--in-flight", type=count, default=512, metavar="N", help="in mode async; default 512")
    parser.add_argument("--queues", type=count, default=8, metavar="N", help="of the topic if it is made; default 8")


async def _send(options: argparse.Namespace) -> int:
    body = b"x" * options.size
    async with client_of(options) as client:
        await _need_topic(client, options)
        async with client.producer(GROUP, topics=(options.topic,), max_in_flight=options.in_flight) as producer:
            run = Run(options.count)
            workers = {"oneway": 1, "async": options.in_flight}.get(options.mode, options.senders)
            send = _SENDERS[options.mode]
            await asyncio.gather(*[send(producer, options.topic, body, run) for _ in range(workers)])
            figures = run.figures(options.size)
    if run.error is not None and not run.done:
        raise run.error  # nothing arrived: that is no measurement, and its cause decides the exit code
    _report(options.output, {"mode": options.mode, "size": options.size, **figures}, run)
    return EXIT_NO if run.failed else 0


async def _need_topic(client: "Client", options: argparse.Namespace) -> None:
    async with client.admin(timeout_s=options.timeout) as admin:
        try:
            await admin.topic_route(options.topic)
        except NoRoute:
            await admin.create_topic(options.topic, queues=options.queues)
            output.note(f"created topic {options.topic}")


async def _send_each(producer: "Producer[bytes]", topic: str, body: bytes, run: Run) -> None:
    """One sender: the next message when the answer is there. `sync` and `async` differ by how many there are."""
    while run.take():
        await run.measure(producer.send(topic, body))


async def _send_oneway(producer: "Producer[bytes]", topic: str, body: bytes, run: Run) -> None:
    while run.take():
        began_s = time.perf_counter()
        try:
            writing = producer.send_oneway(topic, body)
        except Backpressure:
            run.left += 1
            await asyncio.sleep(0.001)
            continue
        if not writing.done() or run.done % 256 == 0:
            await asyncio.sleep(0)
        run.done += 1
        run.times.add((time.perf_counter() - began_s) * 1000)


async def _send_batch(producer: "Producer[bytes]", topic: str, body: bytes, run: Run) -> None:
    while taken := run.take(BATCH_COUNT):
        await run.measure(producer.send_many(topic, [body] * taken), taken)


_SENDERS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "sync": _send_each,
    "async": _send_each,
    "oneway": _send_oneway,
    "batch": _send_batch,
}


async def _consume(options: argparse.Namespace) -> int:
    """Reads from the beginning with pulls of 32, as a consumer far behind does; the times are those of the pulls."""
    run = Run(options.count)
    body_bytes = 0
    async with (
        administration(options) as admin,
        aclosing(Reader(admin, options.topic, pulled=run.times.add).messages("earliest")) as arrivals,
    ):
        async for message in arrivals:
            run.done += 1
            body_bytes += len(message.body)
            if run.done >= options.count:
                break
    mean = body_bytes // max(1, run.done)
    _report(options.output, {"mode": "consume", "size": mean, **run.figures(mean)}, run)
    return 0 if run.done else EXIT_NO


def _latency_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", default=TOPIC, help=f"default {TOPIC}")
    parser.add_argument("-n", "--count", type=count, default=500, metavar="N", help="messages; default 500")
    parser.add_argument("--rate", type=count, default=200, metavar="N", help="messages a second; default 200")
    parser.add_argument("--size", type=size, default=1024, metavar="BYTES")
    parser.add_argument("--queues", type=count, default=8, metavar="N", help="of the topic if it is made; default 8")


async def _latency(options: argparse.Namespace) -> int:
    async with client_of(options) as client:
        await _need_topic(client, options)
        async with client.admin(timeout_s=options.timeout) as admin, client.producer(GROUP) as producer:
            arrivals = Reader(admin, options.topic, follow=True).messages("latest")
            async with aclosing(arrivals):
                await _until_it_reads(producer, options.topic, arrivals)
                run = Run(options.count)
                own = os.urandom(8)
                sending = asyncio.create_task(_send_at_rate(producer, options, own))
                async for message in arrivals:
                    if len(message.body) >= _STAMP.size:
                        sender, sent_s = _STAMP.unpack_from(message.body)
                        if sender == own:
                            run.times.add((time.perf_counter() - sent_s) * 1000)
                            run.done += 1
                    if run.done >= options.count:
                        break
                await sending
            figures = run.figures(options.size)
    _report(options.output, {"mode": "latency", "size": options.size, **figures}, run)
    return 0


async def _until_it_reads(
    producer: "Producer[bytes]", topic: str, arrivals: "AsyncGenerator[Message[bytes], None]"
) -> None:
    """The tail of every queue is being waited for once a message of one byte came back."""
    first = asyncio.ensure_future(anext(arrivals))
    try:
        while not first.done():
            await producer.send(topic, b".")
            await asyncio.wait([first], timeout=0.2)
        first.result()
    finally:
        first.cancel()
        await asyncio.wait([first])  # a generator that still runs cannot be closed


async def _send_at_rate(producer: "Producer[bytes]", options: argparse.Namespace, own: bytes) -> None:
    began_s = time.monotonic()
    fill = b"x" * max(0, options.size - _STAMP.size)
    for number in range(options.count):
        await asyncio.sleep(max(0.0, began_s + number / options.rate - time.monotonic()))
        await producer.send(options.topic, _STAMP.pack(own, time.perf_counter()) + fill)


def _report(form: str, figures: dict[str, Any], run: Run) -> None:
    whole = {**figures, **run.times.figures()}
    if form in ("json", "yaml"):
        output.record(form, {**whole, "histogram": run.times.rows()})
    else:
        output.record(form, whole)
        print()
        print(run.times.drawing())
    if run.error is not None:
        output.note(f"first error: {run.error}")


VERBS: Final = (
    Verb("send", "send as fast as it goes; rates and times", _send, _send_arguments,
         example="cometmq bench send --mode batch -n 100000"),
    Verb("consume", "read as fast as it goes; rates and times of pulls", _consume, _common),
    Verb("latency", "from before the send to after the receive", _latency, _latency_arguments),
)  # fmt: skip
