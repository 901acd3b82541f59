"""Exactly once through a network that delivers late: what a broken connection still held comes after the look.

The broker says that it is at 127.0.0.2, where a proxy listens on its port. When it is told to, the proxy takes the next
request, breaks the connection to the client, and keeps the one to the broker: what it holds is delivered later, when
the sink has looked and has sent again.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cometmq.errors import BrokerError
from cometmq.spark.live.exactly_once import OffsetsById, Pending, send_once
from cometmq.spark.live.fencing import Fence
from cometmq.spark.live.ledger import Ledger
from cometmq.spark.live.offsets import Queue
from cometmq.spark.live.remote import Remote, remote
from cometmq.spark.live.rows import Row
from cometmq.spark.live.sending import pending, producer_of
from cometmq.spark.live.sink import sink_options
from cometmq.spark.options import Options
from cometmq.testing import SyncCluster
from cometmq.wire.codes import Request
from tests.support.require import unavailable

HOST = "127.0.0.2"


class LateProxy:
    """`armed`: the next requests of any connection are held, and its client is cut off."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server((HOST, port))
        self._sockets: list[socket.socket] = []
        self.armed = threading.Event()
        self.held: list[tuple[socket.socket, bytes]] = []
        self.answers = 0
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                target = socket.create_connection(self._target)
                self._sockets.append(target)
                threading.Thread(target=self._up, args=(client, target), daemon=True).start()
                threading.Thread(target=self._down, args=(target, client), daemon=True).start()

    def _up(self, client: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self.armed.is_set():
                    self.armed.clear()
                    self.held.append((target, data))
                    client.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def _down(self, target: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := target.recv(1 << 16):
                self.answers += 1
                client.sendall(data)

    def release(self) -> None:
        """The broker has handled what was held when this returns: it answers, and nobody hears it."""
        for target, data in self.held:
            with suppress(OSError):
                before = self.answers
                target.sendall(data)
                target.shutdown(socket.SHUT_WR)
                while self.answers == before and target.fileno() >= 0:
                    threading.Event().wait(0.01)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.close()


@pytest.fixture
def late() -> Iterator[tuple[SyncCluster, LateProxy]]:
    try:
        socket.create_server((HOST, 0)).close()
    except OSError as error:
        unavailable("a second loopback address", str(error))
    with SyncCluster(settings={"brokerIP1": HOST}) as cluster:
        proxy = LateProxy(int(cluster.broker.address.rpartition(":")[2]))
        try:
            cluster.create_topic("T", queues=2)
            yield cluster, proxy
        finally:
            proxy.close()


def rows(count: int) -> Iterator[Row]:
    for number in range(count):
        yield Row("T", b"%d" % number, None, (), {}, None, None, None, None, 0)


def task(cluster: Remote, options: Options, proxy: LateProxy, at: int) -> OffsetsById:
    """As the sink does it, with the fault before the letter `at` is sent."""
    producer = cluster.run(producer_of(cluster, options, once=True))
    ledger = Ledger(cluster, producer, "q", "T")
    note = ledger.begin()
    fence = Fence(cluster, "T", "q:0:0:")

    def look() -> OffsetsById:
        fence.rise()
        return ledger.look(note, "q:0:0:")

    def faulty() -> Iterator[Pending]:
        for number, letter in enumerate(pending(cluster, rows(12), options, "q:0:0:", fence)):
            if number == at:
                proxy.armed.set()
            yield letter

    return send_once(cluster, faulty(), look, 4)


@pytest.mark.parametrize("at", [0, 4, 8])
def test_what_arrives_after_the_look_is_not_stored(late: tuple[SyncCluster, LateProxy], at: int) -> None:
    cluster, proxy = late
    options = sink_options({"namesrvAddr": cluster.namesrv, "topic": "T", "retryMs": "20000"})
    there = task(remote(options), options, proxy, at)
    assert len(proxy.held) == 1, "the fault was there"
    assert b"q:0:0:" in proxy.held[0][1], "and it held messages"
    assert len(there) == 12
    proxy.release()
    assert Counter(int(message.body) for message in cluster.messages("T")) == Counter(range(12))


def test_a_fence_rises_and_lets_other_names_pass(cluster: SyncCluster, topic: str) -> None:
    options = sink_options({"namesrvAddr": cluster.namesrv, "topic": topic})
    target = remote(options)
    place = Queue(topic, cluster.brokers[0].name, 0)
    first = int(target.asked(Request.RAISE_FENCE, place, {"fence": topic}).ext["epoch"])
    second = int(target.asked(Request.RAISE_FENCE, place, {"fence": topic}).ext["epoch"])
    assert second > first
    for name in ("", "x" * 65):
        with pytest.raises(BrokerError):
            target.asked(Request.RAISE_FENCE, place, {"fence": name})
    with cluster.client() as client, client.producer("p") as producer:
        (queue, *_) = [one for one in producer.queues(topic) if one.broker_name == place.broker]
        for value, stored in ((f"{topic}:{first}", False), (f"{topic}:{second}", True), (f"other:{first}", True)):
            if stored:
                producer.send(topic, b"x", queue=queue, properties={"CMQ_FENCE": value})
                producer.send_many(topic, [b"y", b"z"], queue=queue, properties={"CMQ_FENCE": value})
                continue
            with pytest.raises(BrokerError, match="a later try has raised it"):
                producer.send(topic, b"x", queue=queue, properties={"CMQ_FENCE": value})
            with pytest.raises(BrokerError, match="a later try has raised it"):
                producer.send_many(topic, [b"y", b"z"], queue=queue, properties={"CMQ_FENCE": value})
    kept = cluster.messages(topic)
    assert len(kept) == 6
    assert not any("CMQ_FENCE" in message.properties for message in kept), "a copy is nobody's late try"
    assert all("CMQ_FENCED" in message.properties for message in kept)
