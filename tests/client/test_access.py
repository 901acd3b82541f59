"""Every kind of client at brokers that check who asks: with the rights of docs/security.md, nothing is refused."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cometmq import Client, Message, Retry, StartFrom
from cometmq.client.admin import AccessEntry
from cometmq.client.options import ClientKeywords
from cometmq.client.produce.transactions import Tx
from cometmq.errors import AccessDenied
from cometmq.sync import Client as SyncClient
from cometmq.testing import Cluster
from tests.nameserver.support import nameserver
from tests.nameserver.test_access import SECURED as NAMES_SECURED
from tests.support.access import ROOT, SECURED, SIGNING, password_of
from tests.support.brokers import running_broker
from tests.support.net import until

TRACE = "RMQ_SYS_TRACE_TOPIC"
SETTINGS = {
    "traceTopicEnable": True,
    "transactionCheckInterval": 300,
    "transactionTimeOut": 300,
    "recallMessageEnable": True,
}


@asynccontextmanager
async def cluster_with(*topics: str, brokers: int = 1) -> AsyncIterator[Cluster]:
    async with Cluster(secure=True, brokers=brokers, topics=topics, queues=2, settings=SETTINGS) as cluster:
        yield cluster


@contextmanager
def nothing_is_refused(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Brokers log what they refuse; clients log what was refused to their timers."""
    with caplog.at_level(logging.INFO):
        caplog.clear()
        yield
        refused = [one.getMessage() for one in caplog.records if "refuse request" in one.getMessage()]
        assert refused == []
        assert "code 16" not in caplog.text
        assert "no permission" not in caplog.text


@pytest.mark.mission("AC-15")
async def test_a_producer_needs_pub(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster_with("orders", brokers=2) as cluster:
        keys = await cluster.create_user("shop", {"Topic:orders": "Pub", f"Topic:{TRACE}": "Pub"})
        with nothing_is_refused(caplog):
            async with cluster.client(**keys) as client, client.producer("pg", trace=True) as producer:
                await producer.send("orders", b"plain")
                await producer.send_oneway("orders", b"oneway")
                await producer.send_many("orders", [b"many", b"more"])
                await producer.send_soon("orders", b"soon")
                await producer.flush()
                later = await producer.send("orders", b"later", delay=60)
                await producer.recall(later)
                await client.instance.heartbeat()
        assert len(await cluster.messages("orders")) == 5


@pytest.mark.mission("AC-15")
async def test_a_transaction_needs_no_more_and_answers_checks(caplog: pytest.LogCaptureFixture) -> None:
    checked: list[bytes] = []

    def check(message: Message[bytes]) -> Tx:
        checked.append(message.body)
        return Tx.COMMIT

    async with cluster_with("pay") as cluster:
        keys = await cluster.create_user("shop", {"Topic:pay": "Pub"})
        with nothing_is_refused(caplog):
            async with cluster.client(**keys) as client, client.transaction_producer("tx", check=check) as producer:
                async with producer.begin("pay", b"good"):
                    pass
                async with producer.begin("pay", b"bad") as transaction:
                    transaction.rollback()
                async with producer.begin("pay", b"open") as transaction:
                    transaction.unknown()
                await until(lambda: set(checked) == {b"open"}, "the check")
                while len(await cluster.messages("pay")) < 2:  # noqa: ASYNC110 - a broker brings it about
                    await asyncio.sleep(0.01)


@pytest.mark.mission("AC-15")
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_push_consumer_needs_sub_on_its_topic_and_its_group(
    caplog: pytest.LogCaptureFixture, ordered: bool
) -> None:
    async with cluster_with("orders") as cluster:
        rights = {"Topic:orders": "Sub", "Group:billing": "Sub", f"Topic:{TRACE}": "Pub"}
        keys = await cluster.create_user("billing", rights)
        async with cluster.client() as sender, sender.producer("pg") as producer:
            await producer.send_many("orders", [b"1", b"2", b"3"])
        handled: list[bytes] = []
        with nothing_is_refused(caplog):
            async with cluster.client(**keys) as client:
                app = client.push_consumer("billing", start=StartFrom.FIRST, trace=True, suspend=0.01)

                @app.on("orders", ordered=ordered)
                async def handle(message: Message[bytes]) -> None:
                    handled.append(message.body)
                    if message.body == b"2" and handled.count(b"2") == 1:
                        raise Retry

                async with app:
                    await until(lambda: len(handled) >= 3)
                    await cluster.advance(60)
                    await until(lambda: handled.count(b"2") == 2, "the retry")
                    await client.instance.heartbeat()
        async with cluster.client(**keys) as client:
            other = client.push_consumer("another", start=StartFrom.FIRST)

            @other.on("orders")
            async def never(message: Message[bytes]) -> None:
                raise AssertionError

            caplog.clear()
            async with other:
                await until(lambda: "Group:another" in caplog.text, "what is refused to be logged")


@pytest.mark.mission("AC-15")
async def test_an_iterator_that_starts_at_a_time_needs_get(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster_with("orders") as cluster:
        keys = await cluster.create_user("billing", {"Topic:orders": "Sub,Get", "Group:billing": "Sub"})
        async with cluster.client() as sender, sender.producer("pg") as producer:
            await producer.send("orders", b"1")
        with nothing_is_refused(caplog):
            async with (
                cluster.client(**keys) as client,
                client.consumer("billing", "orders", start=datetime(2020, 1, 1, tzinfo=UTC)) as consumer,
            ):
                async for message in consumer:
                    assert message.body == b"1"
                    break


@pytest.mark.mission("AC-15")
async def test_a_pull_consumer_needs_get(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster_with("orders") as cluster:
        keys = await cluster.create_user("reader", {"Topic:orders": "Sub,Get", "Group:readers": "Sub"})
        async with cluster.client() as sender, sender.producer("pg") as producer:
            await producer.send_many("orders", [b"1", b"2"])
        with nothing_is_refused(caplog):
            async with cluster.client(**keys) as client, client.pull_consumer("readers") as consumer:
                queues = await consumer.queues("orders")
                await consumer.assign(queues)
                for queue in queues:
                    await consumer.seek(queue, consumer.BEGIN)
                found: set[bytes] = set()
                while found != {b"1", b"2"}:
                    found |= {message.body for message in await consumer.poll(10, timeout=5)}
                await consumer.commit()
                assert {await consumer.committed(queue) for queue in queues} != {None}
                assert await consumer.end_offset(queues[0]) >= await consumer.begin_offset(queues[0])
                await consumer.lag()


@pytest.mark.mission("AC-15")
async def test_who_replies_needs_pub_on_the_topic_of_replies(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster_with("rpc") as cluster:
        asker = await cluster.create_user("asker", {"Topic:rpc": "Pub"})
        rights = {"Topic:rpc": "Sub", "Group:desk": "Sub", "Topic:DefaultCluster_REPLY_TOPIC": "Pub"}
        replier = await cluster.create_user("replier", rights)
        with nothing_is_refused(caplog):
            async with (
                cluster.client(**asker) as asking,
                asking.producer("pg") as questions,
                cluster.client(**replier) as replying,
                replying.producer("answers") as answers,
                replying.consumer("desk", "rpc", start=StartFrom.FIRST) as consumer,
            ):
                question = asyncio.ensure_future(questions.request("rpc", b"why?", timeout=20))
                async for message in consumer:
                    await answers.reply(message, b"because")
                    break
                assert (await question).body == b"because"


@pytest.mark.mission("AC-15")
async def test_the_client_without_asyncio_signs_too() -> None:
    async with cluster_with("orders") as cluster:
        keys = await cluster.create_user("shop", {"Topic:orders": "Pub"})

        def work() -> None:
            with SyncClient(cluster.namesrv, **keys) as client, client.producer("pg") as producer:
                producer.send("orders", b"1")
                with client.admin() as admin, pytest.raises(AccessDenied) as denied:
                    admin.delete_topic("orders")
                assert (denied.value.user, denied.value.actions) == ("shop", ("Delete",))

        await asyncio.to_thread(work)


@pytest.mark.mission("AC-15")
@pytest.mark.parametrize("keys", [{}, {"access_key": "nobody", "secret_key": "x" * 8}])
async def test_who_is_not_known_gets_nothing_from_any_of_them(keys: ClientKeywords) -> None:
    async with cluster_with("orders") as cluster, Client(cluster.namesrv, **keys) as client:
        async with client.producer("pg", retries=0) as producer:
            for value in (producer.send("orders", b"x"), producer.send_many("orders", [b"x"])):
                with pytest.raises(AccessDenied):
                    await value
        async with client.admin() as admin:
            for asked in (admin.users(), admin.create_user("me", "my-password"), admin.broker_config("broker-a")):
                with pytest.raises(AccessDenied):
                    await asked
        assert await cluster.messages("orders") == []


@pytest.mark.mission("AC-15")
async def test_name_servers_that_ask_are_answered_by_every_kind_of_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root: ClientKeywords = {"access_key": ROOT, "secret_key": password_of(ROOT)}
    async with (
        nameserver(tmp_path, **NAMES_SECURED) as names,
        running_broker(tmp_path / "b", **{**SECURED, **SIGNING, "namesrvAddr": names.address}),
    ):
        with nothing_is_refused(caplog):
            async with Client(names.address, **root) as client, client.admin() as admin:
                await admin.create_topic("orders", queues=1)
                assert [one.name for one in await admin.brokers()] == ["broker-a"]
                await admin.put_key_value("space", "key", "value")
                async with client.producer("pg") as producer:
                    await producer.send("orders", b"hello")
                async with client.consumer("billing", "orders", start=StartFrom.FIRST) as consumer:
                    async for message in consumer:
                        assert message.body == b"hello"
                        break
        async with Client(names.address) as nobody, nobody.producer("pg") as producer:
            with pytest.raises(AccessDenied, match=r"name server .* username cannot be null"):
                await producer.send("orders", b"x")


@pytest.mark.mission("AC-15")
async def test_users_and_keys_may_be_there_before_anybody_checks_them(tmp_path: Path) -> None:
    keys: ClientKeywords = {"access_key": "shop", "secret_key": "shop-secret"}
    async with (
        Cluster(directory=tmp_path, topics=["orders"]) as still_open,
        still_open.client(**keys) as client,
        client.admin() as admin,
        client.producer("pg") as producer,
    ):
        await admin.create_user("shop", "shop-secret")
        await admin.grant("shop", AccessEntry("Topic:orders", ("Pub",)))
        await producer.send("orders", b"signed, and nobody looks")
    checking = {"authenticationEnabled": True, "authorizationEnabled": True}
    async with (
        Cluster(directory=tmp_path, settings=checking) as closed,
        closed.client(**keys) as client,
        client.producer("pg") as producer,
    ):
        await producer.send("orders", b"signed, and checked")
        async with Client(closed.namesrv) as nobody, nobody.producer("pg", retries=0) as stranger:
            with pytest.raises(AccessDenied):
                await stranger.send("orders", b"x")
