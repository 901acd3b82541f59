"""A program that uses the Python client, as the victim of servers that lie. It is told the address of a name server.

    python -m tests.attack.victim NAMESRV

It asks for routes, sends, iterates, reads by offset and asks as an admin, over and over, whatever comes of it. `served`
counts the turns of an application task that has nothing to do with it: a client that blocks its loop, or fills the
memory, takes the program with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Awaitable, Callable

from cometmq import Client
from cometmq.errors import CometError
from tests.attack.launcher import Probe

PAUSE_S = 0.005
RUN_S = 3.0
TOPIC = "Topic"


class Application:
    """What the program does besides messaging."""

    def __init__(self) -> None:
        self.served = 0
        self.worst_s = 0.0

    async def run(self) -> None:
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(PAUSE_S)
            self.served += 1
            self.worst_s = max(self.worst_s, time.monotonic() - began_s - PAUSE_S)


async def attempt(step: Callable[[], Awaitable[object]], over_s: float) -> None:
    """Again and again. Errors of the library are what a program expects; anything else ends the victim, and the test
    with it."""
    while (left_s := over_s - time.monotonic()) > 0:
        with contextlib.suppress(CometError, TimeoutError):
            await asyncio.wait_for(step(), left_s)
        await asyncio.sleep(0.05)


async def use(address: str) -> None:
    over_s = time.monotonic() + RUN_S

    async def send() -> None:
        async with Client(address) as client, client.producer("p") as producer:
            await producer.send(TOPIC, b"body")

    async def consume() -> None:
        async with Client(address) as client, client.consumer("c", TOPIC) as consumer:
            async for message in consumer:
                assert len(message.body) >= 0

    async def administrate() -> None:
        async with Client(address) as client:
            admin = client.admin(timeout_s=1.0)
            for ask in (admin.topics, admin.cluster_state):
                with contextlib.suppress(CometError):
                    await ask()

    await asyncio.gather(*(attempt(step, over_s) for step in (send, consume, administrate)))


async def main() -> None:
    application = Application()
    probe = Probe()
    probe.install(asyncio.get_running_loop())
    ticking = asyncio.create_task(application.run())
    print("ready :0", flush=True)
    await use(sys.argv[1])
    ticking.cancel()
    print(json.dumps({"cpu_s": probe.cpu_s, "wall_s": probe.wall_s, "where": probe.where,
                      "served": application.served, "worst_s": application.worst_s}), flush=True)  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
