"""Topics with JSON bodies, for tests of pipelines that parse them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from cometmq import Client
from cometmq.testing import SyncCluster


def send_json(cluster: SyncCluster, topic: str, bodies: list[Any], *, raw: bool = False, **message: Any) -> None:
    """Objects as JSON bodies (`raw`: as they are), one after the other in one queue."""

    async def main() -> None:
        async with Client(cluster.namesrv) as client, client.producer("filler") as producer:
            queues = await producer.queues(topic)
            for body in bodies:
                await producer.ready()
                producer.send_soon(topic, body if raw else json.dumps(body).encode(), queue=queues[0], **message)
            await producer.flush()

    asyncio.run(main())
