"""What the sink and the mirror rest on: sends whose outcome is unknown, and notes that survive brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.client.messages import SendReceipt
from cometmq.errors import ConnectionLost, MessageRefused
from cometmq.spark.live.exactly_once import Pending, send_once
from cometmq.spark.live.ledger import MARK, Ledger
from cometmq.spark.live.remote import remote
from cometmq.spark.live.sending import producer_of
from cometmq.spark.live.sink import sink_options
from cometmq.spark.options import Options
from cometmq.sync import Client
from cometmq.testing import SyncCluster
from cometmq.wire.bodies import MessageQueue
from tests.spark.victims import Servers, kill_broker


@pytest.fixture
def options(cluster: SyncCluster, topic: str) -> Options:
    return sink_options({"namesrvAddr": cluster.namesrv, "topic": topic})


def ledger_of(options: Options, query: str) -> Ledger:
    target = remote(options)
    return Ledger(target, target.run(producer_of(target, options, once=True)), query, options.text("topic"))


def test_a_send_that_was_stored_but_not_answered_is_not_repeated(
    cluster: SyncCluster, options: Options, topic: str
) -> None:
    target = remote(options)
    producer = target.run(producer_of(target, options, once=True))
    queue = MessageQueue(cluster.brokers[0].name, 0, topic)
    lost = {3: "stored", 5: "not stored"}

    async def send(number: int) -> SendReceipt:
        fault = lost.pop(number, None)
        if fault == "not stored":
            raise ConnectionLost("as planned")
        receipt = await producer.send_record(topic, b"%d" % number, {MARK: f"q:0:0:{number}"}, queue=queue)
        if fault == "stored":
            raise ConnectionLost("as planned")
        return receipt

    def letters() -> Iterator[Pending]:
        for number in range(10):
            yield Pending(str(number), lambda number=number: send(number))  # type: ignore[misc]

    ledger = ledger_of(options, f"q-{topic}")
    note = ledger.begin()
    there = send_once(target, letters(), lambda: ledger.look(note, "q:0:0:"), 4)
    assert Counter(int(message.body) for message in cluster.messages(topic)) == Counter(range(10))
    assert set(there) == {str(number) for number in range(10)}
    assert lost == {}

    async def refused() -> SendReceipt:
        raise MessageRefused("too large")

    with pytest.raises(MessageRefused, match="too large"):
        send_once(target, iter([Pending("x", refused)]), dict, 4)


def test_notes_survive_brokers_that_are_killed_or_away(tmp_path: Path) -> None:
    """Brokers are processes, and SIGKILL ends them."""
    servers = Servers(tmp_path)
    topic = "Noted"
    try:
        servers.start()
        servers.create_topic(topic, queues=2)
        options = sink_options({"namesrvAddr": servers.namesrv, "topic": topic})
        begun = ledger_of(options, topic).begin()
        assert begun.next_batch == 0
        assert set(begun.floors.values()) == {0}
        assert len(begun.floors) == 4
        with Client(servers.namesrv) as client, client.producer("p") as producer:
            producer.send(topic, b"one")
        assert ledger_of(options, topic).begin() == begun, "it began where it began"
        closed = ledger_of(options, topic).close(6)
        assert sum(closed.floors.values()) == 1
        for broker in servers.brokers:
            kill_broker(broker)
            broker.start()
        assert ledger_of(options, topic).read() == closed
        kill_broker(servers.brokers[0])
        assert ledger_of(options, topic).read() == closed
        servers.brokers[0].start()
        assert ledger_of(options, "another query").read() is None
    finally:
        servers.stop()
