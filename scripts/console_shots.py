"""Pictures of the console: those of docs/console.md, and one of each page in both palettes and widths.

    python -m scripts.console_shots            docs/console/*.png
    python -m scripts.console_shots --all      and build/console-shots/PAGE-WIDTH[-dark].png

An embedded cluster with a little shop in it, and Debian's Chromium.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from cometmq import StartFrom
from cometmq.testing import Cluster
from tests.support.browser import SHOTS, chromium_running, console, opened

DOCS = Path(__file__).resolve().parent.parent / "docs" / "console"
SETTLE_S = 3.0
PAGES = {
    "overview": "/", "topics": "/topics", "topic": "/topics/orders", "messages": "/topics/orders/messages",
    "groups": "/groups", "group": "/groups/billing", "members": "/groups/billing/members", "dlq": "/dlq",
    "waiting": "/waiting", "clients": "/clients", "topology": "/topology", "brokers": "/brokers",
    "broker": "/brokers/broker-a", "settings": "/settings", "pipelines": "/pipelines", "lake": "/lake",
    "trace": "/trace?key=4007", "audit": "/audit",
}  # fmt: skip


async def fill(producer: Any) -> None:
    for number in range(400):
        body = {"order": 4000 + number, "city": ("Kiel", "Bonn", "Jena")[number % 3], "price": number * 17 % 900 / 10}
        tag = ("created", "paid", "shipped")[number % 3]
        await producer.send("orders", json.dumps(body).encode(), keys=[str(4000 + number)], tag=tag)
    for number in range(60):
        await producer.send("payments", f"payment {number} ok".encode(), keys=[str(4000 + number)])
        await producer.send("orders", b"reminder", keys=[str(number)], delay=600 + number * 200)


async def flow(producer: Any) -> None:
    for number in range(1_000_000):
        body = json.dumps({"order": 9000 + number, "city": "Ulm", "price": number % 90}).encode()
        await producer.send("orders", body, keys=[str(9000 + number)], tag="created")
        await asyncio.sleep(0.02 + 0.02 * (number // 40 % 3))


async def drain(consumer: Any) -> None:
    async for _ in consumer:
        await asyncio.sleep(0.01)


async def main(everything: bool) -> None:
    DOCS.mkdir(parents=True, exist_ok=True)
    SHOTS.mkdir(parents=True, exist_ok=True)
    topics = ["orders", "payments", "shipments", "customers", "clicks"]
    with chromium_running() as chromium:
        async with (
            Cluster(brokers=2, topics=topics, settings={"recallMessageEnable": True}) as cluster,
            cluster.client() as client,
            client.producer("shop") as producer,
            client.consumer("billing", ["orders"], start=StartFrom.FIRST) as slow,
            client.consumer("audit-trail", ["orders", "payments"], start=StartFrom.FIRST) as fast,
            console(cluster.namesrv) as address,
        ):
            await fill(producer)
            tasks = [asyncio.create_task(it) for it in (flow(producer), drain(fast), drain(slow))]
            await asyncio.sleep(2)
            tasks.pop().cancel()  # billing stops reading
            async with opened(chromium, address) as page:
                await asyncio.sleep(14)
                await page.screenshot(path=DOCS / "overview.png")
                await page.goto(f"{address}topics/orders/messages?q=tag:created")
                await asyncio.sleep(SETTLE_S)
                await page.screenshot(path=DOCS / "messages.png")
                await page.goto(f"{address}groups/billing")
                await page.get_by_role("button", name="Move offsets").click()
                await page.get_by_role("button", name="Preview").last.click()
                await page.get_by_text("are skipped").wait_for()
                await page.screenshot(path=DOCS / "plan.png")
            if everything:
                for dark in (False, True):
                    for width in (1280, 390):
                        async with opened(chromium, address, dark=dark, width=width) as page:
                            for name, path in PAGES.items():
                                await page.goto(address.rstrip("/") + path)
                                await asyncio.sleep(SETTLE_S)
                                await page.screenshot(path=SHOTS / f"{name}-{width}{'-dark' if dark else ''}.png")
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main("--all" in sys.argv))
