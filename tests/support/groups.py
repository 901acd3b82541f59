"""A name server, a master and its replica in the test's own process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cometmq.broker.server import Broker
from cometmq.nameserver.server import NameServer
from tests.nameserver.support import nameserver
from tests.support.brokers import running_broker
from tests.support.net import until


async def follow_now(broker: Broker) -> None:
    """Everything, without waiting for the time of it."""
    following = broker.rooms.replicas.table_sync
    await until(lambda: following._running is None)
    rounds = following.rounds
    following._everything_s = following._progress_s = float("-inf")
    following._look()
    await until(lambda: following.rounds > rounds and not following.waiting)


def replica(**settings: object) -> dict[str, object]:
    return {"brokerRole": "SLAVE", "brokerId": 1, **settings}


@dataclass(frozen=True, slots=True)
class Group:
    names: NameServer
    master: Broker
    replica: Broker

    @property
    def is_even(self) -> bool:
        return self.replica.store.log.max_offset == self.master.store.log.max_offset


@asynccontextmanager
async def running_group(directory: Path, **settings: object) -> AsyncIterator[Group]:
    """`settings` are for both brokers. The replica follows when this begins."""
    async with nameserver(directory) as names:
        common = {"namesrvAddr": names.address, **settings}
        async with (
            running_broker(directory / "master", **common) as master,
            running_broker(directory / "replica", **replica(**common)) as follower,
        ):
            await until(lambda: follower.rooms.replicas.table_sync.rounds, "a round of following")
            yield Group(names, master, follower)
