"""The client behind one connection of Kombu: a producer, and a consumer for each queue that is read."""

import logging
import os
import threading
from contextlib import suppress
from datetime import datetime
from typing import Final

from cometmq import StartFrom
from cometmq.errors import CallError, ConfigError, NoRoute, NotFound
from cometmq.names import topic_fault
from cometmq.sync import Client
from cometmq.sync.consumer import Consumer

UNACKED_MAX: Final = 65_535
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def escaped(name: str) -> str:
    """A name of AMQP in the letters that topics, groups and tags may have."""
    return "".join(char if char in _PLAIN else "".join(f"%{byte:02X}" for byte in char.encode()) for char in name)


def _quiet() -> None:
    """A worker's log is about tasks: of the client below it only what went wrong, unless its level was set."""
    logger = logging.getLogger("cometmq.client")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


class Messages:
    """The client behind one connection, with a consumer for each queue that is read."""

    def __init__(self, client: Client, prefix: str, topic_queues: int, visibility_s: float) -> None:
        self._client = client
        self._prefix = prefix
        self._topic_queues = topic_queues
        self._visibility_s = visibility_s
        self._pid = os.getpid()
        self._consumers: dict[str, Consumer[bytes]] = {}
        self._known_topics: set[str] = set()
        self._lock = threading.RLock()
        _quiet()
        client.start()
        self._producer = client.producer(f"{prefix}producer")
        self._producer.start()
        self._admin = client.admin()

    def stop(self) -> None:
        if os.getpid() != self._pid:
            return  # in a child after a fork: the threads of the client are the parent's
        with self._lock:
            consumers, self._consumers = list(self._consumers.values()), {}
        for consumer in consumers:
            consumer.stop()
        self._client.stop()

    def topic(self, exchange: str) -> str:
        """The topic of an exchange, made if it is missing."""
        name = self._prefix + (escaped(exchange) or "default")
        if name not in self._known_topics:
            self._check(name, exchange)
            try:
                self._admin.topic_route(name)
            except NoRoute as error:
                if isinstance(error.__cause__, CallError):
                    raise
                self._admin.create_topic(name, queues=self._topic_queues)
            self._known_topics.add(name)
        return name

    def group(self, queue: str) -> str:
        name = self._prefix + escaped(queue)
        self._check(name, queue)
        return name

    def _check(self, name: str, meant: str) -> None:
        fault = topic_fault(name)
        if fault is not None:
            raise ConfigError(f"{meant!r} would be {name}: {fault}")

    def send(self, exchange: str, routing_key: str, body: bytes) -> None:
        self._producer.send(self.topic(exchange), body, tag=escaped(routing_key) or None)

    def consume(self, queue: str, bindings: dict[str, set[str] | None], since: datetime | None) -> Consumer[bytes]:
        """The consumer of a queue: exchanges with their routing keys, None for all. `since`: not what was before."""
        with self._lock:
            consumer = self._consumers.get(queue)
            if consumer is None:
                topics = {
                    self.topic(exchange): "*" if keys is None else " || ".join(sorted(map(escaped, keys)))
                    for exchange, keys in bindings.items()
                }
                consumer = self._client.consumer(
                    self.group(queue), topics, auto_ack=False, max_unacked=UNACKED_MAX,
                    start=since or StartFrom.FIRST, consume_timeout=self._visibility_s, first_pull_delay=0.0,
                )  # fmt: skip
                consumer.start()
                self._consumers[queue] = consumer
            return consumer

    def leave(self, queue: str) -> None:
        with self._lock:
            consumer = self._consumers.pop(queue, None)
        if consumer is not None:
            consumer.stop()

    def size(self, queue: str) -> int:
        """How many messages the group has not read, rejected ones among them; 0 for one that never read."""
        with suppress(NotFound, NoRoute):
            return sum(lag.behind for lag in self._admin.group_lag(self.group(queue)).values())
        return 0

    def purge(self, queue: str, exchanges: set[str]) -> int:
        count = self.size(queue)
        for exchange in exchanges:
            self._admin.reset_offsets(self.group(queue), self.topic(exchange), to="latest")
        return count

    def forget(self, queue: str) -> None:
        self.leave(queue)
        with suppress(NotFound):
            self._admin.delete_group(self.group(queue), offsets=True)

    def delete_topic(self, exchange: str) -> None:
        name = self._prefix + (escaped(exchange) or "default")
        self._known_topics.discard(name)
        with suppress(NotFound, NoRoute):
            self._admin.delete_topic(name)
