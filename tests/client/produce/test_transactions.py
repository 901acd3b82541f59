"""Transactions: half messages, what becomes of them, and checks that brokers ask for."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.client.messages import Message
from cometmq.client.produce.transactions import Tx
from cometmq.clock import ManualClock
from cometmq.errors import BrokerError, ConfigError
from cometmq.wire.codes import Request
from cometmq.wire.command import request
from cometmq.wire.hashing import crc31
from cometmq.wire.headers import CheckTransactionState, EndTransaction
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import decode, encode
from tests.support.aio import run
from tests.support.brokers import stored
from tests.support.clusters import accept, idle, real_cluster, refuse, scripted_cluster
from tests.support.net import until


def commit(_: Message[bytes]) -> Tx:
    return Tx.COMMIT


def bodies(cluster: Any, topic: str = "Pay") -> list[bytes]:
    return [message.body for queue in range(4) for message in stored(cluster.broker, topic, queue)]


async def test_a_message_is_visible_exactly_if_its_transaction_succeeded(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "Pay") as cluster,
        cluster.client() as client,
        client.transaction_producer("tx", check=commit) as producer,
    ):
        async with producer.begin("Pay", b"good", keys=["7"], tag="t") as transaction:
            assert bodies(cluster) == []
            assert transaction.message.keys == ("7",)
            assert transaction.message.body == b"good"
        await until(lambda: bodies(cluster) == [b"good"])
        with pytest.raises(LookupError):
            async with producer.begin("Pay", b"bad"):
                raise LookupError
        async with producer.begin("Pay", b"given up") as transaction:
            transaction.rollback()
        async with producer.begin("Pay", b"second"):
            pass
        await until(lambda: sorted(bodies(cluster)) == [b"good", b"second"])


def ends(broker: Any) -> list[EndTransaction]:
    return [EndTransaction.decode(it.ext) for it in broker.asked if it.code == Request.END_TRANSACTION]


@pytest.mark.mission("TX-01")
@pytest.mark.parametrize(
    ("branch", "state"), [("leave", 8), ("raise", 12), ("rollback", 12), ("unknown", 0), ("unknown and raise", 0)]
)
@pytest.mark.parametrize("code", [0, 10, 11, 12])
async def test_every_outcome_is_told_to_the_broker_of_the_half(code: int, branch: str, state: int) -> None:
    ran: list[str] = []
    async with (
        scripted_cluster("a", "b") as cluster,
        cluster.client() as client,
        client.transaction_producer("tx", check=commit) as producer,
    ):
        for broker in cluster.brokers.values():
            broker.answers = [accept(code, transaction_id="TXID")]

        async def work() -> None:
            async with producer.begin("T", b"x") as transaction:
                ran.append(transaction.message.id)
                if branch == "rollback":
                    transaction.rollback()
                if branch.startswith("unknown"):
                    transaction.unknown()
                if branch.endswith("raise"):
                    raise LookupError

        if code:
            with pytest.raises(BrokerError) as failed:
                await work()
            assert failed.value.code == code
        elif branch.endswith("raise"):
            with pytest.raises(LookupError):
                await work()
        else:
            await work()

        (name,) = [name for name, count in cluster.sends.items() if count]
        broker = cluster[name]
        await until(lambda: len(ends(broker)) == 1)
        (header,) = broker.headers()
        (end,) = ends(broker)
        properties = decode(header.properties.encode())
        assert header.sys_flag == 4
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "tx")
        assert bool(ran) == (code == 0)
        assert end.commit_or_rollback == (state if code == 0 else 12)
        assert (end.producer_group, end.topic, end.broker_name) == ("tx", "T", name)
        assert (end.tran_state_table_offset, end.commit_log_offset) == (7, 0)
        assert (end.msg_id, end.transaction_id) == (properties["UNIQ_KEY"], "TXID")
        assert end.from_transaction_check is False
        (command,) = [it for it in broker.asked if it.code == Request.END_TRANSACTION]
        assert command.is_oneway


@pytest.mark.mission("TX-01")
async def test_a_half_that_is_not_stored_runs_nothing() -> None:
    ran = False
    async with (
        scripted_cluster("a") as cluster,
        cluster.client() as client,
        client.transaction_producer("tx", check=commit) as producer,
    ):
        cluster["a"].answers = [refuse(13)]
        with pytest.raises(BrokerError):
            async with producer.begin("T", b"x"):
                ran = True
        assert not ran
        for delay in ({"delay": 5}, {"delay_level": 2}):
            with pytest.raises(ConfigError, match="delayed"):
                async with producer.begin("T", b"x", **delay):  # type: ignore[arg-type]
                    ran = True
        assert not ran
        assert ends(cluster["a"]) == []
        with pytest.raises(ConfigError, match="check"):
            client.transaction_producer("other", check=None)  # type: ignore[call-overload]


@pytest.mark.mission("TX-01")
async def test_an_end_that_is_lost_is_settled_by_the_check(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        real_cluster(tmp_path, "Pay", clock=clock) as cluster,
        cluster.client(clock=clock) as client,
        client.transaction_producer("tx", check=commit, topics=("Pay",)) as producer,
    ):
        async with producer.begin("Pay", b"money") as transaction:
            # The broker cannot be reached at the end: its address is unknown, and nobody knows it.
            real = client.instance.brokers
            client.instance.brokers = type(real)()
            address = cluster.names.address
            client.instance.nameservers.update([])
        client.instance.brokers = real
        client.instance.nameservers.update([address])
        assert transaction.state is Tx.COMMIT
        assert bodies(cluster) == []
        await check_round(clock, client, lambda: bodies(cluster) == [b"money"])


async def check_round(clock: ManualClock, client: Any, is_done: Callable[[], bool]) -> None:
    """Let rounds of checks pass until something has come of them."""
    for _ in range(40):
        await idle(client)
        clock.advance(10)
        for _ in range(20):
            if is_done():
                return
            await asyncio.sleep(0.002)
    raise AssertionError("no check settled it")


@pytest.mark.parametrize("kind", ["async", "plain", "plain that returns an awaitable"])
async def test_checks_may_be_plain_or_async(tmp_path: Path, kind: str) -> None:
    seen: list[tuple[Message[bytes], bool]] = []
    loop_thread = threading.get_ident()

    async def decide(message: Message[bytes]) -> Tx:
        seen.append((message, threading.get_ident() == loop_thread))
        return Tx.COMMIT

    def decide_plainly(message: Message[bytes]) -> Tx:
        seen.append((message, threading.get_ident() == loop_thread))
        return Tx.COMMIT

    checks: dict[str, Any] = {
        "async": decide,
        "plain": decide_plainly,
        "plain that returns an awaitable": lambda message: decide(message),  # noqa: PLW0108 - plain, unlike `decide`
    }
    clock = ManualClock()
    async with (
        real_cluster(tmp_path, "Pay", clock=clock) as cluster,
        cluster.client(clock=clock) as client,
        client.transaction_producer("tx", check=checks[kind], topics=("Pay",)) as producer,
    ):
        async with producer.begin("Pay", b"money", keys=["7"]) as transaction:
            transaction.unknown()
        await check_round(clock, client, lambda: bodies(cluster) == [b"money"])
        message, on_loop = seen[0]
        assert (message.body, message.keys, message.id) == (b"money", ("7",), transaction.message.id)
        assert on_loop == (kind != "plain")


async def test_a_check_that_fails_is_asked_again(tmp_path: Path) -> None:
    answers: list[Any] = [LookupError("mine"), None, Tx.UNKNOWN, Tx.ROLLBACK]
    asked: list[str] = []

    async def decide(message: Message[bytes]) -> Tx:
        asked.append(message.id)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    clock = ManualClock()
    async with (
        real_cluster(tmp_path, "Pay", clock=clock) as cluster,
        cluster.client(clock=clock) as client,
        client.transaction_producer("tx", check=decide, topics=("Pay",)) as producer,
    ):
        async with producer.begin("Pay", b"money") as transaction:
            transaction.unknown()
        await check_round(clock, client, lambda: len(asked) == 4)
        assert set(asked) == {transaction.message.id}
        for _ in range(12):
            await idle(client)
            clock.advance(10)
            await asyncio.sleep(0.002)
        assert len(asked) == 4  # rolled back: nobody asks any more
        assert bodies(cluster) == []


@pytest.mark.mission("TX-09")
async def test_another_member_of_the_group_is_asked_when_the_producer_is_gone(tmp_path: Path) -> None:
    clock = ManualClock()
    async with real_cluster(tmp_path, "Pay", clock=clock) as cluster:
        async with cluster.client(clock=clock) as first:
            producer = first.transaction_producer("tx", check=commit, topics=("Pay",))
            await producer.start()
            async with producer.begin("Pay", b"money") as transaction:
                transaction.unknown()
            await first.instance.net.stop()  # as if killed: nothing is said to anybody
        asked: list[str] = []

        async def decide(message: Message[bytes]) -> Tx:
            asked.append(message.id)
            return Tx.COMMIT

        for _ in range(12):  # nobody is online: nobody is asked, and nothing is lost
            clock.advance(10)
            await asyncio.sleep(0.002)
        assert bodies(cluster) == []
        async with (
            cluster.client(clock=clock) as second,
            second.transaction_producer("tx", check=decide, topics=("Pay",)),
        ):
            await check_round(clock, second, lambda: bodies(cluster) == [b"money"])
            assert asked == [transaction.message.id]


async def test_checks_are_bounded() -> None:
    going = asyncio.Event()
    running = most = 0

    async def decide(_: Message[bytes]) -> Tx:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await going.wait()
        running -= 1
        return Tx.COMMIT

    async with (
        scripted_cluster("a") as cluster,
        cluster.client() as client,
        client.transaction_producer(
            "tx", check=decide, topics=("T",), check_concurrency=2, check_waiting_max=5
        ),
    ):
        link = cluster["a"].server.connections[0]
        for number in range(10):
            link.send_oneway(check_request(number))
        await link.call(check_free(), 5)  # behind them: all have arrived
        going.set()
        await until(lambda: len(ends(cluster["a"])) == 5)
        assert most == 2
        assert all(end.from_transaction_check for end in ends(cluster["a"]))
        assert [end.commit_log_offset for end in ends(cluster["a"])] == list(range(5))


def check_request(number: int) -> Any:
    host = (b"\x7f\x00\x00\x01", 1)
    properties = encode({"PGROUP": "tx", "UNIQ_KEY": f"ID{number}"})
    stored_message = StoredMessage(0, 1, crc31(b"x"), 0, 0, 0, 0, 4, 1, host, 1, host, 0, 0, b"x", "T", properties)
    header = CheckTransactionState(tran_state_table_offset=number, commit_log_offset=number, msg_id=f"ID{number}")
    return request(Request.CHECK_TRANSACTION_STATE, header.encode(), stored_message.encode(), oneway=True)


def check_free() -> Any:
    return request(9999)


def test_a_plain_producer_ignores_checks(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("tx", topics=("T",)):
            link = cluster["a"].server.connections[0]
            link.send_oneway(check_request(1))
            await link.call(check_free(), 5)
            assert ends(cluster["a"]) == []

    run(main())
    assert "not a transaction producer" in caplog.text
