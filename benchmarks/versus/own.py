"""Sends with our client, without end: python -m benchmarks.versus.own NAMESRV TOPIC UNDER_WAY BYTES"""

import asyncio
import sys

from cometmq import Client
from cometmq.net.loop import run


async def main(namesrv: str, topic: str, under_way: int, size: int) -> None:
    async with Client(namesrv) as client, client.producer("bench_own", topics=(topic,), timeout=20.0) as producer:

        async def lane() -> None:
            while True:
                await producer.send(topic, bytes(size))

        await asyncio.gather(*[lane() for _ in range(under_way)])


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
