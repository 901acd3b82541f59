"""What a broker keeps besides its log goes on at the next master: after a planned switch, and after a kill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client, Message, Tx
from cometmq.errors import CometError
from cometmq.wire.bodies import LockBatchRequest, LockBatchResponse, MessageQueue
from cometmq.wire.codes import Request, Response
from tests.broker.pop.test_popping import Popper
from tests.failover.real_set import RealSet
from tests.failover.test_processes import document_of
from tests.support.brokers import Peer
from tests.support.etcd import Etcd

pytestmark = pytest.mark.mission("FO-06")

GROUP = "g"
READERS = "readers"
TOPIC = "TopicA"
WAIT_S = 30.0
# Offsets and progress are followed each second.
FOLLOWED_S = 2.5
SETTINGS: dict[str, Any] = {
    "transactionCheckInterval": 500,
    "transactionTimeOut": 500,
    "timerWheelEnable": "true",
    "messageDelayLevel": "1s 4s",
}


class Scene:
    """A set with a client. `change` brings another master."""

    def __init__(self, a_set: RealSet, etcd: Etcd, client: Client, kind: str) -> None:
        self.a_set, self.etcd, self.client, self._kind = a_set, etcd, client, kind

    async def master(self) -> str:
        document, _ = await document_of(self.etcd)
        return document.members[document.master].address

    async def change(self) -> None:
        before, _ = await document_of(self.etcd)
        old = self.a_set.number_at(before.members[before.master].address)
        if self._kind == "kill":
            await asyncio.sleep(FOLLOWED_S)
            await asyncio.to_thread(self.a_set.kill, old)
        else:
            heir = next(number for number in before.in_sync if number != before.master)
            await asyncio.to_thread(self.a_set.elect, heir)
        await until(self._is_changed(before.epoch))

    def _is_changed(self, epoch: int) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            document, _ = await document_of(self.etcd)
            if document.epoch == epoch:
                return False
            with suppress(CometError):
                async with self.client.producer("probe", retries=0) as producer:
                    return (await producer.send("Probe", b"x", timeout=1.0)).is_confirmed
            return False

        return look


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not await holds():
        assert time.monotonic() < end_s, f"not so within {WAIT_S:g} s"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def scene(directory: Path, kind: str) -> AsyncIterator[Scene]:
    etcd = await asyncio.to_thread(Etcd, directory / "etcd", 1)
    a_set = await asyncio.to_thread(lambda: RealSet(directory / "set", etcd, **SETTINGS))
    try:
        async with Client(a_set.name_server, route_refresh=0.1, call_timeout=2.0) as client:
            async with client.admin() as admin:
                for topic in ("Probe", TOPIC):
                    await until(lambda topic=topic: made(admin.create_topic(topic, queues=1)))  # type: ignore[misc]
                for group in (GROUP, READERS):
                    await admin.create_group(group)
            made_scene = Scene(a_set, etcd, client, kind)
            await until(lambda: all_in_sync(etcd))
            yield made_scene
    finally:
        await asyncio.to_thread(a_set.stop)
        await asyncio.to_thread(etcd.stop)


async def made(work: Awaitable[object]) -> bool:
    with suppress(CometError):
        await work
        return True
    return False


async def all_in_sync(etcd: Etcd) -> bool:
    return len((await document_of(etcd))[0].in_sync) == 3


async def received(client: Client, count: int) -> list[Message[bytes]]:
    """The first messages of the topic, waited for."""
    found: list[Message[bytes]] = []
    end_s = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < end_s:
        with suppress(CometError):
            async with client.pull_consumer("reader", auto_commit=False) as consumer:
                queue = MessageQueue(broker_name="a", queue_id=0, topic=TOPIC)
                await consumer.assign([queue])
                await consumer.seek(queue, 0)
                found = []
                while len(found) < count and time.monotonic() < end_s:
                    found += await consumer.poll(timeout=0.5)
    return found


@pytest.mark.parametrize("kind", ["switch", "kill"])
async def test_what_waits_and_what_was_done_goes_on_at_the_next_master(tmp_path: Path, kind: str) -> None:
    """One set for all of it: a start of three brokers costs more than what is asked."""
    asked: list[bytes] = []

    async def check(message: Message[bytes]) -> Tx:
        asked.append(message.body)
        return Tx.COMMIT

    async with scene(tmp_path, kind) as one, one.client.transaction_producer("tx", check=check) as producer:
        queue = MessageQueue(broker_name="a", queue_id=0, topic=TOPIC)
        old = await one.master()
        async with one.client.admin() as admin:
            async with producer.begin(TOPIC, b"half") as transaction:
                transaction.unknown()
            began_s = time.monotonic()
            await producer.send(TOPIC, b"delayed", delay_level=2)
            due = datetime.now(UTC) + timedelta(seconds=5)
            await producer.send(TOPIC, b"timer", deliver_at=due)
            await producer.send(TOPIC, b"plain")
            await admin.commit_offset(READERS, queue, 1)
            async with Popper.at(old) as peer:
                assert isinstance(peer, Popper)
                popped = await peer.pop(count=1, invisible_ms=6_000, poll_ms=1_000)
                assert len(popped) == 1
                assert await locked(peer, "one") == [queue]
            await one.change()
            assert await committed(one) == 1, "the offset of a group went"
            await lock_again(one, old, kind)
            bodies = [message.body for message in await received(one.client, 4)]
            assert sorted(bodies) == [b"delayed", b"half", b"plain", b"timer"]
            assert time.monotonic() - began_s >= 4.0, "a delayed message came before its time"
            assert b"half" in asked, "nobody asked about the half message"
            await until(lambda: popped_again(one, popped[0].body))


async def committed(one: Scene) -> int:
    async with one.client.admin() as admin:
        found = await admin.committed_offsets(READERS, TOPIC)
    return next(iter(found.values()))


async def locked(peer: Peer, client_id: str) -> list[MessageQueue]:
    queue = MessageQueue(broker_name="a", queue_id=0, topic=TOPIC)
    body = LockBatchRequest(client_id=client_id, consumer_group=GROUP, mq_set=[queue]).encode()
    answer = await peer.call(Request.LOCK_BATCH_MQ, body)
    assert answer.code == Response.SUCCESS, answer.remark
    return LockBatchResponse.decode(answer.body).locked


async def lock_again(one: Scene, old: str, kind: str) -> None:
    """Locks are not carried over: who asks first has it, and there is one who decides, whomever a client asks."""
    async with Popper.at(await one.master()) as new:
        assert await locked(new, "two")
        assert not await locked(new, "one")
        if kind == "switch":
            async with Popper.at(old) as former:
                assert not await locked(former, "one"), "the former master decides about locks, too"
                assert await locked(former, "two")


async def popped_again(one: Scene, body: bytes) -> bool:
    """What was popped and not acked comes again."""
    async with Popper.at(await one.master()) as peer:
        assert isinstance(peer, Popper)
        with suppress(AssertionError):
            return any(each.body == body for each in await peer.pop(invisible_ms=1_000, poll_ms=500))
    return False
