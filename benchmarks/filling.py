"""Fills a topic: python -m benchmarks.filling NAMESRV TOPIC COUNT BYTES"""

import asyncio
import sys

from cometmq import Client


async def fill(namesrv: str, topic: str, count: int, size: int) -> None:
    async with Client(namesrv) as client, client.producer("filling", max_in_flight=8192) as producer:
        await producer.send_many(topic, (bytes(size) for _ in range(count)))


if __name__ == "__main__":
    asyncio.run(fill(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
