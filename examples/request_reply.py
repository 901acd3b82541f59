"""A question and its answer through the queue: what a handler returns goes back to who asked."""

import asyncio
import os

from cometmq import Client, json_codec
from cometmq.errors import RequestTimeout

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")
TOPIC = "example-sums"


async def main() -> list[int]:
    async with Client(NAMESRV) as client, client.admin() as admin:
        await admin.create_topic(TOPIC, queues=2)
        app = client.push_consumer("example-calculators")

        @app.on(TOPIC, codec=json_codec)
        async def add(numbers: list[int]) -> int:
            return sum(numbers)

        answers: list[int] = []
        async with app, client.producer("example-askers", codec=json_codec) as producer:
            for question in ([1, 2, 3], [40, 2]):
                reply = await producer.request(TOPIC, question, timeout=30.0)
                print(f"{question} -> {reply.value}")
                answers.append(reply.value)
        async with client.producer("example-impatient", codec=json_codec) as producer:
            try:
                await producer.request(TOPIC, [1], timeout=0.2)
            except RequestTimeout as error:
                print(f"nobody is there any more: {error}")
        return answers


if __name__ == "__main__":
    asyncio.run(main())
