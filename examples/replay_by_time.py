"""Read a topic again from a moment on. A group of its own does not disturb the topic's other consumers."""

import asyncio
import os
from datetime import UTC, datetime

from cometmq import Client

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")
TOPIC = "example-readings"


async def send(client: Client, name: str) -> None:
    async with client.producer("example-sensors") as producer:
        await producer.send_many(TOPIC, [f"{name} {number}".encode() for number in range(10)])


async def main() -> list[str]:
    found: list[str] = []
    async with Client(NAMESRV) as client, client.admin() as admin:
        await admin.create_topic(TOPIC, queues=4)
        await send(client, "old")
        await asyncio.sleep(0.01)
        moment = datetime.now(UTC)
        await send(client, "new")

        async with client.pull_consumer("example-audit", auto_commit=False) as consumer:
            await consumer.assign(await consumer.queues(TOPIC))
            for queue in consumer.assignment:
                offset = await consumer.seek(queue, timestamp=moment)
                print(f"queue {queue.queue_id} from offset {offset}")
            while sum((await consumer.lag()).values()) > 0:
                found += [message.body.decode() for message in await consumer.poll(timeout=5.0)]
    print(f"{len(found)} messages since {moment:%H:%M:%S.%f}")
    return found


if __name__ == "__main__":
    asyncio.run(main())
