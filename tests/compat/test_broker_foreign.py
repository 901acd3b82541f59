"""The Go and the Node client at our broker and at RocketMQ's, among themselves and with the Java client."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness import remoting
from tests.compat.harness.foreign import ForeignClient
from tests.compat.harness.programs import consume, send, text
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

BODIES = ["one", "zwei ✓", "三"]


def test_clients_in_other_languages_send_and_receive(foreign: ForeignClient, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    sent = foreign.send(cluster.namesrv.address, topic, *BODIES)
    assert {row["broker"] for row in sent} == {cluster.broker.broker_name}
    got = foreign.consume(cluster.namesrv.address, topic, f"{topic}_g", len(BODIES))
    assert sorted(row["body"] for row in got) == sorted(BODIES)
    assert {row["msgId"] for row in got} == {row["msgId"] for row in sent}


def test_a_first_message_from_go_makes_its_topic(go: ForeignClient, cluster: Cluster, topic: str) -> None:
    """The Node client only sends to topics that are there."""
    (sent,) = go.send(cluster.namesrv.address, topic, "creates its topic")
    assert sent["queueOffset"] == 0
    assert f'"{topic}"' in remoting.call(cluster.broker.address, 21).body.decode()


def test_java_reads_what_other_languages_sent_and_the_other_way_round(
    java55: JavaShell, foreign: ForeignClient, cluster: Cluster, topic: str
) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    foreign.send(cluster.namesrv.address, topic, *BODIES)
    consumer = consume(java55, cluster.namesrv.address, topic, f"{topic}_java")
    assert sorted(text(row["body"]) for row in consumer.take(len(BODIES))) == sorted(BODIES)
    consumer.stop()
    send(java55, cluster.namesrv.address, topic, "from Java")
    got = foreign.consume(cluster.namesrv.address, topic, f"{topic}_foreign", len(BODIES) + 1)
    assert sorted(row["body"] for row in got) == sorted([*BODIES, "from Java"])
