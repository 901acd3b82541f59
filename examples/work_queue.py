"""A work queue: jobs for several workers, retries, dead letters, and their replay.

    return          done
    raise Retry     again after a while; after `max_retries` it is a dead letter
    raise Reject    a dead letter at once
"""

import asyncio
import os
from dataclasses import dataclass

from cometmq import Client, Message, Reject, Retry, StartFrom, typed_codec

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")
TOPIC = "example-jobs"
GROUP = "example-workers"


@dataclass
class Job:
    name: str
    kind: str = "easy"


class Workers:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.fixed = False
        self.over = asyncio.Event()

    async def work(self, job: Job, message: Message[Job]) -> None:
        self.log.append(f"{job.name}, try {message.delivery_count}")
        print(self.log[-1])
        if job.kind == "nonsense":
            raise Reject("nobody will ever be able to do this")
        if job.kind == "flaky" and message.delivery_count == 1:
            raise Retry(after=1)
        if job.kind == "broken" and not self.fixed:
            raise Retry(after=1)


async def dead_letters(client: Client, count: int) -> list[Message[bytes]]:
    """Wait until the group has given up on so many."""
    async with client.admin() as admin:
        while True:
            found = [message async for message in admin.dead_letters(GROUP)]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.1)


async def main() -> list[str]:
    workers = Workers()
    async with Client(NAMESRV) as client, client.admin() as admin:
        await admin.create_topic(TOPIC, queues=4)
        app = client.push_consumer(GROUP, concurrency=8, max_retries=2, start=StartFrom.FIRST)
        app.subscribe(TOPIC, workers.work)
        async with app, client.producer("example-dispatch", codec=typed_codec(Job)) as producer:
            for job in (Job("a"), Job("b", "flaky"), Job("c", "broken"), Job("d", "nonsense")):
                await producer.send(TOPIC, job, keys=[job.name])
            letters = await dead_letters(client, 2)
            print("dead letters:", sorted(key for letter in letters for key in letter.keys))

            workers.fixed = True
            broken = [letter.id for letter in letters if "c" in letter.keys]
            async for sent in admin.replay_dead_letters(GROUP, ids=broken):
                print(f"replayed {sent.id} to {sent.topic} as {sent.new_id}")
            while workers.log.count("c, try 1") < 2:
                await asyncio.sleep(0.05)
    return workers.log


if __name__ == "__main__":
    asyncio.run(main())
