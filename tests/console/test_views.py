"""Topology, settings, clients, brokers, pipelines and archives show what is there: real data, in a browser."""

import json
from pathlib import Path

import pytest

from cometmq import StartFrom
from cometmq.testing import Cluster
from tests.support.asking import get
from tests.support.browser import console, opened


@pytest.mark.mission("CO-13")
async def test_topology_and_clients_show_who_sends_and_who_reads(chromium: str) -> None:
    async with (
        Cluster(topics=["orders"]) as cluster,
        cluster.client() as client,
        client.producer("shop") as producer,
        client.consumer("billing", ["orders"], start=StartFrom.FIRST) as consumer,
    ):
        await producer.send("orders", b"x")
        await consumer.receive()
        async with console(cluster.namesrv) as address, opened(chromium, f"{address}clients") as page:
            for role, group in (("producer", "shop"), ("consumer", "billing")):
                row = page.locator("tr", has=page.get_by_text(role, exact=True)).filter(has_text=group)
                await row.get_by_text(client.client_id).wait_for()
                await row.get_by_text("PYTHON").wait_for()
            await page.get_by_role("link", name="Topology").click()
            await page.locator("svg.picture a").filter(has_text="orders").wait_for()
            await page.locator("svg.picture g").filter(has_text="shop").wait_for()
            assert await page.locator("svg.picture path.link").count() == 1
            await page.locator("svg.picture a").filter(has_text="billing").click()
            await page.get_by_role("heading", name="billing").wait_for()


@pytest.mark.mission("CO-13")
async def test_settings_show_what_differs_between_brokers_and_from_a_file(chromium: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# mine\nmaxMessageSize = 1234\n")
    async with (
        Cluster(brokers=2, secure=True) as cluster,
        cluster.client() as client,
        client.admin() as admin,
        console(cluster.namesrv, **cluster.keys) as address,
    ):
        await admin.set_broker_config({"fileReservedTime": "48"}, broker="broker-b")
        async with opened(chromium, f"{address}settings") as page:
            row = page.locator("tr", has_text="fileReservedTime")
            await row.get_by_text("brokers differ").wait_for()
            await row.get_by_text("48", exact=True).wait_for()
            assert await page.locator("tr", has_text="maxMessageSize").count() == 0
            await page.get_by_label("Compare with a file").set_input_files(file)
            await page.locator("tr", has_text="maxMessageSize").get_by_text("1234").wait_for()
            await page.get_by_label("all settings").check()
            await page.get_by_label("Filter by name").fill("brokerRole")
            await page.locator("tr", has_text="brokerRole").first.wait_for()
        text = json.dumps(await get(address, "/api/settings"))
        assert cluster.keys["secret_key"] not in text, "secrets stay with the brokers"


@pytest.mark.mission("CO-13")
async def test_a_broker_shows_its_figures_and_takes_a_setting(chromium: str) -> None:
    async with (
        Cluster() as cluster,
        console(cluster.namesrv) as address,
        opened(chromium, f"{address}brokers/broker-a") as page,
    ):
        await page.get_by_text("Running for").wait_for()
        await page.get_by_role("link", name="Figures").click()
        await page.get_by_text("putMessageTimesTotal").wait_for()
        await page.locator(".tabs").get_by_role("link", name="Settings").click()
        await page.get_by_role("button", name="Change a setting").click()
        await page.get_by_label("Setting", exact=True).fill("fileReservedTime")
        await page.get_by_label("Value", exact=True).fill("50")
        await page.get_by_role("button", name="Preview").last.click()
        await page.get_by_text("fileReservedTime of broker-a becomes '50'").wait_for()
        await page.get_by_role("button", name="Do it").click()
        await page.get_by_role("button", name="Close", exact=True).nth(1).click()
        await page.get_by_label("Filter by name").fill("fileReserved")
        await page.locator("tr", has_text="fileReservedTime").get_by_text("50", exact=True).wait_for()


@pytest.mark.mission("CO-13")
async def test_pipelines_and_archives_are_read_from_their_directories(chromium: str, tmp_path: Path) -> None:
    reports, lake = tmp_path / "reports", tmp_path / "lake"
    reports.mkdir()
    report = {"name": "orders-archive", "state": "failed", "batch": 17, "rows_per_s": 1200.5, "lag": {"orders": 42},
              "error": "no space left"}  # fmt: skip
    (reports / "orders.json").write_text(json.dumps(report))
    for day in ("2026-01-30", "2026-01-31"):
        folder = lake / "data" / "topic=orders" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(b"PAR1" * 256)
    async with (
        Cluster(topics=["orders"]) as cluster,
        console(cluster.namesrv, pipelines=reports, lake=lake) as address,
        opened(chromium, f"{address}pipelines") as page,
    ):
        row = page.locator("tr", has_text="orders-archive")
        await row.get_by_text("no space left").wait_for()
        await row.get_by_text("orders 42").wait_for()
        await page.get_by_role("link", name="Lake").click()
        row = page.locator("tr", has_text="2026-01-30 to 2026-01-31")
        await row.get_by_text("2.0 KiB").wait_for()
    (found,) = (await get_lake(lake))["rows"]
    assert (found["days"], found["files"], found["bytes"]) == (2, 2, 2048)


async def get_lake(folder: Path) -> dict[str, list[dict[str, int]]]:
    from cometmq.console.views.stores import archives

    return archives(folder)
