"""The pytest plugin: an embedded cluster as a fixture. Installed with CometMQ, it costs nothing until it is used.

    def test_orders(cometmq_cluster):                         a fresh cluster for this test
        run_my_program(cometmq_cluster.namesrv)

    @pytest.mark.cometmq(brokers=2, topics=["orders"])        arguments of `Cluster`; secure=True checks who asks
    def test_more(cometmq_cluster): ...

    def test_fast(cometmq_shared_cluster): ...                one cluster for the whole run; use topics of your own

The cluster runs in a thread of its own, so that tests with and without asyncio can use it. A test with asyncio may as
well write `async with Cluster()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cometmq.testing.synccluster import SyncCluster


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
