"""Attempts: which outcomes are tried again, where, how often and until when."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from cometmq.client.options import RETRY_CODES
from cometmq.errors import (
    BrokerError,
    BrokerUnknown,
    ConnectFailed,
    ConnectionLost,
    OutOfTime,
    SendTimeout,
)
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.command import Command
from tests.support.aio import run
from tests.support.clusters import Script, accept, cut_by, producing, refuse, scripted_cluster, silence
from tests.support.net import until

EVERY_CODE = sorted({*RETRY_CODES - {1500}, 3, 13, 203, 604, 2017})


@pytest.mark.mission("PC-04")
@pytest.mark.parametrize("code", EVERY_CODE)
async def test_a_refusal_is_tried_at_other_brokers_by_its_code(code: int) -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        for broker in cluster.brokers.values():
            broker.answers = [refuse(code)]
        async with client.producer("pg") as producer:
            with pytest.raises(BrokerError) as refused:
                await producer.send("T", b"x")
            assert refused.value.code == code
            if code in RETRY_CODES:
                assert sorted(cluster.sends.values()) == [1, 2]  # never twice in a row at the same
            else:
                assert sum(cluster.sends.values()) == 1

            async with cluster.client() as other, other.producer("soon") as soon:
                before = sum(cluster.sends.values())
                with pytest.raises(BrokerError):
                    await soon.send_soon("T", b"x")
                assert sum(cluster.sends.values()) == before + 1


@pytest.mark.mission("PC-04")
async def test_a_broker_that_goes_away_twice_is_left_for_another() -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        cluster["a"].answers = [refuse(1500)]
        async with client.producer("pg") as producer:
            for _ in range(8):
                assert (await producer.send("T", b"x")).queue.broker_name == "b"
            assert cluster["a"].sends > 0


@pytest.mark.mission("PC-04")
async def test_attempts_are_one_more_than_retries() -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        for broker in cluster.brokers.values():
            broker.answers = [refuse(2)]
        for retries in (0, 1, 4):
            async with client.producer("pg", retries=retries) as producer:
                before = sum(cluster.sends.values())
                with pytest.raises(BrokerError, match=f"after {retries + 1} attempts"):
                    await producer.send("T", b"x")
                assert sum(cluster.sends.values()) == before + retries + 1


@pytest.mark.mission("PC-04")
async def test_the_set_of_codes_can_be_changed() -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        cluster["a"].answers = cluster["b"].answers = [refuse(99)]
        async with client.producer("pg", retry_codes=frozenset({99})) as producer:
            with pytest.raises(BrokerError, match="after 3 attempts"):
                await producer.send("T", b"x")


@pytest.mark.mission("PC-04")
async def test_no_attempt_starts_after_the_budget() -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        started: list[float] = []
        for broker in cluster.brokers.values():
            broker.delay_s = 0.4
            broker.answers = [noting(started, refuse(2))]
        async with client.producer("pg", timeout=1.0, retries=9, topics=("T",)) as producer:
            began = time.monotonic()
            with pytest.raises((SendTimeout, BrokerError)) as failed:
                await producer.send("T", b"x")
            took = time.monotonic() - began
            await asyncio.sleep(0.5)  # a late attempt would arrive now
        assert isinstance(failed.value, SendTimeout)
        assert len(started) <= 3, "ten attempts of 0.4 s each, were it not for the budget"
        assert took > 0.95


@pytest.mark.mission("PC-04", "PC-11")
async def test_a_budget_that_is_used_up_between_attempts_is_an_error_of_its_own() -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        for broker in cluster.brokers.values():
            broker.delay_s = 0.3
            broker.answers = [refuse(2)]
        async with client.producer("pg", topics=("T",)) as producer:
            with pytest.raises(OutOfTime) as failed:
                await producer.send("T", b"x", timeout=0.0)
            assert "after 0 attempts" in str(failed.value)
            assert sum(cluster.sends.values()) == 0
            # The answer comes at 0.3 s: what is left after it depends on the machine, so it is taken away.
            producer._sender._monotonic = _jumping_after(2, producer._sender._monotonic)
            with pytest.raises(OutOfTime) as late:
                await producer.send("T", b"x", timeout=5.0)
            assert "after 1 attempts" in str(late.value)
            assert isinstance(late.value, TimeoutError)


def noting(times: list[float], script: Script) -> Script:
    def note(received: Command) -> Command | None:
        times.append(time.monotonic())
        return script(received)

    return note


def _jumping_after(readings: int, clock: Callable[[], float]) -> Callable[[], float]:
    """A clock that jumps 10 s ahead after some readings."""
    count = 0

    def read() -> float:
        nonlocal count
        count += 1
        return clock() + (10.0 if count > readings else 0.0)

    return read


@pytest.mark.mission("PC-04")
@pytest.mark.parametrize("code", [10, 11, 12])
async def test_stored_but_not_confirmed_is_returned_as_it_is(code: int) -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        for broker in cluster.brokers.values():
            broker.answers = [accept(code)]
        async with client.producer("pg") as producer:
            receipt = await producer.send("T", b"x")
            assert not receipt.is_confirmed
            assert sum(cluster.sends.values()) == 1
        async with client.producer("again", retry_unconfirmed=True, retries=1) as producer:
            receipt = await producer.send("T", b"x")
            assert not receipt.is_confirmed  # the last result, because nothing better came
            assert sum(cluster.sends.values()) == 3
            assert len(receipt.queue.broker_name) == 1
        cluster["b"].answers = [accept(0)]
        async with client.producer("third", retry_unconfirmed=True) as producer:
            for _ in range(4):
                receipt = await producer.send("T", b"x")
                assert receipt.is_confirmed
                assert receipt.queue.broker_name == "b"


@pytest.mark.mission("PC-05")
def test_queues_get_the_same_number_of_messages() -> None:
    async def main() -> None:
        async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
            async with client.producer("pg") as producer:
                for _ in range(80):
                    await asyncio.gather(*[producer.send("T", b"x") for _ in range(100)])
            counts: dict[tuple[str, int], int] = {}
            for name, broker in cluster.brokers.items():
                for header in broker.headers():
                    place = (name, header.queue_id)
                    counts[place] = counts.get(place, 0) + 1
            assert counts == {(name, queue): 1000 for name in "ab" for queue in range(4)}

    run(main(), timeout_s=120)


@pytest.mark.mission("PC-05")
async def test_a_retry_goes_to_another_broker() -> None:
    async with producing("a", "b") as (cluster, producer):
        await cluster["a"].server.stop()
        for _ in range(16):
            receipt = await producer.send("T", b"x")
            assert receipt.queue.broker_name == "b"
        assert cluster["b"].sends == 16


@pytest.mark.mission("PC-05")
async def test_with_one_broker_a_retry_goes_there_again() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        cluster["a"].answers = [refuse(2), refuse(2), accept()]
        await producer.send("T", b"x")
        queues = [header.queue_id for header in cluster["a"].headers()]
        assert len(set(queues)) == 3
        ids = {header.properties for header in cluster["a"].headers()}
        assert len(ids) == 1  # the same message, under the same id


@pytest.mark.mission("PC-07")
async def test_a_chosen_queue_gets_one_attempt() -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        for broker in cluster.brokers.values():
            broker.answers = [refuse(2)]
        async with client.producer("pg") as producer:
            choices: list[dict[str, Any]] = [
                {"ordering_key": "k"},
                {"queue": MessageQueue("a", 1, "T")},
                {"selector": lambda queues, _message: queues[0]},
            ]
            for choice in choices:
                before = sum(cluster.sends.values())
                with pytest.raises(BrokerError, match="after 1 attempts"):
                    await producer.send("T", b"x", **choice)
                assert sum(cluster.sends.values()) == before + 1
            cluster["a"].answers = [cut_by(cluster["a"])]
            before = cluster["a"].sends
            with pytest.raises(ConnectionLost):
                await producer.send_soon("T", b"x", queue=MessageQueue("a", 1, "T"))
            assert cluster["a"].sends == before + 3  # soon: tried again, in the same queue
            assert {header.queue_id for header in cluster["a"].headers()[-3:]} == {1}


@pytest.mark.mission("PC-11")
async def test_the_final_error_has_the_code_of_its_cause_and_names_all_brokers() -> None:
    async with producing("a", "b", "c") as (cluster, producer):
        for broker in cluster.brokers.values():
            broker.answers = [refuse(2, "too busy")]
        with pytest.raises(BrokerError) as refused:
            await producer.send("T", b"x")
        assert (refused.value.code, refused.value.remark) == (2, "too busy")
        _tells_all(refused.value)

        for broker in cluster.brokers.values():
            broker.answers = [silence]
        with pytest.raises(SendTimeout) as timeout:
            await producer.send("T", b"x", timeout=0.2)
        assert timeout.value.code == 10002
        assert "T failed after 1 attempts" in str(timeout.value)

        for broker in cluster.brokers.values():
            await broker.server.stop()
        with pytest.raises(ConnectFailed) as connect:
            await producer.send("T", b"x")
        assert connect.value.code == 10001
        assert isinstance(connect.value, ConnectionError)
        _tells_all(connect.value)

        route = cluster.route()
        for data in route.broker_datas:
            data.broker_addrs = {1: "127.0.0.1:1"}
        route.order_topic_conf = "a:1;b:1;c:1"
        cluster.routes["T"] = route
        await producer.instance.refresh_route("T")
        with pytest.raises(BrokerUnknown) as unknown:
            await producer.send("T", b"x")
        assert unknown.value.code == 10003
        _tells_all(unknown.value)


def _tells_all(error: Exception) -> None:
    text = str(error)
    assert "topic T failed after 3 attempts in " in text
    listed = text.partition("brokers tried: ")[2].partition(":")[0]
    assert sorted(listed.split(", ")) == ["a", "b", "c"]


@pytest.mark.mission("PC-04")
async def test_one_attempt_can_have_a_limit_of_its_own() -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client() as client:
        cluster["a"].answers = [silence]
        async with client.producer("pg", attempt_timeout=0.5, timeout=20) as producer:
            for _ in range(4):
                assert (await producer.send("T", b"x")).queue.broker_name == "b"


async def test_a_late_answer_is_nobodys() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        cluster["a"].delay_s = 0.8
        with pytest.raises(SendTimeout):
            await producer.send("T", b"x", timeout=0.5)
        cluster["a"].delay_s = 0
        await producer.send("T", b"y")
        await until(lambda: cluster["a"].sends == 2)
