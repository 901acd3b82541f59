"""The message browser on a real cluster: searches, scans, tails, bodies of every kind, and the life of one message."""

import gzip
import io
import json
import struct
from pathlib import Path
from typing import Any

import lz4.frame
import msgspec
import pytest

from cometmq import Message, StartFrom
from cometmq.client.admin import Admin
from cometmq.testing import Cluster
from tests.support.aio import run, settle
from tests.support.asking import get
from tests.support.browser import console, opened
from tests.support.length import by_length
from tests.support.net import until

MANY = by_length(6_000, 1_000_000, 1_000_000)
TAIL_S = by_length(2, 60, 60)
TAIL_RATE = 5_000
LIMIT_S = by_length(60, 3600, 3600)
SCANNED = 40_000
LARGE = 3 << 20
# Keeps the longest time between two frames.
WATCH_FRAMES = """() => {
  window.slow = 0;
  let last = performance.now();
  const look = (now) => { window.slow = Math.max(window.slow, now - last); last = now; requestAnimationFrame(look); };
  requestAnimationFrame(look);
}"""


async def first(admin: Admin, topic: str, key: str) -> Any:
    (copy,) = await admin.copies(topic, key=key)
    return copy


@pytest.mark.mission("CO-05")
@pytest.mark.repeated
def test_a_search_finds_by_every_word_and_says_how_far_it_came() -> None:
    run(search_for_every_word(), timeout_s=LIMIT_S)


async def search_for_every_word() -> None:
    async with Cluster(topics=["orders"], queues=2) as cluster, cluster.client() as client, client.admin() as admin:
        async with client.producer("pg") as producer:
            await producer.send("orders", b'{"price": 700, "city": "needle"}', keys=["4711"], tag="rare",
                                properties={"city": "Kiel"})  # fmt: skip
            await producer.send_many("orders", (b'{"price": %d}' % (n % 100) for n in range(MANY)), tag="common")
        copy = await first(admin, "orders", "4711")
        async with console(cluster.namesrv) as address:
            where = "/api/topics/orders/messages?limit=5&q="
            for query in ("4711", "key:4711", copy.message.id, copy.message.offset_id):
                found = await get(address, where + query)
                assert [row["offset_id"] for row in found["rows"]] == [copy.message.offset_id], query
            for query in ("tag:rare", "prop.city:Kiel", "json.price%3E600", "body:needle", "needle"):
                rows, cursor, looked = [], "", 0
                while True:
                    found = await get(address, where + query + (f"&cursor={cursor}" if cursor else ""))
                    rows += found["rows"]
                    looked += found["looked"]
                    if found["end"]:
                        break
                    cursor = found["cursor"]
                assert [row["offset_id"] for row in rows] == [copy.message.offset_id], query
                assert looked >= MANY, "it looked at everything before it said that was all"
            at = copy.message.stored_ms
            by_time = await get(address, f"/api/topics/orders/messages?limit=1&q=from:{at}")
            assert by_time["rows"][0]["stored_ms"] >= at
            before = await get(address, f"/api/topics/orders/messages?limit=1&q=to:{at}")
            assert all(row["stored_ms"] < at for row in before["rows"])


@pytest.mark.mission("CO-05")
async def test_a_scan_shows_how_far_it_is_and_can_be_stopped(chromium: str) -> None:
    async with Cluster(topics=["orders"], queues=2) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            await producer.send_many("orders", (b'{"n": %d}' % number for number in range(SCANNED)))
        where = "topics/orders/messages?q=body:nowhere"
        async with console(cluster.namesrv) as address, opened(chromium, f"{address}{where}") as page:
            await page.get_by_text("Looking").wait_for()
            looked = page.locator(".progress b").first
            await page.wait_for_function("() => document.querySelector('.progress b').textContent !== '0'")
            await page.get_by_role("button", name="Stop").click()
            await page.get_by_role("button", name="Begin again").wait_for()
            assert 0 < int((await looked.inner_text()).replace("\u202f", "")) < SCANNED
            await page.get_by_text("Nothing found so far").wait_for()


@pytest.mark.mission("CO-05")
async def test_pages_of_a_scan_are_in_order_and_leave_nothing_out() -> None:
    async with Cluster(topics=["orders"], queues=3) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            for number in range(200):
                await producer.send("orders", str(number).encode())
        async with console(cluster.namesrv) as address:
            for words, way in (("", -1), ("from:-1h", 1)):
                rows, cursor = [], ""
                while True:
                    path = f"/api/topics/orders/messages?limit=37&q={words}" + (f"&cursor={cursor}" if cursor else "")
                    found = await get(address, path)
                    rows += found["rows"]
                    if found["end"]:
                        break
                    cursor = found["cursor"]
                times = [row["stored_ms"] * way for row in rows]
                assert sorted(int(row["text"]) for row in rows) == list(range(200))
                assert times == sorted(times)


@pytest.mark.mission("CO-05")
async def test_the_address_reproduces_a_search_in_a_second_window_and_a_large_body_opens(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        async with client.producer("pg", compress_over=LARGE * 2) as producer:
            for number in range(40):
                await producer.send(
                    "orders", f"body {number}".encode(), keys=[f"k{number}"], properties={"n": str(number % 4)}
                )
            await producer.send("orders", b"x" * LARGE, keys=["large"])
        async with console(cluster.namesrv) as address, opened(chromium, f"{address}topics/orders/messages") as page:
            await page.locator("tbody tr").first.wait_for()
            box = page.get_by_label("Search messages")
            await box.fill("prop.n:2")
            await box.press("Enter")
            await page.get_by_text("that was all").wait_for()
            rows = await page.locator("tbody tr").count()
            second = await page.context.new_page()
            await second.goto(page.url)
            await second.get_by_text("that was all").wait_for()
            assert await second.locator("tbody tr").count() == rows == 10
            await second.close()
            await page.evaluate(WATCH_FRAMES)
            copy = await first(admin, "orders", "large")
            origin = await page.evaluate("() => performance.timeOrigin")
            await box.fill("key:large")
            await box.press("Enter")
            await page.get_by_role("link").filter(has=page.locator("time")).first.click()
            await page.get_by_text("Only the beginning of").wait_for()
            assert len(await page.locator("pre.body").first.inner_text()) < 100_000, "the rest is not in the document"
            assert len(copy.message.body) == LARGE
            assert await page.evaluate("() => performance.timeOrigin") == origin, "nothing was loaded anew"
            assert await page.evaluate("() => window.slow") < 1000, "the page did not freeze"


@pytest.mark.mission("CO-06")
@pytest.mark.repeated
def test_the_tail_counts_what_it_skips_and_stays_usable(chromium: str) -> None:
    run(watch_the_tail(chromium), timeout_s=LIMIT_S)


async def watch_the_tail(chromium: str) -> None:
    async with (
        Cluster(topics=["clicks"], queues=2) as cluster,
        cluster.client() as client,
        client.producer("pg") as producer,
        console(cluster.namesrv) as address,
        opened(chromium, f"{address}topics/clicks/messages?tail=1") as page,
    ):
        await page.get_by_text("live", exact=True).wait_for()
        sent = 0
        for _ in range(TAIL_S):
            await producer.send_many("clicks", (b"click" for _ in range(TAIL_RATE)))
            sent += TAIL_RATE
        await page.locator(f"[data-seen='{sent}']").wait_for()
        skipped = int(await page.locator("[data-skipped]").get_attribute("data-skipped"))
        drawn = await page.locator("table").get_attribute("aria-rowcount")
        assert skipped + int(drawn) == sent or int(drawn) == 1000, "what is not drawn is counted"
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_text("paused").wait_for()


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order", "type": "int"}, {"name": "city", "type": "string"}],
}


def avro_body(schema: Any) -> bytes:
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"order": 4711, "city": "Kiel"})
    return out.getvalue()


def protobuf_schema(folder: Path, topic: str) -> bytes:
    """A descriptor set in the folder, and a message of it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    kind = file.message_type.add(name="Order")
    kind.field.add(name="order", number=1, type=5, label=1)
    kind.field.add(name="city", number=2, type=9, label=1)
    folder.joinpath(f"{topic}.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    folder.joinpath(f"{topic}.message").write_text("shop.Order\n")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(order=4711, city="Kiel")
    return bytes(made.SerializeToString())


@pytest.mark.mission("CO-07")
async def test_bodies_of_every_kind_are_readable_or_shown_as_bytes_with_the_fault(
    chromium: str, tmp_path: Path
) -> None:
    order = {"order": 4711, "city": "Kiel"}
    text = json.dumps(order).encode()
    tmp_path.joinpath("avro.avsc").write_text(json.dumps(AVRO))
    proto = protobuf_schema(tmp_path, "proto")
    from cometmq.wire import compression
    from cometmq.wire.record.sysflag import COMPRESSION_ZSTD

    kinds = {
        "json": ("plain", text, "json", "Kiel"),
        "text": ("plain", "Grüße aus Kiel".encode(), "text", "Grüße"),
        "msgpack": ("plain", msgspec.msgpack.encode(order), "msgpack", "Kiel"),
        "gzip": ("plain", gzip.compress(text), "json", "Kiel"),
        "lz4": ("plain", lz4.frame.compress(text), "json", "Kiel"),
        "zstd": ("plain", compression.compress(text, COMPRESSION_ZSTD), "json", "Kiel"),
        "broken-gzip": ("plain", gzip.compress(text)[:20], "hex", "1f 8b"),
        "bytes": ("plain", bytes(range(200, 256)), "hex", "c8 c9"),
        "java": ("plain", b"\xac\xed\x00\x05\x73\x72\x00\x09shop.Ordr", "java", "shop.Ordr"),
        "empty": ("plain", b" ", "text", " "),
        "avro": ("avro", avro_body(AVRO), "avro", "Kiel"),
        "not-avro": ("avro", b"\xff\xff\xff\xff\xff\xff\xff\xff", "hex", "ff ff"),
        "protobuf": ("proto", proto, "protobuf", "Kiel"),
        "not-protobuf": ("proto", struct.pack(">Q", 0xFFFFFFFFFFFFFFFF), "hex", "ff ff"),
    }
    async with (
        Cluster(topics=["plain", "avro", "proto"]) as cluster,
        cluster.client() as client,
        client.admin() as admin,
    ):
        async with client.producer("pg") as producer:
            for key, (topic, body, _, _) in kinds.items():
                await producer.send(topic, body, keys=[key])
            await producer.send("plain", b"kiel " * 5000, keys=["compressed"])
        async with console(cluster.namesrv, schemas=tmp_path) as address:
            for key, (topic, body, kind, part) in kinds.items():
                copy = await first(admin, topic, key)
                shown = (await get(address, f"/api/messages/{copy.message.id}?topic={topic}"))["body"]
                assert (shown["kind"], part in shown["text"]) == (kind, True), (key, shown)
                assert shown["hex"], "bytes are always there"
                assert bool(shown["faults"]) == (key in ("broken-gzip", "not-avro", "not-protobuf")), (key, shown)
                as_hex = (await get(address, f"/api/messages/{copy.message.id}?topic={topic}&as=hex"))["body"]
                assert body[:1].hex() in as_hex["text"]
            whole = await get(
                address, f"/api/messages/{(await first(admin, 'plain', 'compressed')).message.id}?topic=plain"
            )
            assert (whole["compression"], whole["body"]["kind"]) == ("zlib", "text")
            assert whole["stored_body_bytes"] < whole["size"]
            async with opened(chromium, address) as page:
                for key in ("json", "broken-gzip", "protobuf"):
                    copy = await first(admin, kinds[key][0], key)
                    await page.goto(f"{address}messages/{copy.message.id}?topic={kinds[key][0]}")
                    await page.locator("pre.body").first.wait_for()
                    assert kinds[key][3] in await page.locator("pre.body").first.inner_text()


@pytest.mark.mission("CO-12")
async def test_the_timeline_has_the_send_each_try_and_the_dead_letter_in_order(chromium: str) -> None:
    settings: dict[str, bool | str] = {"traceTopicEnable": True, "messageDelayLevel": " ".join(["1s"] * 18)}
    async with Cluster(topics=["orders"], settings=settings) as cluster, cluster.client() as client:
        tries: list[int] = []
        app = client.push_consumer("billing", max_retries=2, trace=True, start=StartFrom.FIRST)

        @app.on("orders")
        async def handle(message: Message[bytes]) -> None:
            tries.append(message.delivery_count)
            raise RuntimeError("no")

        async with client.producer("shop", trace=True) as producer, app, client.admin() as admin:
            receipt = await producer.send("orders", b"hello", keys=["4711"])
            await until(lambda: len(tries) == 3, "the third try")

            async def letters() -> int:
                return len([message async for message in admin.dead_letters("billing")])

            while not await letters():
                await settle(5)
            assert await letters() == 1
        async with console(cluster.namesrv) as address:
            path = f"/api/messages/{receipt.id}/timeline?topic=orders"
            events: list[dict[str, Any]] = []
            for _ in range(100):
                events = (await get(address, path))["events"]
                if sum(event["kind"] == "consumed" for event in events) >= 3:
                    break
            kinds = [event["kind"] for event in events]
            assert kinds[0] == "born"
            assert {"sent", "stored", "past", "dead"} <= set(kinds)
            assert kinds.count("consume") == kinds.count("consumed") == 3
            assert kinds.count("retry") == 2
            assert [event["at_ms"] for event in events] == sorted(event["at_ms"] for event in events)
            assert max(kinds.index("stored"), kinds.index("sent")) < kinds.index("retry") < kinds.index("dead")
            async with opened(chromium, f"{address}messages/{receipt.id}?topic=orders") as page:
                line = page.get_by_role("list", name="Timeline")
                await line.locator("li").first.wait_for()
                assert await line.locator("li").count() == len(events)
                await line.get_by_text("given up by billing").wait_for()
