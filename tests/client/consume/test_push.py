"""Push consumers: their life, their handlers, and what becomes of messages."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client, ConsumeContext, Message, Outcome, PushConsumer, Reject, Retry, StartFrom, json_codec
from cometmq.client.consume.outcomes import nearest_level
from cometmq.client.options import ConsumerOptions
from cometmq.clock import ManualClock
from cometmq.errors import BrokerError, ConfigError, NotRunning
from cometmq.wire.bodies import HeartbeatData
from cometmq.wire.codes import Request
from cometmq.wire.record.failure import read as read_failure
from cometmq.wire.record.properties import decode as decode_properties
from tests.conftest import run
from tests.support.aio import settle
from tests.support.brokers import stored
from tests.support.clusters import real_cluster
from tests.support.consuming import Asked, Got, advance_until, cache_of, committed, member_of, queue_of, quick, send
from tests.support.net import until

pytestmark = pytest.mark.filterwarnings("error")


# Life


@pytest.mark.mission("CC-01")
async def test_the_first_message_is_handled_by_the_first_rebalance(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        await send(client, "T", 1)
        got = Got()
        app = client.push_consumer("cg", start=StartFrom.FIRST)
        app.subscribe("T", got.take)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with app:
            await got.count(1)
        # Half a second of rest is RocketMQ's; the next rebalance would come after 20 s.
        assert 0.5 <= loop.time() - began_s < 15


@pytest.mark.mission("CC-01")
async def test_start_and_stop_each_happen_once_and_a_stopped_consumer_stays_so(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        app = quick(client)
        with pytest.raises(ConfigError, match="subscribes to nothing"):
            await app.start()
        app.subscribe("T", Got().take)
        await app.start()
        with pytest.raises(NotRunning, match="started before"):
            await app.start()
        assert app.is_running
        await app.stop()
        await app.stop()
        with pytest.raises(NotRunning, match="started before"):
            await app.start()


@pytest.mark.mission("CC-01")
async def test_a_consumer_of_a_client_that_does_not_run_does_not_start() -> None:
    app = quick(Client("127.0.0.1:1"))
    app.subscribe("T", Got().take)
    with pytest.raises(NotRunning, match="client is not running"):
        await app.start()


@pytest.mark.mission("CC-01")
async def test_a_group_that_is_taken_leaves_the_consumer_startable(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        first, second, renamed = quick(client), quick(client), quick(client, "other")
        for app in (first, second, renamed):
            app.subscribe("T", Got().take)
        await first.start()
        with pytest.raises(ConfigError, match="group cg"):
            await second.start()
        await renamed.start()
        assert first.is_running
        await first.stop()
        await second.start()
        assert second.is_running


@pytest.mark.mission("CC-01")
async def test_a_start_that_fails_is_final_and_leaves_nothing(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", enablePropertyFilter=True) as cluster, cluster.client() as client:
        app = quick(client)
        app.subscribe("T", Got().take, sql="a >")
        with pytest.raises(BrokerError, match="answered code"):
            await app.start()
        assert not app.is_running
        assert client.instance.consumers == {}
        with pytest.raises(NotRunning):
            await app.start()
        again = quick(client)
        again.subscribe("T", Got().take, sql="a > 1")
        await again.start()


@pytest.mark.mission("CC-01")
@pytest.mark.parametrize(
    ("topic", "options", "match"),
    [
        ("", {}, "blank"),
        ("bad topic", {}, "characters"),
        ("T", {"batch": 0}, "1 to 1024"),
        ("T", {"batch": 1025}, "1 to 1024"),
        ("T", {"tag": "A", "sql": "a > 1"}, "give one"),
        ("T", {"sql": " "}, "blank"),
        ("T", {"auto_commit": False}, "ordered"),
    ],
)
def test_subscriptions_that_cannot_be_are_refused(topic: str, options: dict[str, Any], match: str) -> None:
    app = Client("127.0.0.1:1").push_consumer("cg")
    with pytest.raises(ConfigError, match=match):
        app.subscribe(topic, Got().take, **options)


def test_groups_and_topics_that_cannot_be_are_refused() -> None:
    client = Client("127.0.0.1:1")
    for group, match in (("", "blank"), ("a b", "characters"), ("g" * 121, "120"), ("DEFAULT_CONSUMER", "default")):
        with pytest.raises(ConfigError, match=match):
            client.push_consumer(group)
    app = client.push_consumer("cg")
    app.subscribe("T", Got().take)
    with pytest.raises(ConfigError, match="handler in this consumer already"):
        app.subscribe("T", Got().take)


@pytest.mark.mission("CC-02")
async def test_consumers_of_one_client_share_its_connections_and_heartbeats(tmp_path: Path) -> None:
    asked = Asked()
    async with (
        real_cluster(tmp_path, "T", brokers=2) as cluster,
        cluster.client(instance_name="shared", hooks=[asked]) as client,
    ):
        got = [Got(), Got(), Got()]
        for number, one in enumerate(got):
            app = quick(client, f"cg{number}")
            app.subscribe("T", one.take)
            await app.start()
        bodies = await send(client, "T", 10, None)
        for one in got:
            await one.count(10)
            one.check_once(bodies)
        await client.instance.heartbeat()
        beats = [command for _, command in asked.commands if command.code == Request.HEART_BEAT]
        data = HeartbeatData.decode(beats[-1].body)
        assert {it.group_name for it in data.consumer_data_set} == {"cg0", "cg1", "cg2"}
        assert "CLIENT_INNER_PRODUCER" in {it.group_name for it in data.producer_data_set}
        assert client.client_id.endswith("@shared")
        for broker in cluster.brokers:
            peers = {member.link.peer_text for name in ("cg0", "cg1", "cg2")
                     for member in broker.tables.consumers.get(name).members.values()}  # type: ignore[union-attr]  # fmt: skip
            assert len(peers) == 1


def test_a_broadcasting_consumer_is_known_by_a_stable_id(tmp_path: Path) -> None:
    client = Client("127.0.0.1:1", client_ip="10.0.0.1")
    app = client.push_consumer("cg", broadcast=True, offsets_dir=tmp_path)
    offsets: Any = member_of(app).offsets
    assert offsets.path == tmp_path / "10.0.0.1@DEFAULT" / "cg" / "offsets.json"


async def test_run_consumes_until_it_is_cancelled(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take)
        task = asyncio.create_task(app.run())
        await send(client, "T", 3)
        await got.count(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not app.is_running
        assert committed(cluster.broker) == 3


async def test_stop_waits_for_handlers_and_commits_what_they_did(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        got = Got()
        got.gate.clear()
        app = quick(client, concurrency=3)
        app.subscribe("T", got.take)
        await app.start()
        await send(client, "T", 10)
        await until(lambda: got.running == 3)
        stopping = asyncio.create_task(app.stop())
        await settle()
        assert not stopping.done()
        got.gate.set()
        await stopping
        assert len(got.messages) == 3  # what waited in line is left to others
        assert committed(cluster.broker) == 3


async def test_handlers_that_take_too_long_are_cancelled_and_their_messages_come_again(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        got = Got()
        got.gate.clear()
        app = quick(client, drain_timeout=0.01)
        app.subscribe("T", got.take)
        await app.start()
        await send(client, "T", 1)
        await until(lambda: got.running == 1)
        await app.stop()
        assert (got.running, got.messages) == (0, [])
        got.gate.set()
        again = quick(client)
        again.subscribe("T", got.take)
        async with again:
            await got.count(1)


async def test_nothing_is_left_of_a_consumer(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        before = set(asyncio.all_tasks())
        for _ in range(3):
            got = Got()
            app = quick(client, start=StartFrom.LAST)
            app.subscribe("T", got.take)
            async with app:
                await until(lambda app=app: len(app.queues) == 5)  # type: ignore[misc]
                await send(client, "T", 5)
                await got.count(5)
            assert member_of(app).queues == {}
        await until(lambda: set(asyncio.all_tasks()) <= before)
        assert client.instance.consumers == {}


# Handlers


@dataclass
class Order:
    id: int
    note: str = ""


async def test_payloads_are_decoded_by_annotation(tmp_path: Path) -> None:
    topics = ("Orders", "Texts", "Raw", "Whole", "Plain")
    async with real_cluster(tmp_path, *topics) as cluster, cluster.client() as client:
        seen: dict[str, Any] = {}
        app = quick(client, codec=json_codec)

        @app.on("Orders", tag="created || paid")
        async def orders(order: Order, message: Message[bytes]) -> None:
            seen["orders"] = (order, message.tag, message.value)

        @app.on("Texts")
        def texts(text: str) -> None:
            seen["texts"] = text

        @app.on("Raw")
        async def raw(body: bytes) -> None:
            seen["raw"] = body

        @app.on("Whole")
        async def whole(message: Message[Order]) -> None:
            seen["whole"] = message.value

        @app.on("Plain")
        async def plain(message) -> None:  # type: ignore[no-untyped-def]
            seen["plain"] = message.value

        async with app, client.producer("pg") as producer:
            await producer.send("Orders", b'{"id": 1}', tag="other")
            await producer.send("Orders", b'{"id": 7, "note": "x"}', tag="paid")
            for topic in ("Texts", "Raw", "Whole", "Plain"):
                await producer.send(topic, b'{"id": 3}')
            await until(lambda: len(seen) == 5)
        assert seen == {
            "orders": (Order(7, "x"), "paid", Order(7, "x")),
            "texts": '{"id": 3}',
            "raw": b'{"id": 3}',
            "whole": Order(3),
            "plain": {"id": 3},
        }


@pytest.mark.parametrize(
    ("function", "batch", "match"),
    [
        (lambda: None, None, "0 arguments"),
        (lambda a, b, c: None, None, "3 arguments"),
    ],
)
def test_functions_that_cannot_be_handlers_are_refused(function: Any, batch: int | None, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Client("127.0.0.1:1").push_consumer("cg").subscribe("T", function, batch=batch)


def test_a_batch_handler_takes_a_list() -> None:
    async def wrong(message: Message[bytes], more: int = 0) -> None: ...

    async def right(messages: list[Message[bytes]]) -> None: ...

    app = Client("127.0.0.1:1").push_consumer("cg")
    with pytest.raises(ConfigError, match="list"):
        app.subscribe("T", wrong, batch=3)
    app.subscribe("T", right, batch=3)


@pytest.mark.mission("CC-08")
async def test_what_was_pulled_is_cut_into_batches(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        await send(client, "T", 32)
        sizes: list[int] = []
        app = quick(client, concurrency=1, pull_batch=32)

        @app.on("T", batch=10)
        async def many(messages: list[Message[bytes]]) -> None:
            sizes.append(len(messages))

        async with app:
            await until(lambda: sum(sizes) == 32)
        assert sizes == [10, 10, 10, 2]
        assert committed(cluster.broker) == 32


@pytest.mark.mission("CC-08")
async def test_one_number_bounds_how_many_handlers_run_and_nothing_is_lost(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", "U") as cluster, cluster.client() as client:
        got = Got()
        app = quick(client, concurrency=7)
        app.subscribe("T", got.take)
        app.subscribe("U", got.take, ordered=True)
        got.gate.clear()
        async with app:
            bodies = await send(client, "T", 200) + await send(client, "U", 200, None)
            await until(lambda: got.running == 7)
            await until(lambda: cache_of(app).count == 200)
            assert got.running_max == 7
            got.gate.set()
            await got.count(400)
        got.check_once(bodies)
        assert got.running_max == 7


@pytest.mark.mission("CC-08")
async def test_a_message_that_no_thread_takes_is_handled_after_five_seconds(tmp_path: Path) -> None:
    clock = ManualClock()
    async with real_cluster(tmp_path, "T") as cluster, cluster.client(clock=clock) as client:
        executor = FullOnce()
        texts: list[str] = []

        def handle(text: str) -> None:
            texts.append(text)

        app = quick(client, executor=executor)
        app.subscribe("T", handle)
        with executor:
            async with app:
                await send(client, "T", 1)
                await until(lambda: executor.refused == 1)
                clock.advance(4.9)
                await settle()
                assert texts == []
                clock.advance(0.2)
                await until(lambda: texts == ["0"])


class FullOnce(ThreadPoolExecutor):
    def __init__(self) -> None:
        super().__init__(1)
        self.refused = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.refused == 0:
            self.refused += 1
            raise RuntimeError("full")
        return super().submit(fn, *args, **kwargs)


class Labels:
    def __init__(self) -> None:
        self.contexts: list[ConsumeContext] = []
        self.began = 0

    def before_consume(self, context: ConsumeContext) -> None:
        assert context.label is None
        self.began += 1

    def after_consume(self, context: ConsumeContext) -> None:
        self.contexts.append(context)
        raise ValueError("a hook that fails changes nothing")


@pytest.mark.mission("CC-09")
async def test_hooks_see_how_handlers_end(tmp_path: Path) -> None:
    clock = ManualClock()
    async with real_cluster(tmp_path, "T") as cluster, cluster.client(clock=clock) as client:
        labels = Labels()
        app = quick(client, concurrency=1)
        app.add_hook(labels)

        @app.on("T")
        async def handle(text: str) -> Outcome:
            if text == "0":
                raise ValueError("no")
            if text == "1":
                return None  # type: ignore[return-value]
            if text == "2":
                clock.advance(16 * 60)
            if text == "3":
                raise Retry
            return Outcome.SUCCESS

        async with app:
            await send(client, "T", 5)
            await until(lambda: len(labels.contexts) == 5)
        seen = [context.label for context in labels.contexts]
        assert seen == ["exception", "null", "timeout", "failed", "success"]
        assert [context.success for context in labels.contexts] == [False, False, True, False, True]
        assert isinstance(labels.contexts[0].error, ValueError)
        assert labels.began == 5
        start = int(labels.contexts[4].messages[0].properties["CONSUME_START_TIME"])
        assert start >= 1_700_000_000_000


@pytest.mark.mission("CC-09")
async def test_a_retried_message_shows_its_own_topic_and_a_dropped_queue_is_skipped(tmp_path: Path) -> None:
    clock = ManualClock()
    async with real_cluster(tmp_path, "ns%T", clock=clock) as cluster, cluster.client(namespace="ns") as client:
        got = Got()
        app = quick(client)

        @app.on("T")
        async def handle(message: Message[bytes]) -> None:
            got.messages.append(message)
            if message.delivery_count == 1:
                raise Retry(after=1)

        async with app:
            await send(client, "T", 1)
            await advance_until(clock, lambda: len(got.messages) == 2, "the retry", 1.0)
        first, second = got.messages
        assert (first.topic, second.topic) == ("T", "T")
        assert second.queue is not None
        assert second.queue.topic == "%RETRY%cg"
        assert (first.delivery_count, second.delivery_count) == (1, 2)
        assert first.id == second.id


@pytest.mark.mission("CC-10")
async def test_the_rest_of_a_batch_comes_back(tmp_path: Path) -> None:
    clock = ManualClock()
    async with real_cluster(tmp_path, "T", clock=clock) as cluster, cluster.client() as client:
        await send(client, "T", 5)
        batches: list[list[bytes]] = []
        app = quick(client)

        @app.on("T", batch=5)
        async def many(messages: list[Message[bytes]]) -> None:
            batches.append([message.body for message in messages])
            if len(batches) == 1:
                raise Retry(after=1, done=3)  # RocketMQ's ackIndex 2

        async with app:
            await until(lambda: committed(cluster.broker) == 5)
            await advance_until(clock, lambda: sum(map(len, batches)) == 7, "two retries", 1.0)
        assert batches[0] == [b"0", b"1", b"2", b"3", b"4"]
        assert sorted(body for batch in batches[1:] for body in batch) == [b"3", b"4"]


@pytest.mark.mission("CC-10")
def test_a_message_that_no_broker_takes_back_is_handled_again_after_five_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = ManualClock()
        refuse = Refuse()
        async with (
            real_cluster(tmp_path, "T") as cluster,
            cluster.client(clock=clock, hooks=[refuse]) as client,
        ):
            await send(client, "T", 1)
            got = Got()
            app = quick(client)

            @app.on("T")
            async def handle(message: Message[bytes]) -> None:
                got.messages.append(message)
                if len(got.messages) == 1:
                    raise ValueError("no")

            async with app:
                await until(lambda: refuse.refused == 1 and "fail retry copy" in caplog.text)
                await until(lambda: member_of(app)._timers)
                clock.advance(4.9)
                await settle()
                assert len(got.messages) == 1
                assert cache_of(app).count == 1
                clock.advance(0.2)
                await got.count(2)
                await until(lambda: cache_of(app).count == 0)
            assert [message.delivery_count for message in got.messages] == [1, 2]
            assert committed(cluster.broker) == 1

    caplog.set_level(logging.WARNING)
    run(main())


class Refuse:
    """Makes the client fail to send back, and to send copies."""

    def __init__(self) -> None:
        self.refused = 0

    def before(self, peer: str, request: Any) -> None:
        if request.code == Request.CONSUMER_SEND_MSG_BACK:
            self.refused += 1
            request.ext["offset"] = "-1"
        elif request.code == Request.SEND_MESSAGE_V2 and request.ext["b"].startswith("%RETRY%"):
            request.ext["b"] = "no such topic!"

    def after(self, peer: str, request: Any, response: Any) -> None: ...


@pytest.mark.mission("CC-10")
async def test_a_stuck_message_holds_the_committed_offset_and_a_dropped_queue_commits_nothing(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        await send(client, "T", 10)
        done: list[str] = []
        stuck = asyncio.Event()
        app = quick(client, commit_interval=0.02)

        @app.on("T")
        async def handle(text: str) -> None:
            if text == "3":
                await stuck.wait()
            done.append(text)

        await app.start()
        await until(lambda: len(done) == 9)
        cache = cache_of(app)
        await member_of(app).offsets.persist([cache.queue])
        assert committed(cluster.broker) == 3
        assert (cache.count, cache.commit_offset) == (1, 3)
        cache.state = "lost"
        stuck.set()
        await until(lambda: len(done) == 10)
        await app.stop()
        assert committed(cluster.broker) == 3


async def test_what_a_broadcast_fails_on_is_logged_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        got = [Got(), Got()]
        async with cluster.client() as other:
            apps = []
            for number, one in enumerate((client, other)):
                app = quick(one, broadcast=True, offsets_dir=tmp_path / str(number))
                app.subscribe("T", got[number].take)
                await app.start()
                apps.append(app)
            failing = quick(client, "failing", broadcast=True, offsets_dir=tmp_path / "2")

            @failing.on("T")
            async def fail(text: str) -> None:
                raise ValueError(text)

            async with failing:
                bodies = await send(client, "T", 10, None)
                for taken in got:
                    await taken.count(10)
                    taken.check_once(bodies)
                await until(lambda: caplog.text.count("it is a broadcast") == 10)
                assert stored(cluster.broker, "%RETRY%failing") == []


# Retries and dead letters


@pytest.mark.mission("DL-01")
def test_a_failed_message_returns_after_ten_seconds_and_after_thirty_more(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with real_cluster(tmp_path, "T", clock=clock) as cluster, cluster.client() as client:
            got = Got()
            at_s: list[float] = []
            app = quick(client)

            @app.on("T")
            async def handle(message: Message[bytes]) -> None:
                at_s.append(clock.monotonic())
                got.messages.append(message)
                raise ValueError("again")

            async with app:
                await send(client, "T", 1, keys="k")
                await advance_until(clock, lambda: len(got.messages) == 3, "two retries", 0.5)
            first, second, third = got.messages
            assert [message.delivery_count for message in got.messages] == [1, 2, 3]
            assert 10 <= at_s[1] - at_s[0] < 13
            assert 30 <= at_s[2] - at_s[1] < 33
            for retried in (second, third):
                assert retried.topic == "T"
                assert retried.properties["RETRY_TOPIC"] == "T"
                assert retried.properties["ORIGIN_MESSAGE_ID"] == first.offset_id
                assert (retried.id, retried.keys) == (first.id, ("k",))

    run(main(), 60)


@pytest.mark.mission("DU-01")
def test_rejected_messages_and_those_tried_too_often_become_dead_letters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with real_cluster(tmp_path, "T", clock=clock) as cluster, cluster.client() as client:
            tries: list[str] = []
            app = quick(client, max_retries=1)

            @app.on("T")
            async def handle(text: str) -> None:
                tries.append(text)
                if text == "0":
                    raise Reject("bad data")
                raise Retry(after=1) from KeyError("price")

            async with app:
                await send(client, "T", 2)
                await advance_until(clock, lambda: tries.count("1") == 2, "a retry", 0.5)
                await advance_until(clock, lambda: len(_dead(cluster.broker)) == 2, "dead letters", 0.5)
            assert tries.count("0") == 1
            assert sorted(message.body for message in _dead(cluster.broker)) == [b"0", b"1"]
            causes = {}
            for message in _dead(cluster.broker):
                found = read_failure(decode_properties(message.properties))
                assert found is not None
                assert found.consumer == client.instance.client_id
                causes[message.body] = (found.kind, found.cause, found.last_ms > found.first_ms)
            assert causes == {b"0": ("Reject", "bad data", False), b"1": ("KeyError", "'price'", True)}

    with caplog.at_level(logging.WARNING, "cometmq"):
        run(main(), 60)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith(("retry", "bury"))]
    assert [line.split(" message ")[0] for line in lines] == ["bury", "retry", "bury"]
    assert "try=1 of 2 type=Reject cause=bad data" in lines[0]
    assert "try=2 of 2 type=KeyError cause='price'" in lines[2]


async def test_a_consumer_that_keeps_no_causes_sends_none(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        app = quick(client, keep_cause=False)

        @app.on("T")
        async def handle(text: str) -> None:
            raise Reject("secret")

        async with app:
            await send(client, "T", 1)
            await until(lambda: _dead(cluster.broker))
        assert b"FAILURE" not in _dead(cluster.broker)[0].properties


async def test_a_body_that_cannot_be_decoded_costs_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        app = quick(client, max_retries=0)

        @app.on("T")
        async def handle(order: dict[str, int]) -> None: ...

        async with app:
            async with client.producer("pg") as producer:
                await producer.send("T", b"not JSON")
            await until(lambda: _dead(cluster.broker))
    failed = [record for record in caplog.records if record.getMessage().startswith("fail handler")]
    assert len(failed) == 1
    assert failed[0].exc_info is None


def _dead(broker: Any, group: str = "cg") -> list[Any]:
    return stored(broker, f"%DLQ%{group}") if broker.tables.topics.get(f"%DLQ%{group}") is not None else []


@pytest.mark.parametrize(
    ("after_s", "level"),
    [(0, 1), (1, 1), (2, 1), (3, 2), (8, 3), (20, 4), (60, 5), (90, 6), (7200, 18), (99_999, 18)],
)
def test_a_retry_has_the_nearest_of_the_levels(after_s: float, level: int) -> None:
    assert nearest_level(after_s) == level


# Request and reply


async def test_what_a_handler_returns_is_the_reply(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "rpc") as cluster, cluster.client() as client, cluster.client() as asker:
        app = quick(client)

        @app.on("rpc")
        async def answer(question: dict[str, int]) -> dict[str, int]:
            return {"double": question["number"] * 2}

        async with app, asker.producer("pg", codec=json_codec) as producer:
            reply = await producer.request("rpc", {"number": 21}, timeout=20.0)
            assert reply.value == {"double": 42}
            await producer.send("rpc", {"number": 1})  # nobody waits: handled, and that is it
            await until(lambda: sum(committed(cluster.broker, "cg", "rpc", it) > 0 for it in range(4)) == 2)


async def test_topics_can_be_added_and_left_while_the_consumer_runs(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", "U") as cluster, cluster.client() as client:
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take)
        async with app:
            await send(client, "T", 1)
            await got.count(1)
            app.subscribe("U", got.take)
            await send(client, "U", 1)
            await got.count(2)
            app.unsubscribe("T")
            await until(lambda: {queue.topic for queue in app.queues} == {"U", "%RETRY%cg"})
            assert committed(cluster.broker) == 1
            await send(client, "U", 1)
            await got.count(3)
        assert [message.topic for message in got.messages] == ["T", "U", "U"]


async def test_a_consumer_of_its_own_has_a_private_client(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        got = Got()
        app = PushConsumer("own", ConsumerOptions(start=StartFrom.FIRST), namesrv=cluster.namesrv)
        app.subscribe("T", got.take)
        async with app, client.producer("pg") as producer:
            await producer.send("T", b"x", queue=await queue_of(producer, "T", 1))
            await got.count(1)
        assert not app.instance.is_running


async def test_a_handler_may_stop_its_own_consumer(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        app = quick(client)
        stopped = asyncio.Event()

        @app.on("T")
        async def handle(body: bytes) -> None:
            await app.stop()
            stopped.set()

        await app.start()
        await send(client, "T", 1)
        async with asyncio.timeout(20):
            await stopped.wait()
        assert not app.is_running


async def test_an_expression_that_the_broker_refuses_later_is_said_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with real_cluster(tmp_path, "T", "U", enablePropertyFilter=True) as cluster, cluster.client() as client:
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take)
        async with app:
            app.subscribe("U", got.take, sql="a >")
            await until(lambda: "refuse subscription group=cg topic=U" in caplog.text)
            await send(client, "T", 1)
            await got.count(1)
            await until(lambda: {queue.topic for queue in app.queues} == {"T", "%RETRY%cg"})
