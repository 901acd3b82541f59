"""The embedded cluster for tests without asyncio: the same names, on an event loop in a thread of its own.

    with SyncCluster(topics=["orders"]) as cluster, cluster.client() as client:
        ...                                                     or: run_my_program(cluster.namesrv)
        assert [message.body for message in cluster.messages("orders")] == [b"hello"]
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from cometmq.client.loop_thread import LoopThread
from cometmq.client.messages import Message
from cometmq.client.options import ClientKeywords
from cometmq.sync.client import Client
from cometmq.testing.cluster import Cluster, EmbeddedBroker, Keys, Setting


class SyncBroker:
    def __init__(self, thread: LoopThread, broker: EmbeddedBroker) -> None:
        self._thread = thread
        self._broker = broker

    @property
    def name(self) -> str:
        return self._broker.name

    @property
    def address(self) -> str:
        return self._broker.address

    @property
    def directory(self) -> Path:
        return self._broker.directory

    @property
    def is_running(self) -> bool:
        return self._broker.is_running

    def start(self) -> None:
        self._thread.run(self._broker.start())

    def stop(self) -> None:
        self._thread.run(self._broker.stop())

    def kill(self) -> None:
        self._thread.run(self._broker.kill())

    def restart(self, *, kill: bool = False) -> None:
        self._thread.run(self._broker.restart(kill=kill))


class SyncCluster:
    """Arguments as of `Cluster`."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        topics: Iterable[str] = (),
        queues: int = 4,
        settings: Mapping[str, Setting] | None = None,
        directory: str | Path | None = None,
        secure: bool = False,
    ) -> None:
        self._thread = LoopThread("cometmq-cluster")
        self._cluster = Cluster(
            brokers=brokers, topics=topics, queues=queues, settings=settings, directory=directory, secure=secure
        )
        self.brokers: list[SyncBroker] = []

    def start(self) -> None:
        self._thread.start()
        try:
            self._thread.run(self._cluster.start())
        except BaseException:
            self._thread.stop()
            raise
        self.brokers = [SyncBroker(self._thread, broker) for broker in self._cluster.brokers]

    def stop(self) -> None:
        """Idempotent."""
        if self._thread.is_running:
            self._thread.run(self._cluster.stop())
            self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def namesrv(self) -> str:
        return self._cluster.namesrv

    @property
    def broker(self) -> SyncBroker:
        return self.brokers[0]

    @property
    def keys(self) -> Keys:
        """Those of the Super user of a secure cluster."""
        return self._cluster.keys

    def client(self, **options: Unpack[ClientKeywords]) -> Client:
        """A sync client of this cluster, with its time, to be used with `with`; stopped with the cluster at last."""
        return Client.on(self._cluster.client(**options), self._thread)

    def stop_nameserver(self) -> None:
        self._thread.run(self._cluster.nameserver.stop())

    def start_nameserver(self) -> None:
        self._thread.run(self._cluster.nameserver.start())

    def now(self) -> datetime:
        return self._cluster.now()

    def advance(self, seconds: float) -> None:
        """Move the cluster's time ahead, and that of its clients. What is due meanwhile happens."""
        self._thread.run(self._cluster.advance(seconds))

    def create_user(self, name: str, rights: Mapping[str, str] | None = None) -> Keys:
        """A user of a secure cluster with rights like {"Topic:orders_*": "Pub,Sub"}; gives its keys."""
        return self._thread.run(self._cluster.create_user(name, rights))

    def create_topic(self, topic: str, *, queues: int = 4, kind: str | None = None) -> None:
        self._thread.run(self._cluster.create_topic(topic, queues=queues, kind=kind))

    def messages(self, topic: str) -> list[Message[bytes]]:
        return self._thread.run(self._cluster.messages(topic))
