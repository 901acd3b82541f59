"""The square: each behaviour has one test, run with the Python and the Java client at our broker and at RocketMQ's.

`side` is the client under test, `other` is always RocketMQ's: what `side` sends `other` reads, and the other way round.
That the Java client at the Java broker passes, too, shows that a test asks for the right thing.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.harness.processes import wait_until
from tests.compat.harness.python_side import PythonSide
from tests.compat.harness.remoting import call, create_topic
from tests.compat.harness.servers import MAKES, Broker, NameServer
from tests.compat.harness.shell import JavaShell
from tests.compat.harness.sides import Got, JavaSide, Out, Side, bodies

pytestmark = pytest.mark.interop

# A failed message comes back after a second; transactions are asked for soon; consumers may use SQL; progress is saved
# soon; and a busy machine, on which requests wait too long, does not look like an incompatibility.
SETTINGS = {
    "messageDelayLevel": " ".join(["1s"] * 18),
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "brokerFastFailureEnable": False,
    "enablePropertyFilter": True,
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    "transactionOpBatchInterval": 100,
    "flushConsumerOffsetInterval": 500,
}
QUERY_CONSUMER_OFFSET = 14


@dataclass(frozen=True, slots=True)
class Servers:
    namesrv: NameServer
    broker: Broker

    def committed(self, topic: str, group: str, queue_id: int = 0) -> int:
        """The next offset of a group, -1 if the broker knows none."""
        ext: dict[str, object] = {
            "consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": "false",
        }  # fmt: skip
        answer = call(self.broker.address, QUERY_CONSUMER_OFFSET, ext)
        return int(answer.ext["offset"]) if answer.code == 0 else -1


@pytest.fixture(scope="module", params=list(MAKES))
def servers(request: pytest.FixtureRequest, jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    make = MAKES[request.param]
    directory = tmp_path_factory.mktemp(f"square-{make.name}")
    with ExitStack() as stack:
        namesrv = stack.enter_context(make.name_server(directory).start())
        yield Servers(namesrv, stack.enter_context(make.broker(directory, namesrv.address, SETTINGS).start()))


@pytest.fixture(params=["python", "java"])
def side(request: pytest.FixtureRequest, servers: Servers, java55: JavaShell, tmp_path: Path) -> Iterator[Side]:
    if request.param == "java":
        yield JavaSide(java55, servers.namesrv.address)
        return
    with PythonSide(servers.namesrv.address, tmp_path) as python:
        yield python


@pytest.fixture
def other(servers: Servers, java55: JavaShell) -> Side:
    return JavaSide(java55, servers.namesrv.address)


def make_topic(servers: Servers, topic: str, queues: int = 4) -> str:
    create_topic(servers.broker.address, topic, queues)
    return topic


# Sending


@pytest.mark.mission("PC-02")
@pytest.mark.parametrize("how", ["sync", "async", "oneway", "batch"])
def test_every_kind_of_send_arrives(side: Side, other: Side, servers: Servers, topic: str, how: str) -> None:
    make_topic(servers, topic)
    with other.consume(topic, f"{topic}_g") as consuming:
        sent = side.send(topic, *[Out(f"{how} {number}") for number in range(5)], how=how)
        got = consuming.take(5)
    assert sorted(bodies(got)) == [f"{how} {number}" for number in range(5)]
    assert len({each.id for each in got}) == 5
    if how != "oneway":
        assert [each.status for each in sent] == ["SEND_OK"] * 5
        assert {(each.id, each.queue_id, each.offset) for each in sent} == {
            (each.id, each.queue_id, each.offset) for each in got
        }


def test_a_message_arrives_with_all_that_it_carries(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic)
    body = "grüße \N{SNOWMAN} \U0001f680"
    side.send(topic, Out(body, tag="Ünï", keys="k1 k2", properties={"colour": "blau ä", "size": "7"}))
    with other.consume(topic, f"{topic}_g") as consuming:
        (got,) = consuming.take()
    assert (got.body, got.tag, got.keys, got.topic) == (body, "Ünï", "k1 k2", topic)
    assert (got.properties["colour"], got.properties["size"]) == ("blau ä", "7")
    assert got.properties["UNIQ_KEY"] == got.id


@pytest.mark.mission("PC-07")
def test_the_same_key_goes_to_the_same_queue(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic, 8)
    keys = ["customer-1", "customer-2", "", "ä", "\N{SNOWMAN}", "\U0001f680", "Aa", "BB", "polygenelubricants", "7"]
    messages = [Out("x", key=key) for key in keys]
    places = [each.queue_id for each in side.send(topic, *messages)]
    assert places == [each.queue_id for each in other.send(topic, *messages)]
    assert len(set(places)) > 3


@pytest.mark.mission("PC-09")
@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_large_bodies_are_compressed_and_read(
    side: Side, other: Side, servers: Servers, topic: str, compression: str
) -> None:
    make_topic(servers, topic)
    with other.consume(topic, f"{topic}_g") as consuming, side.consume(topic, f"{topic}_own") as own:
        side.send(topic, *[Out("x" * size) for size in (4095, 4096, 100_000)], compression=compression)
        for reader in (consuming, own):
            assert sorted(len(body) for body in bodies(reader.take(3))) == [4095, 4096, 100_000]


def test_a_delayed_message_comes_later(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic, 1)
    with other.consume(topic, f"{topic}_g") as consuming:
        began = time.monotonic()
        side.send(topic, Out("later", delay_level=2), Out("now"))
        got = bodies(consuming.take())
        while got[-1] != "later":
            got += bodies(consuming.take())
        assert time.monotonic() - began >= 0.99
        if len(got) == 1:  # a busy machine let the second wait longer than the first was delayed
            got += bodies(consuming.take())
    assert sorted(got) == ["later", "now"]


def test_names_of_a_namespace_are_its_own(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, f"ns%{topic}")
    with (
        side.consume(topic, f"{topic}_g", namespace="ns") as inside,
        other.consume(f"ns%{topic}", f"{topic}_outside") as outside,
    ):
        side.send(topic, Out("in a namespace"), namespace="ns")
        (shown,), (raw,) = inside.take(), outside.take()
    assert (shown.body, shown.topic) == ("in a namespace", topic)
    assert (raw.body, raw.topic) == ("in a namespace", f"ns%{topic}")


def test_transactions_become_visible_when_they_are_committed(
    side: Side, other: Side, servers: Servers, topic: str
) -> None:
    make_topic(servers, topic)
    transacting = side.transact(topic, f"{topic}_p")
    with other.consume(topic, f"{topic}_g") as consuming:
        transacting.send("good", "commit")
        assert bodies(consuming.take()) == ["good"]
        transacting.send("bad", "rollback", "rollback")
        transacting.send("asked good", "unknown", "commit")
        transacting.send("asked bad", "unknown", "rollback")
        transacting.send("last", "commit")
        transacting.await_asked("asked good", "asked bad")
        # Who is slow to answer is asked again, and what it then commits twice arrives twice.
        expected = {"good", "asked good", "last"}
        wait_until(lambda: set(bodies(consuming.seen)) >= expected, "what was committed", 60)
        transacting.stop()
        assert set(bodies(consuming.seen)) == expected


def test_a_request_has_its_reply(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic)
    with other.serve(topic, f"{topic}_g"):
        assert side.request(topic, "ask 1", "größe") == ["re: ask 1", "re: größe"]


# Consuming


def test_a_consumer_replies_to_requests(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic)
    with side.serve(topic, f"{topic}_g"):
        assert other.request(topic, "ask 1", "größe") == ["re: ask 1", "re: größe"]


def test_tags_decide_what_a_consumer_sees(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic)
    # Aa and BB have one hash: the broker lets both pass, the consumer does not.
    tags = ["a", "b", "c", "Aa", "BB", None]
    with (
        side.consume(topic, f"{topic}_g", tag="a || Aa") as consuming,
        side.consume(topic, f"{topic}_all") as everything,
    ):
        other.send(topic, *[Out(f"{tag} {number}", tag=tag) for number in range(3) for tag in tags])
        assert len(everything.take(18)) == 18
        assert sorted(bodies(consuming.take(6))) == [f"{tag} {number}" for tag in ("Aa", "a") for number in range(3)]
    assert len(consuming.seen) == 6


def test_properties_decide_what_a_consumer_sees(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic)
    with side.consume(topic, f"{topic}_g", sql="size > 5 AND TAGS IN ('a', 'b')") as consuming:
        sizes = [(size, tag) for size in ("4", "6") for tag in "abc"]
        other.send(topic, *[Out(size, tag=tag, properties={"size": size}) for size, tag in sizes])
        assert {(each.body, each.tag) for each in consuming.take(2)} == {("6", "a"), ("6", "b")}
        other.send(topic, Out("end", tag="a", properties={"size": "9"}))
        consuming.take()
    assert len(consuming.seen) == 3


def test_a_failed_message_comes_back_with_its_count(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic)
    with side.consume(topic, f"{topic}_g", fails=2) as consuming:
        (sent,) = other.send(topic, Out("bad luck", tag="t", keys="k"))
        got = consuming.take(3)
        other.send(topic, Out("good"))
        assert bodies(consuming.take()) == ["good"]
    assert bodies(got) == ["bad luck"] * 3
    assert [each.times for each in got] == [0, 1, 2]
    assert {each.topic for each in got} == {topic}
    assert got[0].id == sent.id
    assert {(each.tag, each.keys, each.properties["UNIQ_KEY"]) for each in got} == {("t", "k", sent.id)}


def test_what_fails_too_often_is_a_dead_letter(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic)
    group = f"{topic}_g"
    with side.consume(topic, group, fails=99, retries_max=1) as consuming:
        other.send(topic, Out("bad for ever", tag="t"))
        assert [each.times for each in consuming.take(2)] == [0, 1]
        wait_until(lambda: call(servers.namesrv.address, 105, {"topic": f"%DLQ%{group}"}).code == 0, "dead letters", 30)
    create_topic(servers.broker.address, f"%DLQ%{group}", 1)  # as it is made, it may not be read
    with other.consume(f"%DLQ%{group}", f"{topic}_undertaker") as undertaker:
        (dead,) = undertaker.take()
    assert (dead.body, dead.properties["RETRY_TOPIC" if "RETRY_TOPIC" in dead.properties else "DLQ_ORIGIN_TOPIC"]) == (
        "bad for ever",
        topic,
    )
    assert len(consuming.seen) == 2


@pytest.mark.parametrize("retries_max", [2, 16])
def test_ordered_consumption_waits_for_what_fails(
    side: Side, other: Side, servers: Servers, topic: str, retries_max: int
) -> None:
    """With 2 attempts left over the message is given up, and the queue goes on."""
    make_topic(servers, topic, 2)
    with side.consume(topic, f"{topic}_g", ordered=True, fails=3, retries_max=retries_max) as consuming:
        names = ["1", "2", "bad", "4", "5"]
        other.send(topic, *[Out(name, key=key) for name in names for key in ("0", "1")])
        tries = min(retries_max, 3) + 1
        got = consuming.take(2 * (len(names) - 1 + tries))
    by_queue: dict[int, list[Got]] = defaultdict(list)
    for each in got:
        by_queue[each.queue_id].append(each)
    assert len(by_queue) == 2
    for queue in by_queue.values():
        assert bodies(queue) == ["1", "2", *["bad"] * tries, "4", "5"]
        assert [each.times for each in queue if each.body == "bad"] == list(range(tries))


def test_broadcasting_gives_every_member_everything(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic)
    group = f"{topic}_g"
    with side.consume(topic, group, broadcast=True, member=f"{topic}_1") as first:
        with side.consume(topic, group, broadcast=True, member=f"{topic}_2") as second:
            other.send(topic, *[Out(str(number)) for number in range(8)])
            for member in (first, second):
                assert sorted(bodies(member.take(8))) == [str(number) for number in range(8)]
        other.send(topic, Out("while the second was away"))
        assert bodies(first.take()) == ["while the second was away"]
        with side.consume(topic, group, broadcast=True, member=f"{topic}_2") as again:
            assert bodies(again.take()) == ["while the second was away"]
    assert len(again.seen) == 1
    assert servers.committed(topic, group) == -1  # members remember their own progress


def test_pulling_goes_where_it_is_told(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic, 1)
    group = f"{topic}_g"
    other.send(topic, *[Out(str(number)) for number in range(10)])
    pulling = side.pull(topic, group)
    pulling.seek(0, 4)
    got: list[str] = []
    while len(got) < 6:
        got += pulling.poll()
    assert got == [str(number) for number in range(4, 10)]
    assert servers.committed(topic, group) == -1
    pulling.commit()
    wait_until(lambda: servers.committed(topic, group) == 10, "the committed offset")
    assert pulling.committed(0) == 10
    pulling.seek(0, 8)
    again: list[str] = []
    while len(again) < 2:
        again += pulling.poll()
    assert again == ["8", "9"]
    pulling.stop()


def test_progress_outlives_consumers(side: Side, other: Side, servers: Servers, topic: str) -> None:
    make_topic(servers, topic, 2)
    group = f"{topic}_g"
    other.send(topic, *[Out(str(number)) for number in range(10)])
    with side.consume(topic, group) as first:
        assert len(first.take(10)) == 10
        # Not behind it: who is stopped in the moment of the last message may not have counted that one.
        wait_until(lambda: sum(servers.committed(topic, group, queue) for queue in (0, 1)) == 10, "the progress")
    other.send(topic, Out("new"))
    with side.consume(topic, group) as second:
        assert bodies(second.take()) == ["new"]
        other.send(topic, Out("newer"))
        second.take()
    assert bodies(second.seen) == ["new", "newer"]


def holds(path: Path, text: str) -> bool:
    """Whether the file of committed offsets has it; the offsets of pulls are behind them."""
    return path.exists() and text in "".join(path.read_text().split()).partition('"pullOffsetTable"')[0]


def test_clients_and_their_progress_outlive_a_killed_broker(
    servers: Servers, java55: JavaShell, topic: str, tmp_path: Path
) -> None:
    """One kill for the clients of both languages: starting a broker again takes its time."""
    make_topic(servers, topic, 1)
    saved = servers.broker.store / "config" / "consumerOffset.json"
    with PythonSide(servers.namesrv.address, tmp_path) as python:
        sides: list[Side] = [python, JavaSide(java55, servers.namesrv.address)]
        running = [side.consume(topic, f"{topic}_{side.name}") for side in sides]
        sides[0].send(topic, *[Out(str(number)) for number in range(5)])
        for side, consuming in zip(sides, running, strict=True):
            consuming.take(5)
            wait_until(functools.partial(holds, saved, f'"{topic}@{topic}_{side.name}":{{0:5'), "the progress", 60)
        servers.broker.kill()
        servers.broker.start()
        assert [servers.committed(topic, f"{topic}_{side.name}") for side in sides] == [5, 5]
        for side in sides:
            side.send(topic, Out(f"after, from {side.name}"))
            for each in running:
                assert bodies(each.take(1, 60)) == [f"after, from {side.name}"]
        for consuming in running:
            consuming.stop()
            assert len(consuming.seen) == 7
