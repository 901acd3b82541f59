"""Kombu over an embedded cluster: exchanges of each type, acknowledgements, refusals."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

import cometmq.kombu
from cometmq.errors import ConfigError
from cometmq.testing import SyncCluster

assert cometmq.kombu.serializer  # the scheme is known from here on

DIRECT = Exchange("shop", type="direct")
TOPIC = Exchange("events", type="topic")
FANOUT = Exchange("news", type="fanout")
WAIT_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster() as running:
        yield running


@pytest.fixture
def connection(cluster: SyncCluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """Each test has exchanges of its own."""
    prefix = f"k{abs(hash(request.node.name)) % 10**8}-"
    options = {"prefix": prefix, "topic_queues": 2}
    with Connection(f"cometmq://{cluster.namesrv}", transport_options=options) as opened:
        yield opened


def take(connection: Connection, queue: Queue, count: int, act: Callable[[Any], None] | None = None) -> list[Any]:
    """Bodies in the order of arrival; `act` instead of an ack."""
    got: list[Any] = []

    def handle(body: Any, message: Any) -> None:
        got.append(body)
        (act or (lambda it: it.ack()))(message)

    with Consumer(connection, [queue], callbacks=[handle], accept=["json"]):
        while len(got) < count:
            connection.drain_events(timeout=WAIT_S)
    return got


def nothing_more(connection: Connection, queue: Queue) -> None:
    """All that there was is read: a last message comes alone."""
    channel = connection.default_channel
    bound = queue(channel)
    Producer(channel, serializer="json").publish("last", exchange="", routing_key=bound.name)
    assert take(connection, queue, 1) == ["last"]


def test_a_direct_exchange_goes_by_routing_keys_also_before_a_queue_is_declared(connection: Connection) -> None:
    producer = Producer(connection, serializer="json")
    for key, body in (("red", 1), ("blue", 2), ("red", 3)):
        producer.publish(body, exchange=DIRECT, routing_key=key, declare=[DIRECT])
    red, both = Queue("red-q", DIRECT, "red"), Queue("both-q", DIRECT, "red")
    assert sorted(take(connection, red, 2)) == [1, 3]
    nothing_more(connection, red)
    assert sorted(take(connection, both, 2)) == [1, 3]


def test_a_topic_exchange_goes_by_patterns(connection: Connection) -> None:
    producer = Producer(connection, serializer="json")
    for key in ("order.created.eu", "order.paid.eu", "order.created.us", "user.created"):
        producer.publish(key, exchange=TOPIC, routing_key=key, declare=[TOPIC])
    created = Queue("created", TOPIC, "*.created.*")
    assert sorted(take(connection, created, 2)) == ["order.created.eu", "order.created.us"]
    nothing_more(connection, created)


def test_a_fanout_exchange_gives_every_queue_all(connection: Connection) -> None:
    producer = Producer(connection, serializer="json")
    producer.publish({"n": 1}, exchange=FANOUT, routing_key="x", declare=[FANOUT])
    producer.publish({"n": 2}, exchange=FANOUT, routing_key="y")
    for name in ("one", "two"):
        assert sorted(one["n"] for one in take(connection, Queue(name, FANOUT), 2)) == [1, 2]


def test_a_temporary_queue_gets_only_what_comes_after_its_declaration(connection: Connection) -> None:
    producer = Producer(connection, serializer="json")
    producer.publish("old", exchange="", routing_key="temporary")
    channel = connection.default_channel
    queue = Queue("temporary", durable=False, auto_delete=True)
    # Declared "now" of the client; the broker's first message is as old as the wait for its own reading.
    take(connection, Queue("temporary"), 1)
    queue(channel).declare()
    producer.publish("new", exchange="", routing_key="temporary")
    assert take(connection, queue, 1) == ["new"]


def test_what_is_requeued_comes_again_and_what_is_rejected_is_a_dead_letter(
    connection: Connection, cluster: SyncCluster
) -> None:
    producer = Producer(connection, serializer="json")
    queue = Queue("jobs", DIRECT, "jobs")
    producer.publish("again", exchange=DIRECT, routing_key="jobs", declare=[DIRECT])
    seen: list[bool] = []

    def act(message: Any) -> None:
        seen.append(message.delivery_info["redelivered"])
        if len(seen) == 1:
            message.requeue()
            cluster.advance(10)
        else:
            message.reject()

    assert take(connection, queue, 2, act) == ["again", "again"]
    assert seen == [False, True]
    group = connection.transport_options["prefix"] + "jobs"
    with cluster.client() as client, client.admin() as admin:
        letters = list(admin.dead_letters(group))
    assert [letter.failure.cause for letter in letters if letter.failure] == ["rejected by its worker"]


def test_what_a_closed_connection_had_not_acknowledged_is_delivered_to_the_next(
    connection: Connection, cluster: SyncCluster
) -> None:
    queue = Queue("jobs", DIRECT, "jobs")
    with connection.clone() as first:
        Producer(first, serializer="json").publish("job", exchange=DIRECT, routing_key="jobs", declare=[DIRECT])
        assert take(first, queue, 1, lambda message: None) == ["job"]
    assert take(connection, queue, 1) == ["job"]
    nothing_more(connection, queue)


def test_single_messages_sizes_and_purges(connection: Connection) -> None:
    channel = connection.default_channel
    queue = Queue("box", DIRECT, "box")(channel)
    queue.declare()
    producer = Producer(channel, serializer="json")
    producer.publish("1", exchange=DIRECT, routing_key="box")
    message = None
    while message is None:
        message = queue.get(no_ack=True)
    assert message.payload == "1"
    for body in ("2", "3"):
        producer.publish(body, exchange=DIRECT, routing_key="box")
    connection.transport.messages.leave("box")  # its offsets are stored
    assert queue.queue_declare().message_count == 2
    assert queue.purge() == 2
    producer.publish("4", exchange=DIRECT, routing_key="box")
    assert take(connection, queue, 1) == ["4"]


def test_simple_queues_work(connection: Connection) -> None:
    with connection.SimpleQueue("simple") as queue:
        queue.put({"hello": "world"})
        message = queue.get(timeout=WAIT_S)
        message.ack()
        assert message.payload == {"hello": "world"}
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.05)


def test_what_is_not_of_kombu_is_set_aside(connection: Connection, cluster: SyncCluster) -> None:
    queue = Queue("mixed", DIRECT, "mixed")
    channel = connection.default_channel
    queue(channel).declare()
    prefix = connection.transport_options["prefix"]
    with cluster.client() as client, client.producer("foreign") as producer:
        producer.send(f"{prefix}shop", b"\xff not JSON", tag="mixed")
    Producer(channel, serializer="json").publish("fine", exchange=DIRECT, routing_key="mixed")
    assert take(connection, queue, 1) == ["fine"]


@pytest.mark.parametrize("arguments", [{"x-max-priority": 9}, {"x-message-ttl": 1000}, {"x-max-length": 3}])
def test_a_queue_with_what_is_not_built_is_refused_by_name(connection: Connection, arguments: dict[str, int]) -> None:
    queue = Queue("special", DIRECT, "k", queue_arguments=arguments)
    with pytest.raises(ConfigError, match=f"wants {next(iter(arguments))}"):
        queue(connection.default_channel).declare()


def test_a_name_that_is_too_long_is_refused_with_the_limit(connection: Connection) -> None:
    with pytest.raises(ConfigError, match="at most 127"):
        Queue("q" * 200, DIRECT, "k")(connection.default_channel).declare()


def test_a_cluster_that_is_not_there_is_a_connection_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        opened = Connection(f"cometmq://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(opened.connection_errors):
            opened.connect()
