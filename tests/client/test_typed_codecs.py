"""Types of handlers and codecs: those that JSON is read as, and those that are refused before the first message."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from cometmq import PushConsumer, json_codec, typed_codec
from cometmq.client.codecs import decode_body
from cometmq.client.consume.handlers import Handler
from cometmq.client.options import ConsumerOptions
from cometmq.errors import CodecError, ConfigError
from tests.support.clusters import real_cluster
from tests.support.consuming import quick
from tests.support.net import until


class Order(pydantic.BaseModel):
    number: int
    items: list[str] = []


@dataclasses.dataclass
class Wrapped:
    order: Order


class Node(msgspec.Struct):
    value: int
    next: "Node | None" = None


class Plain:
    def __init__(self, number: int) -> None:
        self.number = number


ORDER = Order(number=7, items=["a"])


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        (Order, ORDER, b'{"number":7,"items":["a"]}'),
        (list[Order], [ORDER], b'[{"number":7,"items":["a"]}]'),
        (dict[str, Order], {"x": ORDER}, b'{"x":{"number":7,"items":["a"]}}'),
        (Wrapped, Wrapped(ORDER), b'{"order":{"number":7,"items":["a"]}}'),
        (Node, Node(1, Node(2)), b'{"value":1,"next":{"value":2,"next":null}}'),
    ],
)
def test_a_value_of_the_type_is_read_back(kind: Any, value: Any, body: bytes) -> None:
    codec = typed_codec(kind)
    assert codec.encode(value) == body
    assert codec.decode(body) == value


def test_a_body_that_pydantic_refuses_is_a_codec_error_that_says_why() -> None:
    with pytest.raises(CodecError, match="number"):
        decode_body(typed_codec(Order), b'{"number":"many"}')


def test_json_writes_models_inside_of_anything() -> None:
    assert json_codec.encode({"orders": [ORDER]}) == b'{"orders":[{"number":7,"items":["a"]}]}'


@pytest.mark.parametrize("kind", [Plain, list[Plain], dict[str, Plain | None]])
def test_a_type_that_json_cannot_be_read_as_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(TypeError, match="Plain: not a dataclass"):
        typed_codec(kind)

    async def handle(value: Any) -> None: ...

    handle.__annotations__["value"] = kind
    with pytest.raises(ConfigError, match="give it a codec"):
        Handler(handle)


@pytest.mark.mission("DU-05")
async def test_a_handler_takes_and_returns_pydantic_models(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        got: list[Order] = []
        app = quick(client)

        @app.on("T")
        async def handle(order: Order) -> Order:
            got.append(order)
            return order

        async with app, client.producer("pg", codec=json_codec) as producer:
            reply = await producer.request("T", ORDER, timeout=20)
            await until(lambda: got)
        assert got == [ORDER]
        assert reply.value == {"number": 7, "items": ["a"]}


def test_a_consumer_takes_its_options_as_keywords_or_whole() -> None:
    assert PushConsumer("g", concurrency=3, namesrv="h:1").options == ConsumerOptions(concurrency=3)
    assert PushConsumer("g", ConsumerOptions(concurrency=3), namesrv="h:1").options.concurrency == 3
    with pytest.raises(ConfigError, match="options and concurrency: give one or the other"):
        PushConsumer("g", ConsumerOptions(), concurrency=3)
