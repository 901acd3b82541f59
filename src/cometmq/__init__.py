"""CometMQ: a message queue in Python, compatible with Apache RocketMQ on the wire and on disk.

    from cometmq import Client

    async with Client("127.0.0.1:9876") as client, client.producer("orders-pg") as producer:
        receipt = await producer.send("orders", b"hello")

`cometmq.sync` has the same without async. Names below are loaded when they are first used: importing the package
itself costs nothing, which matters to the command line and to servers that need none of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cometmq.client.admin import Admin as Admin
    from cometmq.client.admin import Lag as Lag
    from cometmq.client.client import Client as Client
    from cometmq.client.codecs import Codec as Codec
    from cometmq.client.codecs import bytes_codec as bytes_codec
    from cometmq.client.codecs import json_codec as json_codec
    from cometmq.client.codecs import text_codec as text_codec
    from cometmq.client.codecs import typed_codec as typed_codec
    from cometmq.client.consume.hooks import ConsumeContext as ConsumeContext
    from cometmq.client.consume.iterator import Consumer as Consumer
    from cometmq.client.consume.iterator import Delivered as Delivered
    from cometmq.client.consume.outcomes import Outcome as Outcome
    from cometmq.client.consume.outcomes import Reject as Reject
    from cometmq.client.consume.outcomes import Retry as Retry
    from cometmq.client.consume.pull import Batch as Batch
    from cometmq.client.consume.pull import PullConsumer as PullConsumer
    from cometmq.client.consume.push import PushConsumer as PushConsumer
    from cometmq.client.messages import Message as Message
    from cometmq.client.messages import SendReceipt as SendReceipt
    from cometmq.client.messages import SendStatus as SendStatus
    from cometmq.client.options import StartFrom as StartFrom
    from cometmq.client.produce.hooks import SendContext as SendContext
    from cometmq.client.produce.producer import Producer as Producer
    from cometmq.client.produce.selectors import LeastLag as LeastLag
    from cometmq.client.produce.transactions import Transaction as Transaction
    from cometmq.client.produce.transactions import TransactionProducer as TransactionProducer
    from cometmq.client.produce.transactions import Tx as Tx
    from cometmq.net.tls import ClientTls as ClientTls
    from cometmq.wire.bodies import MessageQueue as MessageQueue

# Public name -> the module that has it.
_PUBLIC = {
    "Admin": "cometmq.client.admin",
    "Batch": "cometmq.client.consume.pull",
    "Client": "cometmq.client.client",
    "ClientTls": "cometmq.net.tls",
    "Codec": "cometmq.client.codecs",
    "ConsumeContext": "cometmq.client.consume.hooks",
    "Consumer": "cometmq.client.consume.iterator",
    "Delivered": "cometmq.client.consume.iterator",
    "Lag": "cometmq.client.admin",
    "LeastLag": "cometmq.client.produce.selectors",
    "Message": "cometmq.client.messages",
    "MessageQueue": "cometmq.wire.bodies",
    "Outcome": "cometmq.client.consume.outcomes",
    "Producer": "cometmq.client.produce.producer",
    "PullConsumer": "cometmq.client.consume.pull",
    "PushConsumer": "cometmq.client.consume.push",
    "Reject": "cometmq.client.consume.outcomes",
    "Retry": "cometmq.client.consume.outcomes",
    "SendContext": "cometmq.client.produce.hooks",
    "SendReceipt": "cometmq.client.messages",
    "SendStatus": "cometmq.client.messages",
    "StartFrom": "cometmq.client.options",
    "Transaction": "cometmq.client.produce.transactions",
    "TransactionProducer": "cometmq.client.produce.transactions",
    "Tx": "cometmq.client.produce.transactions",
    "bytes_codec": "cometmq.client.codecs",
    "json_codec": "cometmq.client.codecs",
    "text_codec": "cometmq.client.codecs",
    "typed_codec": "cometmq.client.codecs",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604 - all are text


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'cometmq' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
