"""The load of one round of `benchmarks.client`, with our client; prints one JSON object."""

import asyncio
import json
import sys
import time

from cometmq.client.client import Client
from cometmq.client.messages import Message
from cometmq.client.options import StartFrom
from cometmq.client.produce.producer import Producer
from cometmq.net.loop import run

WINDOW = 64
WARM_UP = 500


class Clock:
    """Wall time and CPU of this process since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu = time.process_time()

    def result(self, latencies: list[float]) -> dict[str, object]:
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        return {"seconds": seconds, "cpu": cpu, "latencies": latencies}


async def send_one(producer: Producer[bytes], topic: str, count: int) -> dict[str, object]:
    latencies = []
    clock = Clock()
    for _ in range(count):
        began = time.perf_counter()
        await producer.send(topic, b"x" * 1024)
        latencies.append((time.perf_counter() - began) * 1e6)
    return clock.result(latencies)


async def send_window(producer: Producer[bytes], topic: str, count: int) -> dict[str, object]:
    async def lane() -> None:
        for _ in range(count // WINDOW):
            await producer.send(topic, b"x" * 1024)

    clock = Clock()
    await asyncio.gather(*[lane() for _ in range(WINDOW)])
    return clock.result([])


async def send_batch(producer: Producer[bytes], topic: str, count: int) -> dict[str, object]:
    clock = Clock()
    await producer.send_many(topic, (b"x" * 100 for _ in range(count)))
    return clock.result([])


async def receive(client: Client, topic: str, count: int) -> dict[str, object]:
    consumer = client.push_consumer(f"{topic}_{time.time_ns()}", start=StartFrom.FIRST)
    seen = 0
    clock: Clock | None = None
    done = asyncio.Event()

    @consumer.on(topic)
    async def handle(message: Message[bytes]) -> None:
        nonlocal seen, clock
        if clock is None:
            clock = Clock()
        seen += 1
        if seen == count:
            done.set()

    async with consumer:
        await done.wait()
        assert clock is not None
        return clock.result([])


async def main(namesrv: str, topic: str, mode: str, count: int) -> None:
    async with Client(namesrv) as client:
        if mode == "receive":
            print(json.dumps(await receive(client, topic, count)))
            return
        async with client.producer("bench_producer", topics=(topic,), timeout=20.0) as producer:
            if mode != "batch":  # the topic of the batch is received, and counted
                for _ in range(WARM_UP):
                    await producer.send(topic, b"warm")
            send = {"one": send_one, "window": send_window, "batch": send_batch}[mode]
            print(json.dumps(await send(producer, topic, count)))


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
