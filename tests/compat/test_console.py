"""The console on RocketMQ's brokers: the same pages, searches, resets and timelines, and stacks of Java consumers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cometmq.client.client import Client
from cometmq.client.messages import Message
from cometmq.client.options import StartFrom
from tests.compat.conftest import Clusters
from tests.compat.harness.programs import consume
from tests.compat.harness.remoting import create_topic
from tests.compat.harness.shell import JavaShell
from tests.support.aio import run, settle
from tests.support.asking import apply, get, plan
from tests.support.browser import chromium_running, console, opened

pytestmark = pytest.mark.interop

LIMIT_S = 120.0


async def fill(client: Client, topic: str, count: int) -> list[Any]:
    async with client.producer(f"{topic}_p", timeout=20.0) as producer:
        return [
            await producer.send(
                topic,
                b'{"price": %d}' % number,
                keys=[f"k{number}"],
                tag="odd" if number % 2 else "even",
                properties={"city": "Kiel" if number % 5 == 0 else "Bonn"},
            )
            for number in range(count)
        ]


async def answer(address: str, path: str, is_there: Any) -> Any:
    """Until the broker has it: RocketMQ builds its index some milliseconds after the answer."""
    async with asyncio.timeout(30):
        while True:
            found = await get(address, path)
            if is_there(found):
                return found
            await settle(5)


async def look_around(namesrv: str, topic: str) -> None:
    with chromium_running() as chromium:
        async with (
            Client(namesrv, call_timeout=10.0) as client,
            console(namesrv, timeout_s=10.0) as address,
            opened(chromium, address) as page,
        ):
            await page.get_by_text("RocketMQ").first.wait_for()
            await page.get_by_role("link", name="Topics").click()
            await page.get_by_role("link", name=topic, exact=True).wait_for()
            receipts = await fill(client, topic, 30)
            one = receipts[7]
            base = f"/api/topics/{topic}/messages?limit=50&q="
            for words in (one.id, one.offset_id, "key:k7", "k7"):
                found = await answer(address, base + words, lambda it: it["rows"])
                assert [row["offset_id"] for row in found["rows"]] == [one.offset_id], words
            for words, count in (
                ("tag:odd", 15),
                ("prop.city:Kiel", 6),
                ("json.price%3E24", 5),
                ("", 30),
                ("from:-1h", 30),
            ):
                found = await answer(address, base + words, lambda it, count=count: len(it["rows"]) == count)
                assert found["end"], words
            for path in (
                "/topology",
                "/clients",
                "/waiting",
                "/settings",
                "/brokers",
                "/groups",
                "/dlq",
                f"/topics/{topic}",
            ):
                await page.goto(address.rstrip("/") + path)
                await page.get_by_role("heading", level=1).wait_for()
                await page.locator("main").get_by_text("Loading").wait_for(state="detached")


@pytest.mark.mission("CO-01", "CO-05")
def test_the_pages_and_searches_work_on_a_java_cluster(clusters: Clusters, topic: str) -> None:
    cluster = clusters["java"]
    create_topic(cluster.broker.address, topic, queues=2)
    run(look_around(cluster.namesrv.address, topic), timeout_s=LIMIT_S)


async def steer(namesrv: str, topic: str, java: JavaShell) -> None:
    group = f"{topic}_g"
    async with Client(namesrv, call_timeout=10.0) as client, console(namesrv, timeout_s=10.0) as address:
        async with client.admin(timeout_s=10.0) as admin:
            await admin.create_group(group)
            await fill(client, topic, 20)
            running = await asyncio.to_thread(consume, java, namesrv, topic, group)
            first = await asyncio.to_thread(running.take, 20)
            assert len(first) == 20
            whole = await answer(address, f"/api/groups/{group}", lambda it: it["members"]["rows"])
            (member,) = whole["members"]["rows"]
            assert member["language"] == "JAVA"
            asked = f"/api/groups/{group}/member?client_id={member['client_id'].replace('#', '%23')}&stacks=true"
            assert (
                "java.lang.Thread" in (await get(address, asked))["stacks"]
                or "TID:" in (await get(address, asked))["stacks"]
            )
            made = await plan(address, "group.reset", group=group, topic=topic, to="earliest")
            await apply(address, made)
            again = await asyncio.to_thread(running.take, 20)
            assert sorted(row["keys"] for row in again) == sorted(row["keys"] for row in first)
            await asyncio.to_thread(running.stop)
            await fill(client, topic, 10)
            await answer(address, f"/api/groups/{group}", lambda it: it["figures"]["behind"] == 10)
            queues = await admin.topic_queues(topic)
            await admin.create_group(f"{group}2")
            for queue in queues:
                await admin.commit_offset(f"{group}2", queue, 4)
            place = f"{queues[0].broker_name}/{queues[0].queue_id}"
            kinds: list[dict[str, Any]] = [
                {"to": "earliest"},
                {"to": "latest"},
                {"to": "time", "at_ms": 1},
                {"to": "offsets", "offsets": {place: "3"}},
                {"to": "copy", "source": f"{group}2"},
            ]
            for kind in kinds:
                made = await plan(address, "group.reset", group=group, topic=topic, **kind)
                done = await apply(address, made)
                assert [row["target"] for row in made["rows"]] == [row["now"] for row in done["rows"]], kind
                offsets = await admin.committed_offsets(group, topic)
                for row in made["rows"]:
                    (now,) = [at for queue, at in offsets.items() if (queue.broker_name, queue.queue_id)
                              == (row["broker"], row["queue"])]  # fmt: skip
                    assert now == row["target"], kind


@pytest.mark.mission("CO-08", "CO-09")
def test_stacks_lag_and_every_kind_of_reset_on_a_java_cluster(
    clusters: Clusters, java55: JavaShell, topic: str
) -> None:
    cluster = clusters["java"]
    create_topic(cluster.broker.address, topic, queues=2)
    run(steer(cluster.namesrv.address, topic, java55), timeout_s=LIMIT_S)


async def give_up(namesrv: str, topic: str) -> None:
    group = f"{topic}_g"
    async with Client(namesrv, call_timeout=10.0) as client, client.admin(timeout_s=10.0) as admin:
        await admin.create_group(group, retries_max=2)
        tries: list[int] = []
        app = client.push_consumer(group, max_retries=2, start=StartFrom.FIRST, trace=True)

        @app.on(topic)
        async def handle(message: Message[bytes]) -> None:
            tries.append(message.delivery_count)
            raise RuntimeError("no")

        async with client.producer(f"{topic}_p", trace=True, timeout=20.0) as producer, app:
            receipt = await producer.send(topic, b"hello", keys=["4711"])
            async with asyncio.timeout(60):
                while len([message async for message in admin.dead_letters(group)]) == 0:
                    await settle(5)
        async with console(namesrv, timeout_s=10.0) as address:
            path = f"/api/messages/{receipt.id}/timeline?topic={topic}"
            found = await answer(address, path, lambda it: sum(e["kind"] == "consumed" for e in it["events"]) == 3)
            kinds = [event["kind"] for event in found["events"]]
            assert kinds[0] == "born"
            assert {"sent", "stored", "past", "dead"} <= set(kinds)
            assert (kinds.count("consume"), kinds.count("retry")) == (3, 2)
            assert [event["at_ms"] for event in found["events"]] == sorted(event["at_ms"] for event in found["events"])


@pytest.mark.mission("CO-12")
def test_the_timeline_on_a_java_cluster_has_each_try(clusters: Clusters, topic: str) -> None:
    cluster = clusters["java"]
    create_topic(cluster.broker.address, topic, queues=1)
    run(give_up(cluster.namesrv.address, topic), timeout_s=LIMIT_S)
