"""Checks that RocketMQ's advice holds here, with the command line in an operator's hand and real clients beside it.

Commands run in a thread, as they would in another terminal, while producers and consumers go on in the test's loop.
"""

import asyncio
import io
import json
import re
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from benchmarks import modes
from cometmq.cli.main import main
from cometmq.client.client import Client
from cometmq.client.consume.outcomes import Retry
from cometmq.client.options import StartFrom
from cometmq.machine import Storage, log_storage
from cometmq.testing import Cluster, EmbeddedBroker
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from tests.conftest import run
from tests.support.brokers import Peer
from tests.support.net import until

DOCS = Path(__file__).resolve().parent.parent / "docs"


async def comet(namesrv: str, *arguments: str) -> tuple[Any, str]:
    """JSON of stdout, and stderr, of a command that must succeed."""

    def call() -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*arguments, "--namesrv", namesrv, "-o", "json"])
        return code, out.getvalue(), err.getvalue()

    code, out, err = await asyncio.to_thread(call)
    assert code == 0, err
    return json.loads(out or "null"), err


@pytest.mark.mission("TO-03")
def test_a_topic_made_by_a_message_is_at_one_broker_and_one_made_by_the_tool_at_all() -> None:
    async def check() -> None:
        async with (
            Cluster(brokers=2) as cluster,
            cluster.client() as client,
            client.producer("pg", allow_auto_create=True) as producer,
        ):
            receipt = await producer.send("ByMessage", b"first")
            provisional = client.instance.known_route("ByMessage")
            assert provisional is not None
            assert {queue.broker_name for queue in provisional.publish} == {"broker-a", "broker-b"}
            await client.instance.refresh_route("ByMessage")
            used = {(await producer.send("ByMessage", b"x")).queue.broker_name for _ in range(8)}
            assert used == {receipt.queue.broker_name}

            await comet(cluster.namesrv, "topic", "create", "ByTool", "--cluster", "DefaultCluster")
            used = {(await producer.send("ByTool", b"x")).queue.broker_name for _ in range(16)}
            assert used == {"broker-a", "broker-b"}
            told, _ = await comet(cluster.namesrv, "topic", "describe", "ByMessage")
            assert told["brokers"] == [receipt.queue.broker_name]

    run(check(), 60)
    page = (DOCS / "topics.md").read_text(encoding="utf-8")
    assert "cometmq topic create" in page
    assert "--cluster" in page


@pytest.mark.mission("AD-02")
def test_a_new_broker_gets_queues_of_a_topic_and_clients_use_them_without_a_restart(tmp_path: Path) -> None:
    async def check() -> None:
        async with Cluster(topics=["orders"], queues=2) as cluster, cluster.client() as client:
            consumed: list[str] = []
            app = client.push_consumer("cg", start=StartFrom.FIRST)

            @app.on("orders")
            async def handle(body: bytes) -> None:
                consumed.append(body.decode())

            async with app, client.producer("pg") as producer:
                await producer.send("orders", b"before")
                await until(lambda: consumed == ["before"], "the first message")
                settings: dict[str, str | int | bool] = {
                    "namesrvAddr": cluster.namesrv, "brokerIP1": "127.0.0.1", "mappedFileSizeCommitLog": 1 << 20,
                    "brokerFastFailureEnable": False, "maxHashSlotNum": 500, "maxIndexNum": 2000,
                    "diskSpaceWarningLevelRatio": 99, "diskSpaceCleanForciblyRatio": 99,
                }  # fmt: skip
                added = EmbeddedBroker("broker-b", tmp_path, settings, cluster.clock)
                await added.start()
                try:
                    await comet(cluster.namesrv, "topic", "update", "orders", "--broker", "broker-b")
                    await cluster.advance(31)  # one refresh of routes; shares follow it
                    route = client.instance.known_route
                    await until(lambda: len(route("orders").publish) == 4, "a route with both")  # type: ignore[union-attr]
                    receipts = [await producer.send("orders", b"%d" % number) for number in range(8)]
                    assert {receipt.queue.broker_name for receipt in receipts} == {"broker-a", "broker-b"}
                    await cluster.advance(21)
                    wanted = {"before", *map(str, range(8))}
                    await until(lambda: set(consumed) == wanted, "messages of both brokers")
                finally:
                    await added.stop()

    run(check(), 90)


@pytest.mark.mission("AD-03")
def test_lag_shows_owners_and_idle_members_and_says_more_consumers_than_queues() -> None:
    async def check() -> None:
        async with Cluster(topics=["orders"], queues=2) as cluster:
            clients = [cluster.client() for _ in range(3)]
            apps = []
            gate = asyncio.Event()
            for client in clients:
                await client.start()
                app = client.push_consumer("cg", start=StartFrom.FIRST, rebalance_interval=0.5, commit_interval=0.2)

                @app.on("orders")
                async def handle(body: bytes) -> None:
                    if body != b"easy":
                        await gate.wait()

                await app.start()
                apps.append(app)
            async with clients[0].producer("pg") as producer:
                for number in range(8):  # the easy ones give the group an offset in each queue
                    await producer.send("orders", b"easy" if number < 2 else b"hard")
            owners: list[str] = []
            told: dict[str, Any] = {}
            for _ in range(100):
                told, _ = await comet(cluster.namesrv, "group", "lag", "cg")
                owners = [row["owner"] for row in told["queues"] if row["topic"] == "orders"]
                if len(set(owners) - {None}) == 2 and told["behind"] == 6:
                    break
                await asyncio.sleep(0.1)
            ids = {client.client_id for client in clients}
            assert len(owners) == 2
            assert set(owners) < ids
            assert told["idle"] == sorted(ids - set(owners))
            assert [row["behind"] for row in told["queues"]] == [3, 3]
            assert told["advice"][0].startswith("more consumers than queues: 3 members share 2 queues")
            gate.set()
            for app in apps:
                await app.stop()

    run(check(), 90)


@pytest.mark.mission("DL-02")
def test_a_dead_letter_is_listed_and_sent_again_by_the_command_line() -> None:
    async def check() -> None:
        settings = {"messageDelayLevel": " ".join(["1s"] * 18)}
        async with Cluster(topics=["orders"], queues=1, settings=settings) as cluster, cluster.client() as client:
            tries: list[str] = []
            healed = False
            app = client.push_consumer("cg", start=StartFrom.FIRST, max_retries=2)

            @app.on("orders")
            async def handle(body: bytes) -> None:
                tries.append(body.decode())
                if not healed:
                    raise Retry

            async with app:
                async with client.producer("pg") as producer:
                    await producer.send("orders", b"hard", keys=["k"], tag="t", properties={"x": "1"})
                letters: list[Any] = []
                for _ in range(200):
                    await cluster.advance(2)
                    letters, _ = await comet(cluster.namesrv, "dlq", "list", "cg")
                    if letters:
                        break
                    await asyncio.sleep(0.05)
                assert tries == ["hard"] * 3
                (letter,) = letters
                assert (letter["body"], letter["topic"], letter["queue"]) == ("hard", "%DLQ%cg", 0)
                assert (letter["failure"]["type"], letter["failure"]["cause"]) == ("Retry", "again later")
                healed = True
                (sent,), _ = await comet(cluster.namesrv, "dlq", "replay", "cg", "--yes")
                assert (sent["topic"], sent["error"]) == ("%RETRY%cg", None)
                await until(lambda: len(tries) == 4, "the replayed message")
            found = await cluster.messages("orders")
            assert [(one.body, one.tag, one.keys, one.user_properties.get("x")) for one in found] == [
                (b"hard", "t", ("k",), "1")
            ], "nobody else gets it again"

    run(check(), 90)


@pytest.mark.mission("PR-03")
def test_a_group_that_was_stopped_for_being_slow_goes_on_when_the_command_line_enables_it() -> None:
    async def check() -> None:
        slow = {"disableConsumeIfConsumerReadSlowly": True, "consumerFallbehindThreshold": 1 << 20}
        async with Cluster(topics=["T"], queues=1, settings=slow) as cluster, cluster.client() as client:
            for group in ("laggard", "quick"):
                await comet(cluster.namesrv, "group", "create", group)
            async with client.producer("pg", compress_over=1 << 20) as producer:
                for _ in range(22):
                    await producer.send("T", b"x" * 100_000)
            async with Peer.at(cluster.broker.address) as peer:
                assert (await peer.pull("T", group="laggard", count=1)).code == Response.SUCCESS
                assert (await peer.pull("T", 0, 21, group="quick", count=1)).code == Response.SUCCESS
                await cluster.advance(181)
                assert (await peer.pull("T", group="laggard")).code == Response.NO_PERMISSION
                assert (await peer.pull("T", 0, 21, group="quick", count=1)).code == Response.SUCCESS
                await cluster.broker.restart()
            async with Peer.at(cluster.broker.address) as peer:
                assert (await peer.pull("T", group="laggard")).code == Response.NO_PERMISSION
                changed, _ = await comet(cluster.namesrv, "group", "alter", "laggard", "--enable")
                assert changed["enabled"] is True
                assert (await peer.pull("T", group="laggard", count=1)).code == Response.SUCCESS

    run(check(), 60)


class PullCount:
    """Counts the pulls that a client sends."""

    def __init__(self) -> None:
        self.pulls = 0

    def before(self, peer: str, request: Command) -> None:
        if request.code in (Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE):
            self.pulls += 1

    def after(self, peer: str, request: Command, response: Command) -> None:
        """Nothing to count."""


@pytest.mark.mission("AD-09")
def test_an_idle_consumer_asks_once_a_hold_period_and_gets_messages_at_once() -> None:
    """Push is long polling: one pull of each queue waits at the broker, and a message answers it."""
    queues, hold_s = 4, 2.0

    async def check() -> None:
        counter = PullCount()
        async with Cluster(topics=["T"], queues=queues) as cluster:
            client = Client(cluster.namesrv, hooks=[counter])
            arrived: asyncio.Queue[float] = asyncio.Queue()
            app = client.push_consumer("cg", start=StartFrom.FIRST, poll_hold=hold_s)

            @app.on("T")
            async def handle(_: bytes) -> None:
                arrived.put_nowait(time.perf_counter())

            async with client, app, client.producer("pg") as producer:
                for _ in range(queues):  # one of each queue: every pull is at work
                    await producer.send("T", b"x")
                for _ in range(queues):
                    await arrived.get()
                await asyncio.sleep(0.2)
                before = counter.pulls
                periods = 2
                began_s = time.monotonic()
                await asyncio.sleep(periods * hold_s)
                held = (time.monotonic() - began_s) / hold_s
                assert counter.pulls - before <= queues * (held + 1), "no request beyond one a queue and hold period"
                took_s = []
                for _ in range(20):
                    sent_s = time.perf_counter()
                    await producer.send("T", b"x")
                    took_s.append(await arrived.get() - sent_s)
                # A busy machine delays some; polling would delay nearly all.
                assert sorted(took_s)[5] < 0.05

    run(check(), 60)
    page = (DOCS / "tour.md").read_text(encoding="utf-8")
    assert "long polling" in page


@pytest.mark.mission("AD-06")
def test_bench_has_every_way_to_send_and_a_broker_says_what_its_store_lies_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        with caplog.at_level("INFO", "cometmq.machine"):
            async with Cluster(topics=["T"]) as cluster:
                for mode in ("sync", "async", "oneway", "batch"):
                    load = ("bench", "send", "--topic", "T", "--mode", mode, "-n", "100", "--size", "100")
                    figures, _ = await comet(cluster.namesrv, *load)
                    assert (figures["mode"], figures["messages"], figures["failed"]) == (mode, 100, 0)
                    assert figures["per_second"] > 0

    run(check(), 60)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert line.startswith("found storage path=")
    assert "file_system=" in line
    assert "scheduler=" in line
    caplog.clear()
    log_storage("/data", Storage("/data", "nfs4", "/data", "server:/x", "bfq"))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [("ext4" in text, "mq-deadline" in text) for text in warnings] == [(True, False), (False, True)]


@pytest.mark.mission("AD-07")
def test_the_page_of_promises_has_a_test_and_a_cost_for_every_mode() -> None:
    page = (DOCS / "promises.md").read_text(encoding="utf-8")
    modes = [(flush, role) for flush in ("ASYNC_FLUSH", "SYNC_FLUSH") for role in ("ASYNC_MASTER", "SYNC_MASTER")]
    for flush, role in modes:
        (cells,) = re.findall(rf"^\| {flush}, {role}[^|]*\|(.*)\|$", page, re.MULTILINE)
        assert "[k]" in cells
        assert cells.count("|") == 3
        assert len(re.findall(rf"^\| {flush} \| {role} \| [\d.]+ \| [\d.]+ \|$", page, re.MULTILINE)) == 1
    for mark in ("k", "p", "r"):
        (row,) = re.findall(rf"^\| \[{mark}\] \|(.*)\|$", page, re.MULTILINE)
        paths = re.findall(r"\(\.\./(tests/crash/[^)]+)\)", row)
        assert paths
        for path in paths:
            assert "def test_" in (DOCS.parent / path).read_text(encoding="utf-8")


@pytest.mark.mission("AD-07")
def test_the_command_that_the_page_of_promises_names_measures_every_mode_of_its_table() -> None:
    """Real brokers and replicas; every message is confirmed, or `modes` ends with what was not."""
    page = (DOCS / "promises.md").read_text(encoding="utf-8")
    assert "`python -m benchmarks.modes`" in page
    shown = re.findall(r"^\| (\w+_FLUSH) \| (\w+_MASTER) \| [\d.]+ \| [\d.]+ \|$", page, re.MULTILINE)
    row = re.compile(r"\| (\w+) \| (\w+) \| ([\d.]+) \| ([\d.]+) \|")
    measured = [row.fullmatch(line) for line in modes.rows(40, rounds=1)]
    assert [found.group(1, 2) for found in measured if found] == shown
    assert all(0 < float(found[3]) <= float(found[4]) for found in measured if found)
