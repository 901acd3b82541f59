"""One local Spark session for all tests here: starting one takes seconds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, Unpack

import pytest

from cometmq import Client
from cometmq.client.options import ClientKeywords
from cometmq.errors import ConfigError
from cometmq.spark.runtime.java import java_home
from cometmq.testing import SyncCluster
from tests.conftest import unavailable
from tests.support.length import SOAK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# It fetches a second Spark, of 450 MB: only the long form has it.
collect_ignore = [] if SOAK else ["test_delta.py"]


PATIENCE_S = 30.0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from cometmq.spark import session

    try:
        java_home()
    except ConfigError as error:
        unavailable("spark", str(error))
    folder = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        # So that tests see what a task that fails does: it is tried again.
        "spark.task.maxFailures": "4",
    }
    made = session("cometmq-tests", master="local[2,4]", conf=conf)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[SyncCluster]:
    """One cluster of two brokers for all tests here; each test has topics of its own."""
    with SyncCluster(brokers=2, settings={"brokerFastFailureEnable": False, "enablePropertyFilter": True}) as made:
        yield made


@pytest.fixture
def topic(cluster: SyncCluster, request: pytest.FixtureRequest) -> str:
    """A topic of two queues at each broker, named after the test."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", request.node.name)[:80]
    cluster.create_topic(name, queues=2)
    return name


class HasAddress(Protocol):
    @property
    def namesrv(self) -> str: ...


def fill(cluster: HasAddress, topic: str, count: int, first: int = 0, **client: Unpack[ClientKeywords]) -> None:
    """Messages numbered in body and key, in all queues by turns; every third has the tag `third`."""

    client.setdefault("call_timeout", PATIENCE_S)

    async def main() -> None:
        async with (
            Client(cluster.namesrv, **client) as sender,
            sender.producer("filler", timeout=PATIENCE_S) as producer,  # none is sent twice because it took long
        ):
            queues = await producer.queues(topic)
            for number in range(first, first + count):
                await producer.ready()
                producer.send_soon(
                    topic,
                    b"%d" % number,
                    queue=queues[number % len(queues)],
                    tag="third" if number % 3 == 0 else "other",
                    keys=[f"k{number}"],
                    properties={"n": str(number)},
                )
            await producer.flush()

    asyncio.run(main())
