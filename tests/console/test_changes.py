"""Changes by plan: offsets in five ways, dead letters once each, timers and half messages; what changed meanwhile."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq import Message, StartFrom, Tx
from cometmq.client.client import Client
from cometmq.console.plans.letters import MARK, Ledger
from cometmq.testing import Cluster
from tests.support.aio import run, settle
from tests.support.asking import apply, ask, do, get, plan
from tests.support.browser import console, opened
from tests.support.length import by_length

LETTERS = by_length(120, 999, 999)


def placed(rows: list[dict[str, Any]], name: str) -> dict[tuple[str, int], int]:
    return {(row["broker"], row["queue"]): row[name] for row in rows}


# Where letters of "billing" go: to that group alone.
RETRIES = "%RETRY%billing"


@pytest.mark.mission("CO-09")
@pytest.mark.parametrize("to", ["earliest", "latest", "time", "offsets", "copy"])
async def test_a_reset_of_each_kind_ends_where_its_preview_said(to: str) -> None:
    async with Cluster(topics=["orders"], queues=2) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_group("billing")
        async with client.producer("pg") as producer:
            for number in range(20):
                await producer.send("orders", str(number).encode())
            middle_ms = cluster.clock.now_ms() + 1000
            await cluster.advance(2)
            for number in range(20):
                await producer.send("orders", str(number).encode())
        await admin.create_group("other")
        queues = await admin.topic_queues("orders")
        await admin.reset_offsets("billing", "orders", to=dict.fromkeys(queues, 3))
        await admin.reset_offsets("other", "orders", to=dict.fromkeys(queues, 7))
        more: dict[str, Any] = {}
        if to == "time":
            more["at_ms"] = middle_ms
        if to == "offsets":
            more["offsets"] = {"broker-a/0": "5"}
        if to == "copy":
            more["source"] = "other"
        async with console(cluster.namesrv) as address:
            made = await plan(address, "group.reset", group="billing", topic="orders", to=to, **more)
            done = await apply(address, made)
        wanted = placed(made["rows"], "target")
        offsets = {(queue.broker_name, queue.queue_id): at for queue, at in
                   (await admin.committed_offsets("billing", "orders")).items()}  # fmt: skip
        expected = {"earliest": {0}, "latest": {20}, "time": {10}, "offsets": {5}, "copy": {7}}[to]
        assert set(wanted.values()) == expected
        assert {place: offsets[place] for place in wanted} == wanted == placed(done["rows"], "now")
        assert all(row["result"] == "done" for row in done["rows"])
        assert all(at == 3 for place, at in offsets.items() if place not in wanted), "the others stay"


@pytest.mark.mission("CO-09")
async def test_a_group_that_moved_meanwhile_refuses_the_reset() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_group("billing")
        async with client.producer("pg") as producer:
            for _ in range(20):
                await producer.send("orders", b"x")
        async with console(cluster.namesrv) as address:
            made = await plan(address, "group.reset", group="billing", topic="orders", to="latest")
            (queue, *_) = await admin.topic_queues("orders")
            await admin.commit_offset("billing", queue, 2)
            status, content = await ask(address, f"/api/plans/{made['id']}/apply", {})
            assert status == 409
            assert [change["after"] for change in content["changed"]] == [2]
            assert (await admin.committed_offsets("billing", "orders"))[queue] == 2
            status, _ = await ask(address, f"/api/plans/{made['id']}/apply", {})
            assert status == 404, "a plan is applied once"


@pytest.mark.mission("CO-09")
async def test_a_running_member_goes_on_from_the_new_place() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client:
        async with (
            client.producer("pg") as producer,
            client.consumer("billing", ["orders"], start=StartFrom.FIRST) as consumer,
        ):
            for number in range(12):
                await producer.send("orders", str(number).encode())
            seen = [await consumer.receive() for _ in range(12)]
            assert len(seen) == 12
            async with console(cluster.namesrv) as address:
                made = await plan(address, "group.reset", group="billing", topic="orders", to="earliest")
                assert "is running" in made["warnings"][0]
                await apply(address, made)
            await cluster.advance(30)  # its pull is parked: the broker answers it when its time is over
            again = {message.body for _ in range(12) if (message := await consumer.receive()) is not None}
            assert again == {str(number).encode() for number in range(12)}


@pytest.mark.mission("CO-10")
async def test_letters_of_one_cause_are_sent_once_also_when_it_is_cut_off(tmp_path: Path) -> None:
    async with Cluster(topics=["orders"], queues=1) as cluster, cluster.client() as client:
        await failing(cluster, client, 12)
        async with console(cluster.namesrv, ledger=tmp_path) as address:
            found = await get(address, "/api/groups/billing/dlq")
            assert {it["cause"]: it["messages"] for it in found["causes"]} == {
                "no stock": 4,
                "timeout": 4,
                "bad address": 4,
            }
            chosen = await get(address, "/api/groups/billing/dlq?cause=timeout")
            assert {row["cause"] for row in chosen["rows"]} == {"timeout"}
            done = await do(address, "letters.replay", group="billing", cause="timeout")
            assert len(done["rows"]) == 4
            again = await plan(address, "letters.replay", group="billing", cause="timeout")
            assert again["does_nothing"], "a second click sends nothing"
            # As if the console had been killed after the second of four: all are planned, two are there.
            rest = (await get(address, "/api/groups/billing/dlq?cause=no+stock"))["rows"]
            letters = [("billing", *_place(row["place"])) for row in rest]
            Ledger(tmp_path).begin(letters)
            async with client.producer("cut-off") as producer:
                for letter, row in list(zip(letters, rest, strict=True))[:2]:
                    mark = "/".join(str(part) for part in letter)
                    marked = {MARK: mark, "of": row["place"], "RETRY_TOPIC": "orders"}
                    await producer.send_record(RETRIES, b"again", marked)
            done = await do(address, "letters.replay", group="billing")
            assert done["result"] == "done"
        found = await marks(cluster)
        assert len(found) == len(set(found)) == 12, "each once"
        assert len(await cluster.messages("orders")) == 12, "no other group gets them again"


async def test_a_masked_cause_is_in_no_answer_about_dead_letters(tmp_path: Path) -> None:
    async with Cluster(topics=["orders"], queues=1) as cluster, cluster.client() as client:
        await failing(cluster, client, 3)
        async with console(cluster.namesrv, ledger=tmp_path, masks=("prop.error",)) as address:
            found = await get(address, "/api/groups/billing/dlq")
    assert [(it["cause"], it["messages"]) for it in found["causes"]] == [("masked", 3)]
    for cause in ("no stock", "timeout", "bad address"):
        assert cause not in str(found)


def _place(text: str) -> tuple[str, int, int]:
    broker, queue, offset = text.split("/")
    return broker, int(queue), int(offset)


@pytest.mark.mission("CO-10")
@pytest.mark.repeated
def test_a_console_that_is_killed_while_it_sends_letters_sends_each_once_in_the_end(tmp_path: Path) -> None:
    run(kill_and_repeat(tmp_path), timeout_s=by_length(60, 1200, 1200))


async def kill_and_repeat(state: Path) -> None:
    async with Cluster(topics=["orders"], queues=1) as cluster, cluster.client() as client:
        await failing(cluster, client, LETTERS)
        async with serving(cluster.namesrv, state) as (process, address):
            made = await plan(address, "letters.replay", group="billing")
            sending = asyncio.create_task(ask(address, f"/api/plans/{made['id']}/apply", {}))
            while len(await marks(cluster)) < LETTERS // 4:
                await settle(2)
            process.kill()
            await asyncio.gather(sending, return_exceptions=True)
        assert 0 < len(await marks(cluster)) < LETTERS, "it was killed in the middle"
        async with serving(cluster.namesrv, state) as (_, address):
            made = await plan(address, "letters.replay", group="billing")
            assert "was cut off" in made["warnings"][-1]
            await apply(address, made)
            assert (await plan(address, "letters.replay", group="billing"))["does_nothing"]
        found = await marks(cluster)
        assert len(found) == len(set(found)) == LETTERS, "each once"


async def marks(cluster: Cluster) -> list[str]:
    return [it.properties[MARK] for it in await cluster.messages(RETRIES) if MARK in it.properties]


@asynccontextmanager
async def serving(namesrv: str, state: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The console as a process of its own."""
    words = ["-m", "cometmq.cli.main", "console", "--namesrv", namesrv, "--port", "0", "--state", str(state)]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().split()[1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def failing(cluster: Cluster, client: Client, count: int) -> None:
    """Real dead letters: a consumer without patience."""
    async with client.producer("pg") as producer:
        for number in range(count):
            cause = ("no stock", "timeout", "bad address")[number % 3]
            await producer.send("orders", str(number).encode(), keys=[str(number)], properties={"error": cause})
    app = client.push_consumer("billing", max_retries=0, start=StartFrom.FIRST)

    @app.on("orders")
    async def handle(message: Message[bytes]) -> None:
        raise RuntimeError("no")

    async with app, client.admin() as admin:
        while len([message async for message in admin.dead_letters("billing")]) < count:
            await settle(5)


@pytest.mark.mission("CO-10")
async def test_letters_are_chosen_and_sent_in_the_browser(chromium: str, tmp_path: Path) -> None:
    async with Cluster(topics=["orders"], queues=1) as cluster, cluster.client() as client:
        await failing(cluster, client, 6)
        async with (
            console(cluster.namesrv, ledger=tmp_path) as address,
            opened(chromium, f"{address}groups/billing/dlq") as page,
        ):
            await page.get_by_role("link", name="timeout 2").click()
            await page.get_by_role("button", name="Send all 2 again").click()
            await page.get_by_text("2 dead letters of billing go back").wait_for()
            await page.get_by_role("button", name="Do it").click()
            # The dialog has one in its head; the second comes with the result.
            await page.get_by_role("button", name="Close", exact=True).nth(1).click()
            await page.get_by_text("sent again").first.wait_for()
            assert await page.get_by_text("sent again").count() == 2
        assert (len(await cluster.messages("orders")), len(await marks(cluster))) == (6, 2)


@pytest.mark.mission("CO-11")
async def test_a_timer_is_listed_recalled_and_gone(chromium: str) -> None:
    settings = {"recallMessageEnable": True}
    async with Cluster(topics=["orders"], settings=settings) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            await producer.send("orders", b"not yet", keys=["later"], delay=600)
        async with console(cluster.namesrv) as address, opened(chromium, f"{address}waiting") as page:
            await page.get_by_text("not yet").wait_for()
            shown = await get(address, "/api/waiting")
            due_ms = shown["messages"]["rows"][0]["due_ms"]
            assert abs(due_ms - cluster.clock.now_ms() - 600_000) < 60_000
            await page.get_by_role("button", name="Recall").click()
            await page.get_by_role("button", name="Do it").click()
            await page.get_by_role("button", name="Close", exact=True).nth(1).click()
            await page.get_by_text("No message waits").wait_for()
            await cluster.advance(700)
            assert not await cluster.messages("orders")


@pytest.mark.mission("CO-11")
@pytest.mark.parametrize("commit", [True, False])
async def test_a_half_message_is_ended_by_hand(commit: bool) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client:
        sender = client.transaction_producer("shop", check=lambda message: Tx.UNKNOWN)
        async with sender, console(cluster.namesrv) as address:
            async with sender.begin("orders", b"half") as transaction:
                transaction.state = Tx.UNKNOWN
            (half,) = (await get(address, "/api/waiting"))["halves"]["rows"]
            assert (half["topic"], half["group"], half["text"]) == ("orders", "shop", "half")
            done = await do(address, "half.end", id=half["offset_id"], commit=commit)
            assert done["result"] == "done"
            assert len(await cluster.messages("orders")) == commit
            status, _ = await ask(
                address, "/api/plans", {"action": "half.end", "id": half["offset_id"], "commit": commit}
            )
            if status != 404:  # the note that it has ended is written some seconds later
                await cluster.advance(10)
                status, _ = await ask(
                    address, "/api/plans", {"action": "half.end", "id": half["offset_id"], "commit": commit}
                )
            assert status == 404, "it is open no more"


async def test_a_change_is_a_line_in_the_audit_log_before_and_after(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    async with Cluster() as cluster, console(cluster.namesrv, audit=file) as address:
        await do(address, "topic.create", topic="invoices", queues=2)
        shown = await get(address, "/api/audit")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["result"] for line in lines] == ["begun", "done"]
    assert shown == lines[::-1]
    assert lines[0]["plan"]["title"] == "Create topic invoices"
    assert (lines[0]["who"], lines[0]["from"]) == ("local", "127.0.0.1")
    assert file.stat().st_mode & 0o777 == 0o600


async def test_an_unknown_argument_of_a_plan_is_refused_by_name() -> None:
    async with Cluster() as cluster, console(cluster.namesrv) as address:
        status, content = await ask(address, "/api/plans", {"action": "topic.create", "topic": "a", "quues": 2})
        assert (status, "quues" in content["error"]) == (400, True)
        status, content = await ask(address, "/api/plans", {"action": "topic.paint", "topic": "a"})
        assert (status, "topic.create" in content["error"]) == (400, True)
