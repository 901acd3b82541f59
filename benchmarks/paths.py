"""The hot paths of a broker, each without sockets: CPU from the bytes of a request to the bytes of its answer.

    python -m benchmarks.paths [PATH ...] [--count N] [--profile]
    PYTHONPATH=build/compiled python -m benchmarks.paths        the compiled build

    send          a message of 1 KiB as a Java producer sends it, JSON header, four at once
    send-binary   the same with the binary header, which RocketMQ's benchmark programs use
    batch         32 messages of 1 KiB in one request; a figure is for one message
    pull          32 messages in one answer; a figure is for one message
    offset        a consumer says how far it is
    transaction   a half message and its commit
    wake-up       a pull that waits, and the send that ends its wait

One broker in this process; a transport that keeps what is written. Times are CPU of the whole process with its flush
thread, so a busy machine disturbs little. `gate.py` compares these with what they cost before.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from benchmarks.broker_path import QUEUES, TOPIC, CountingTransport, pull_fields, send_frame
from cometmq.broker.admin import settings
from cometmq.broker.server import Broker
from cometmq.net import connection as connection_module
from cometmq.net.connection import Connection
from cometmq.net.loop import run
from cometmq.wire.command import ROCKETMQ, encode, request
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message_id import decode_offset_id

BODY: Final = bytes(range(256)) * 4
TOGETHER: Final = 4
BATCH: Final = 32
WOKEN_TRIES: Final = 300
COUNTS: Final = {
    "send": 8_000,
    "send-binary": 8_000,
    "batch": 16_000,
    "pull": 32_000,
    "offset": 8_000,
    "transaction": 3_000,
    "wake-up": 3_000,
}


class Scene:
    """A broker and one connection to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.transport = KeepingTransport()
        self.connection = Connection(broker.server.endpoint, broker.server.dispatcher, True)
        self.connection.connection_made(self.transport)
        self.number = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    async def feed(self, data: list[bytes]) -> float:
        """CPU seconds; now and then the loop's own timers run, as they would between two sockets."""
        began_s = time.process_time()
        for number, chunk in enumerate(data):
            self.connection.data_received(chunk)
            # A turn that is counted is long, and more input in it would wait in line (net/turns.py).
            if number % 50 == 0 or self.broker.server.endpoint.turn_until_s:
                await asyncio.sleep(0)
        return time.process_time() - began_s

    def answers(self) -> bytes:
        """What was written since the last call."""
        written = b"".join(self.transport.kept)
        self.transport.kept.clear()
        return written


class KeepingTransport(CountingTransport):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[bytes] = []

    def write(self, data: bytes) -> None:
        super().write(data)
        self.kept.append(bytes(data))


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    with tempfile.TemporaryDirectory() as directory:
        texts = {
            "storePathRootDir": directory,
            "listenPort": "0",
            "mappedFileSizeCommitLog": str(1 << 28),
            "transactionCheckInterval": "3600000",
            "brokerFastFailureEnable": "false",
        }
        broker = Broker(settings.load(texts))
        await broker.start()
        await asyncio.sleep(2.5)  # the first rounds of delays and timers, which look at more than later ones, are over
        found = Scene(broker)
        await found.feed([send_frame(found.next(), BODY) for _ in range(2_000)])
        assert b'"code":0' in found.answers()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        yield found
        found.connection.connection_lost(None)
        await broker.stop()
        gc.unfreeze()


def _joined(frames: list[bytes], count: int = TOGETHER) -> list[bytes]:
    return [b"".join(frames[at : at + count]) for at in range(0, len(frames), count)]


async def _send(on: Scene, count: int) -> float:
    cpu_s = await on.feed(_joined([send_frame(on.next(), BODY) for _ in range(count)]))
    assert on.answers().count(b'"code":0') == count
    return cpu_s


def _properties(number: int) -> str:
    return f"KEYS\x01key{number}\x02UNIQ_KEY\x017F0000010C2B18B4AAC2{number:012X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def _binary_send(number: int, properties: str, body: bytes = BODY, code: int = 310, batch: bool = False) -> bytes:
    ext = {
        "a": "benchmark_producer", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": "0",
        "g": "1794725598148", "h": "0", "i": properties, "j": "0", "k": "false", "m": "true" if batch else "false",
        "n": "broker-a",
    }  # fmt: skip
    return encode(request(code, ext, body, opaque=number, form=ROCKETMQ))


async def _send_binary(on: Scene, count: int) -> float:
    numbers = [on.next() for _ in range(count)]
    cpu_s = await on.feed(_joined([_binary_send(number, _properties(number)) for number in numbers]))
    assert on.answers().count(b"queueOffset") == count
    return cpu_s


async def _batch(on: Scene, count: int) -> float:
    frames = []
    for _ in range(count // BATCH):
        members = [(0, BODY, f"UNIQ_KEY\x017F0000010C2B18B4AAC2{on.next():012X}\x02WAIT\x01true\x02".encode())
                   for _ in range(BATCH)]  # fmt: skip
        frames.append(_binary_send(on.next(), "WAIT\x01true\x02", encode_batch(members), 320, True))
    cpu_s = await on.feed(frames)
    assert on.answers().count(b"queueOffset") == len(frames)
    return cpu_s


def _binary_pull(number: int, queue_id: int, offset: int) -> bytes:
    return encode(request(11, pull_fields(queue_id, offset), opaque=number, form=ROCKETMQ))


async def _pull(on: Scene, count: int) -> float:
    turns = count // 32
    each = max(1, on.broker.store.queue_bounds(TOPIC, 0)[1] // 32)
    frames = [_binary_pull(on.next(), turn % QUEUES, turn // QUEUES % each * 32) for turn in range(turns)]
    cpu_s = await on.feed(frames)
    assert len(on.answers()) > turns * 32 * len(BODY)
    return cpu_s


async def _offset(on: Scene, count: int) -> float:
    frames = []
    for _ in range(count):
        number = on.next()
        ext = {"consumerGroup": "benchmark_consumer", "topic": TOPIC, "queueId": str(number % QUEUES),
               "commitOffset": str(number)}  # fmt: skip
        frames.append(encode(request(15, ext, opaque=number, form=ROCKETMQ)))
    return await on.feed(_joined(frames))


async def _transaction(on: Scene, count: int) -> float:
    numbers = [on.next() for _ in range(count)]
    halves = [
        _binary_send(number, f"{_properties(number)}TRAN_MSG\x01true\x02PGROUP\x01benchmark_producer\x02")
        for number in numbers
    ]
    cpu_s = await on.feed(_joined(halves))
    answered = on.answers()
    ids = re.findall(rb"msgId\x00\x00\x00\x20([0-9A-F]{32})", answered)
    offsets = re.findall(rb"queueOffset\x00\x00\x00.(\d+)", answered, re.DOTALL)
    assert len(ids) == len(offsets) == count, (len(ids), len(offsets))
    ends = []
    for offset_id, offset in zip(ids, offsets, strict=True):
        ext = {
            "topic": TOPIC, "producerGroup": "benchmark_producer", "tranStateTableOffset": offset.decode(),
            "commitLogOffset": str(decode_offset_id(offset_id.decode()).physical_offset), "commitOrRollback": "8",
            "fromTransactionCheck": "false", "msgId": "7F0000010C2B18B4AAC2", "transactionId": "7F0000010C2B18B4AAC2",
        }  # fmt: skip
        ends.append(encode(request(37, ext, opaque=on.next(), form=ROCKETMQ, oneway=True)))
    put_before = on.broker.store.log.metrics.messages
    cpu_s += await on.feed(_joined(ends))
    put = on.broker.store.log.metrics.messages - put_before
    assert put >= count, f"{put} of {count} were committed"
    return cpu_s


async def _wake_up(on: Scene, count: int) -> float:
    """One queue of one topic, in turns: wait, and be woken."""
    cpu_s = 0.0
    end = on.broker.store.queue_bounds(TOPIC, 0)[1]
    for first in range(0, count, 50):
        frames = []
        for at in range(first, min(first + 50, count)):
            frames.append(_binary_pull(on.next(), 0, end + at))
            number = on.next()
            frames.append(_binary_send(number - number % QUEUES, _properties(number)))
        cpu_s += await on.feed(frames)
    found = on.answers().count(b"nextBeginOffset")
    for _ in range(WOKEN_TRIES):
        if found >= count:
            break
        await asyncio.sleep(0.1)
        found += on.answers().count(b"nextBeginOffset")
    assert found == count, f"{found} of {count} were woken"
    return cpu_s


PATHS: Final[dict[str, Callable[[Scene, int], Awaitable[float]]]] = {
    "send": _send,
    "send-binary": _send_binary,
    "batch": _batch,
    "pull": _pull,
    "offset": _offset,
    "transaction": _transaction,
    "wake-up": _wake_up,
}


def is_compiled() -> bool:
    return str(connection_module.__file__).endswith(".so")


async def measure(names: list[str], count: int, profile: bool) -> None:
    async with scene() as on:
        for name in names:
            count_of_path = count or COUNTS[name]
            await PATHS[name](on, count_of_path // 8)
            watch = cProfile.Profile()
            if profile:
                watch.enable()
            cpu_s = await PATHS[name](on, count_of_path)
            watch.disable()
            print(f"{name:12} {cpu_s / count_of_path * 1e6:7.2f} us")
            if profile:
                pstats.Stats(watch).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU of a broker's hot paths")
    parser.add_argument("paths", nargs="*", default=list(PATHS), metavar="PATH", help=", ".join(PATHS))
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print("compiled" if is_compiled() else "interpreted")
    run(measure(options.paths, options.count, options.profile))


if __name__ == "__main__":
    main()
