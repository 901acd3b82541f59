"""Every public name of the async client has its twin, with the same arguments."""

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cometmq.client.admin
import cometmq.client.client
import cometmq.client.consume.iterator
import cometmq.client.consume.pull
import cometmq.client.consume.push
import cometmq.client.produce.producer
import cometmq.client.produce.transactions
from cometmq import sync

PAIRS = [
    (cometmq.client.client.Client, sync.Client),
    (cometmq.client.produce.producer.Producer, sync.Producer),
    (cometmq.client.produce.transactions.TransactionProducer, sync.TransactionProducer),
    (cometmq.client.consume.iterator.Consumer, sync.Consumer),
    (cometmq.client.consume.iterator.Delivered, sync.Delivered),
    (cometmq.client.consume.push.PushConsumer, sync.PushConsumer),
    (cometmq.client.consume.pull.PullConsumer, sync.PullConsumer),
    (cometmq.client.admin.Admin, sync.Admin),
]


def generator() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "scripts" / "sync_twin.py"
    spec = importlib.util.spec_from_file_location("sync_twin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sync_twin"] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


# How the async classes work inside: administration's way to servers, the consumer's link to its cache.
PARTS = {"adopt", "ask", "ask_name_server", "ask_name_servers", "masters", "masters_of", "members", "name_servers",
         "wrap", "strip", "shown", "slip"}  # fmt: skip


def public(kind: type[Any]) -> dict[str, Any]:
    inner = generator().INNER | PARTS
    found: dict[str, Any] = {}
    for name in dir(kind):
        value = inspect.getattr_static(kind, name)
        is_method = inspect.isfunction(value) or isinstance(value, property)
        if is_method and not name.startswith("_") and name not in inner:
            found[name] = value
    if kind is cometmq.client.consume.pull.PullConsumer:
        del found["consume_directly"]  # asked by brokers
    return found


def arguments(method: Any) -> list[str]:
    return [str(parameter) for parameter in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize(("of_async", "of_sync"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_public_method_has_its_twin_with_the_same_arguments(of_async: type[Any], of_sync: type[Any]) -> None:
    wanted, there = public(of_async), public(of_sync)
    assert wanted.keys() - there.keys() == set()
    for name, method in wanted.items():
        twin = there[name]
        assert isinstance(method, property) == isinstance(twin, property), name
        if not isinstance(method, property):
            assert arguments(method) == arguments(twin), name


def test_no_twin_is_a_coroutine() -> None:
    for _, kind in PAIRS:
        for name, method in public(kind).items():
            function = method.fget if isinstance(method, property) else method
            assert not inspect.iscoroutinefunction(function), f"{kind.__name__}.{name}"
            assert not inspect.isasyncgenfunction(function), f"{kind.__name__}.{name}"


def test_the_written_classes_are_up_to_date() -> None:
    outdated = [path.name for path in generator().outdated()]
    assert not outdated, "run python scripts/sync_twin.py"
