"""Every page in a real browser: it opens in both palettes and widths, says its heading, and what is on it is true."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cometmq.testing import Cluster
from tests.support.browser import console, opened

PAGES = {
    "/": "Overview", "/topics": "Topics", "/topics/orders": "orders", "/topics/orders/messages": "orders",
    "/topics/orders/groups": "orders", "/topics/orders/producers": "orders", "/topics/orders/route": "orders",
    "/topics/orders/settings": "orders", "/groups": "Groups", "/groups/billing": "billing",
    "/groups/billing/members": "billing", "/groups/billing/dlq": "billing", "/dlq": "Dead letters",
    "/waiting": "Waiting", "/clients": "Clients", "/topology": "Topology", "/brokers": "Brokers",
    "/brokers/broker-a": "broker-a",
    "/brokers/broker-a/figures": "broker-a", "/brokers/broker-a/settings": "broker-a", "/settings": "Settings",
    "/pipelines": "Pipelines", "/lake": "Lake", "/trace?key=4007": "Trace", "/audit": "Audit",
}  # fmt: skip
ROWS = ("/topics", "/topics/orders/messages", "/groups", "/waiting", "/brokers", "/trace?key=4007", "/settings")
# What a screen reader or a reader with weak eyes stumbles over.
CLICK = """(to) => {
  const link = document.createElement("a");
  link.href = to;
  document.body.append(link);
  link.click();
  link.remove();
}"""
FAULTS = Path(__file__).with_name("faults.js").read_text(encoding="utf-8")


async def fill(cluster: Cluster, client: Any, admin: Any) -> None:
    async with client.producer("shop-pg") as producer:
        for number in range(60):
            body = json.dumps({"order": 4000 + number, "price": number * 3}).encode()
            tag = "created" if number % 2 else "paid"
            await producer.send("orders", body, keys=[str(4000 + number)], tag=tag, properties={"city": "Kiel"})
        await producer.send("orders", b"later", delay=3600)
    await admin.create_group("billing")
    await admin.reset_offsets("billing", "orders", to="earliest")


@pytest.mark.mission("CO-15")
@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 390)], ids=["light-wide", "dark-narrow"])
async def test_every_page_opens_with_its_heading_and_without_a_fault(chromium: str, dark: bool, width: int) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        await fill(cluster, client, admin)
        async with console(cluster.namesrv) as address, opened(chromium, address, dark=dark, width=width) as page:
            wrong: dict[str, list[str]] = {}
            for path, heading in PAGES.items():
                if path != "/":
                    await page.evaluate(CLICK, path)
                await page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()
                if path in ROWS:
                    await page.locator("tbody tr:not(.pad)").first.wait_for()
                await page.locator("main").get_by_text("Loading").wait_for(state="detached")
                faults = await page.evaluate(FAULTS)
                if faults:
                    wrong[path] = faults
            assert not wrong, "\n".join(f"{path}: {fault}" for path, faults in wrong.items() for fault in faults)


@pytest.mark.mission("CO-01")
async def test_one_click_from_the_first_page_shows_a_topic_made_a_second_ago(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, console(cluster.namesrv) as address:
        async with opened(chromium, address) as page:
            await page.get_by_role("heading", name="Overview").wait_for()
            await cluster.create_topic("fresh")
            await page.get_by_role("link", name="Topics").click()
            await page.get_by_role("link", name="fresh").wait_for()


@pytest.mark.mission("CO-02")
async def test_a_killed_broker_says_since_when_and_comes_back_without_a_reload(chromium: str) -> None:
    async with Cluster(brokers=2, topics=["orders"]) as cluster, console(cluster.namesrv, poll_s=0.5) as address:
        async with opened(chromium, address) as page:
            row = page.locator("tr", has_text="broker-b")
            await row.get_by_text("master").wait_for()
            loads = await page.evaluate("() => performance.timeOrigin")
            began_s = time.monotonic()
            await cluster.brokers[1].kill()
            await row.get_by_text("silent since").wait_for()
            assert time.monotonic() - began_s < 10, "the promise of the page: within 10 s"
            findings = page.get_by_role("list", name="What is wrong")
            await findings.get_by_text("start it again").wait_for()
            assert await page.locator(".note.warn").count() == 0, "the page itself has no error"
            await cluster.brokers[1].start()
            await row.get_by_text("master").wait_for()
            await findings.wait_for(state="detached")
            assert await page.evaluate("() => performance.timeOrigin") == loads


@pytest.mark.mission("CO-04")
async def test_a_topic_is_made_changed_and_deleted_by_plans_and_an_old_plan_is_refused(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        async with console(cluster.namesrv, poll_s=0.5) as address:
            async with opened(chromium, f"{address}topics", expected=("409",)) as page:
                await page.get_by_role("button", name="Create topic").click()
                await page.get_by_label("Name", exact=True).fill("invoices")
                await page.get_by_label("Queues on each broker").fill("2")
                await page.get_by_role("button", name="Preview").last.click()
                await page.get_by_text("invoices gets 2 queues").wait_for()
                await page.get_by_role("button", name="Do it").click()
                await page.get_by_role("button", name="Close", exact=True).nth(1).click()
                await page.get_by_role("heading", name="invoices").wait_for()
                assert (await admin.describe_topic("invoices")).brokers[0].read_queues == 2
                await page.get_by_role("button", name="Change").click()
                await page.get_by_label("Queues on each broker").fill("4")
                await page.get_by_role("button", name="Preview").last.click()
                await page.get_by_text("settings of invoices change").wait_for()
                await admin.alter_topic("invoices", queues=3)  # another person
                await page.get_by_role("button", name="Do it").click()
                await page.get_by_text("has changed meanwhile").wait_for()
                assert (await admin.describe_topic("invoices")).brokers[0].read_queues == 3
                await page.get_by_role("button", name="Look again").click()
                await page.get_by_role("button", name="Do it").click()
                await page.get_by_role("button", name="Close", exact=True).nth(1).click()
                assert (await admin.describe_topic("invoices")).brokers[0].read_queues == 4
                await page.get_by_role("button", name="Delete").click()
                await page.get_by_text("no group reads it").wait_for()
                await page.get_by_role("button", name="Do it").click()
                await page.get_by_role("button", name="Close", exact=True).nth(1).click()
                await page.get_by_role("heading", name="Topics").wait_for()
                assert "invoices" not in await admin.topics()


@pytest.mark.mission("CO-08")
async def test_the_lag_chart_moves_within_seconds_when_a_consumer_is_stopped(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_group("billing")
        await admin.reset_offsets("billing", "orders", to="latest")
        async with console(cluster.namesrv, poll_s=0.5) as address:
            async with opened(chromium, f"{address}groups/billing") as page:
                await page.get_by_text("nobody online").wait_for()
                async with client.producer("pg") as producer:
                    for _ in range(50):
                        await producer.send("orders", b"x")
                began_s = time.monotonic()
                await page.locator("[aria-label='behind over time'][data-last='50']").wait_for()
                assert time.monotonic() - began_s < 5, "the promise of the page: within 5 s"


@pytest.mark.mission("CO-08")
async def test_subscriptions_that_differ_between_members_are_marked(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as one, cluster.client() as two:
        async with (
            one.consumer("billing", {"orders": "created"}),
            two.consumer("billing", {"orders": "paid"}),
            console(cluster.namesrv) as address,
            opened(chromium, f"{address}groups/billing/members") as page,
        ):
            await page.get_by_text("Subscriptions differ").wait_for()
            await page.get_by_text("differs", exact=True).first.wait_for()


async def tab_to(page: Any, button: str) -> None:
    for _ in range(80):
        at = "() => document.activeElement.matches('button, a') ? document.activeElement.textContent.trim() : ''"
        if await page.evaluate(at) == button:
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {button!r}")


@pytest.mark.mission("CO-15", "CO-09")
async def test_the_keyboard_alone_moves_offsets_and_comes_back(chromium: str) -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        await fill(cluster, client, admin)
        async with console(cluster.namesrv) as address, opened(chromium, address) as page:
            keys = page.keyboard
            await page.get_by_role("heading", name="Overview").wait_for()
            await keys.press("g")
            await keys.press("g")
            await page.get_by_role("link", name="billing").wait_for()
            await keys.press("/")
            await keys.type("billing")
            await page.get_by_role("option", name="billing").first.wait_for()
            await keys.press("Enter")
            await page.get_by_role("button", name="Move offsets").wait_for()
            await page.locator("[aria-label=Queues] tbody tr").first.wait_for()
            await tab_to(page, "Move offsets")
            await keys.press("Enter")
            await page.get_by_label("Topic", exact=True).wait_for()
            await tab_to(page, "Preview")
            await keys.press("Enter")
            await page.get_by_text("are skipped").wait_for()
            await tab_to(page, "Do it")
            await keys.press("Enter")
            await page.get_by_text("Move billing: done").wait_for()
            await keys.press("Escape")
            offsets = await admin.committed_offsets("billing", "orders")
            ends = {queue: await admin.latest_offset(queue) for queue in offsets}
            assert offsets == ends
            await page.go_back()
            await page.get_by_role("heading", name="Groups").wait_for()
