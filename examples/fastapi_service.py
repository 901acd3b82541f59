"""A web service that sends and consumes: one client for its life, started and stopped with it.

    POST /orders       stores a message and answers with its id; 503 while no broker can take it
    GET /orders        what the consumer of the same process has seen

Run it with any ASGI server: `uvicorn --app-dir examples fastapi_service:app`. CometMQ runs on the server's own event
loop; there is no thread and nothing to configure.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, HTTPException

from cometmq import Client, Producer, StartFrom, typed_codec
from cometmq.errors import CometError

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")
TOPIC = "example-web-orders"


@dataclass
class Order:
    item: str
    count: int = 1


class Shop:
    """What lives as long as the service."""

    producer: Producer[Order]
    seen: list[Order]


shop = Shop()


@asynccontextmanager
async def life(_: FastAPI) -> AsyncIterator[None]:
    shop.seen = []
    async with Client(NAMESRV) as client, client.admin() as admin:
        await admin.create_topic(TOPIC, queues=4)
        consumers = client.push_consumer("example-web", concurrency=16, start=StartFrom.FIRST)

        @consumers.on(TOPIC)
        async def handle(order: Order) -> None:
            shop.seen.append(order)

        async with client.producer("example-web", codec=typed_codec(Order)) as shop.producer, consumers:
            yield


app = FastAPI(lifespan=life)


@app.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    try:
        receipt = await shop.producer.send(TOPIC, order)
    except CometError as error:
        raise HTTPException(503, f"try again: {error}") from error
    return {"id": receipt.id}


@app.get("/orders")
async def orders() -> list[Order]:
    return shop.seen
