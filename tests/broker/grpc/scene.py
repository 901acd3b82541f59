"""A broker with the gRPC port, topics of every type, and groups."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cometmq.broker.server import Broker
from cometmq.clock import Clock
from cometmq.wire.bodies import SubscriptionGroupConfig
from tests.support.brokers import add_topic, running_broker
from tests.support.grpc import GrpcPeer

TYPES = ("FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")


@asynccontextmanager
async def scene(
    directory: Path, clock: Clock | None = None, /, **texts: object
) -> AsyncIterator[tuple[Broker, GrpcPeer]]:
    """Topic T of normal messages, and one named like each other type; groups are made when they are used."""
    async with running_broker(directory, clock, None, grpcServerPort=0, **texts) as broker:
        if broker.tables.topics.get("T") is None:
            add_topic(broker, "T", 1)
            for kind in TYPES:
                add_topic(broker, kind, 4 if kind == "PRIORITY" else 1, attributes={"message.type": kind})
        async with GrpcPeer.of(broker) as peer:
            yield broker, peer


def set_group(broker: Broker, name: str, **fields: object) -> None:
    broker.tables.groups.update([SubscriptionGroupConfig(group_name=name, **fields)])  # type: ignore[arg-type]
