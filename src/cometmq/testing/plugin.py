"""The pytest plugin: an embedded cluster as a fixture. Installed with CometMQ, it costs nothing until it is used.

    def test_orders(cometmq_cluster):                         a fresh cluster for this test
        run_my_program(cometmq_cluster.namesrv)

    @pytest.mark.cometmq(brokers=2, topics=["orders"])        arguments of `Cluster`; secure=True checks who asks
    def test_more(cometmq_cluster): ...

    def test_fast(cometmq_shared_cluster): ...                one cluster for the whole run; use topics of your own

The cluster runs in a thread of its own, so that tests with and without asyncio can use it. With pytest-asyncio or anyio

    async def test_async(cometmq_async_cluster):              the same on the event loop of the test
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cometmq.testing.cluster import Cluster
    from cometmq.testing.synccluster import SyncCluster


def _async_fixture() -> Callable[..., Any]:
    """pytest-asyncio takes only fixtures that it made; anyio takes pytest's own."""
    if importlib.util.find_spec("pytest_asyncio") is None:
        return pytest.fixture
    from pytest_asyncio import fixture

    return fixture


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cometmq(**arguments): arguments of the cometmq_cluster fixture, as of cometmq.testing.Cluster"
    )


@pytest.fixture
def cometmq_cluster(request: pytest.FixtureRequest) -> Iterator[SyncCluster]:
    """A fresh cluster. Arguments come from the mark `cometmq`."""
    from cometmq.testing.synccluster import SyncCluster

    mark = request.node.get_closest_marker("cometmq")
    with SyncCluster(**(mark.kwargs if mark is not None else {})) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cometmq_shared_cluster() -> Iterator[SyncCluster]:
    """One cluster for all tests of the run."""
    from cometmq.testing.synccluster import SyncCluster

    with SyncCluster() as cluster:
        yield cluster


@_async_fixture()
async def cometmq_async_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A fresh cluster on the event loop of the test. Arguments come from the mark `cometmq`."""
    from cometmq.testing.cluster import Cluster

    mark = request.node.get_closest_marker("cometmq")
    async with Cluster(**(mark.kwargs if mark is not None else {})) as cluster:
        yield cluster
