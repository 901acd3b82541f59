"""The client for programs without asyncio: the same names, `with` and `for` in place of `async with` and `async for`.

    from cometmq.sync import Client

    with Client("127.0.0.1:9876") as client:
        with client.producer("orders-pg") as producer:
            producer.send("orders", b"hello")
        with client.consumer("billing-cg", topics=["orders"]) as consumer:
            for message in consumer.iter(timeout=10.0):
                print(message.body)

A client has one thread with an event loop, on which everything it makes lives; every call waits for that thread. All of
it may be used from several threads. Ctrl-C ends the call that is waited for, and the way out of `with` stops the rest.

Classes without logic of their own are written by `scripts/sync_twin.py` from the async ones.
"""

from cometmq.sync.admin import Admin
from cometmq.sync.client import Client
from cometmq.sync.consumer import Consumer, Delivered
from cometmq.sync.producer import Producer
from cometmq.sync.pull import PullConsumer
from cometmq.sync.push import PushConsumer
from cometmq.sync.transactions import TransactionProducer

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Delivered",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
]
