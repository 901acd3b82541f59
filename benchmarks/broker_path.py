"""What one message costs inside the broker: CPU from the bytes of a request to the bytes of its answer.

    python -m benchmarks.broker_path [--messages N] [--body BYTES] [--chunk N] [--profile]
    PYTHONPATH=build/compiled python -m benchmarks.broker_path        the compiled build

One broker in this process, no sockets: frames as a Java producer writes them go to a connection with a transport that
only counts. A send is timed with all that follows from it on the loop: record, consume queue, index, figures, answer.
A pull reads 32 messages, one of a bulk reader, as Spark's are, up to 4096. Times are CPU of the whole process, flush
thread included, so a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import re
import struct
import tempfile
import time
from typing import Any

from cometmq.broker.admin import settings
from cometmq.broker.consume.pull import FLAG_BULK, FLAG_SUBSCRIPTION
from cometmq.broker.server import Broker
from cometmq.net import connection as connection_module
from cometmq.net.connection import Connection

TOPIC = "BenchmarkTest"
QUEUES = 16


class CountingTransport:
    """Stands for a socket whose peer reads everything at once."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.last = b""

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("127.0.0.1", 50_000) if name == "peername" else ("127.0.0.1", 10_911)

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)
        self.last = data

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


def frame(code: int, opaque: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    header: dict[str, Any] = {
        "code": code,
        "extFields": ext,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 513,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def send_frame(number: int, body: bytes) -> bytes:
    unique_id = f"7F0000010C2B18B4AAC2{number:012X}"
    properties = f"KEYS\x01key{number}\x02UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    ext = {
        "a": "benchmark_producer", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": "0",
        "g": "1794725598148", "h": "0", "i": properties, "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    return frame(310, number, ext, body)


def pull_fields(queue_id: int, offset: int, subscription: str = "*") -> dict[str, str]:
    """What a push consumer asks for: 32 messages, and to wait where there are none."""
    return {
        "consumerGroup": "benchmark_consumer", "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "15000",
        "subscription": subscription, "subVersion": "1", "expressionType": "TAG",
    }  # fmt: skip


async def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        texts = {"storePathRootDir": directory, "listenPort": "0", "mappedFileSizeCommitLog": str(1 << 28)}
        broker = Broker(settings.load(texts))
        await broker.start()
        await asyncio.sleep(2.5)  # the first rounds of delays and timers, which look at more than later ones, are over
        connection = Connection(broker.server.endpoint, broker.server.dispatcher, True)
        transport = CountingTransport()
        connection.connection_made(transport)
        await feed(connection, chunks([send_frame(n, b"x" * options.body) for n in range(2_000)], options.chunk))
        assert b'"code":0' in transport.last, transport.last
        frames = [send_frame(number, b"x" * options.body) for number in range(options.messages)]
        sends = chunks(frames, options.chunk)
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        await asyncio.sleep(0.1)  # the loop is back from making frames
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        cpu_s = await feed(connection, sends)
        if options.profile:
            profile.disable()
        assert b'"code":0' in transport.last, transport.last
        print(f"send of {options.body} bytes: {cpu_s / options.messages * 1e6:.1f} us")
        count = min(options.messages // QUEUES // 32, 60) * QUEUES
        pulls = [frame(11, n, pull_fields(n % QUEUES, n // QUEUES * 32, "TagA")) for n in range(count)]
        cpu_s = await feed(connection, pulls)
        assert b'"code":0' in transport.last[:200] or len(transport.last) > 30_000, transport.last[:300]
        print(f"pull of 32: {cpu_s / count * 1e6:.1f} us, {cpu_s / count / 32 * 1e6:.2f} us a message")
        fields = {"maxMsgNums": "4096", "sysFlag": str(FLAG_SUBSCRIPTION | FLAG_BULK)}
        bulk = [frame(11, n, {**pull_fields(n % QUEUES, 0), **fields}) for n in range(10 * QUEUES)]
        cpu_s = await feed(connection, bulk)
        told = re.search(rb'"nextBeginOffset":"(\d+)"', transport.last[:500])
        assert told is not None, transport.last[:500]
        count = int(told[1])
        print(f"bulk pull of {count}: {cpu_s / len(bulk) / count * 1e6:.2f} us a message")
        connection.connection_lost(None)
        await broker.stop()
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def chunks(frames: list[bytes], count: int) -> list[bytes]:
    return [b"".join(frames[at : at + count]) for at in range(0, len(frames), count)]


async def feed(connection: Connection, data: list[bytes]) -> float:
    """CPU seconds; now and then the loop's own timers run, as they would between two sockets."""
    began_s = time.process_time()
    for number, chunk in enumerate(data):
        connection.data_received(chunk)
        if number % 50 == 0:
            await asyncio.sleep(0)
    return time.process_time() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU per message inside the broker")
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=4, help="requests that arrive together")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    compiled = str(connection_module.__file__).endswith(".so")
    print(f"{'compiled' if compiled else 'interpreted'}, {options.messages} messages, {options.chunk} at once")
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
