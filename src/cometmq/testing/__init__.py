"""A real cluster for the tests of programs that use CometMQ: name server and brokers, in the test's own process.

    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            await producer.send("orders", b"hello")

`SyncCluster` is the same for tests without asyncio, and the pytest plugin has it as the fixture `cometmq_cluster`.
Names are loaded when they are first used, so that the plugin costs a test run nothing that does not use it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cometmq.testing.clock import MovableClock as MovableClock
    from cometmq.testing.cluster import Cluster as Cluster
    from cometmq.testing.cluster import EmbeddedBroker as EmbeddedBroker
    from cometmq.testing.cluster import EmbeddedNameServer as EmbeddedNameServer
    from cometmq.testing.synccluster import SyncCluster as SyncCluster

_PUBLIC = {
    "Cluster": "cometmq.testing.cluster",
    "EmbeddedBroker": "cometmq.testing.cluster",
    "EmbeddedNameServer": "cometmq.testing.cluster",
    "MovableClock": "cometmq.testing.clock",
    "SyncCluster": "cometmq.testing.synccluster",
}

__all__ = [*_PUBLIC]  # noqa: PLE0604 - all are text


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'cometmq.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
