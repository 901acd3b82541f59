"""The dashboard and the alert rules against a broker that Prometheus scrapes: every expression finds a series."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cometmq.testing import Cluster
from scripts import grafana_dashboard, metrics_table
from tests.support.require import unavailable

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "packaging" / "prometheus" / "cometmq-rules.yml"
PATIENCE_S = 60.0
METRIC = re.compile(r"\b(?:rocketmq|cometmq)_[a-z0-9_]+")
VARIABLES = {"$cluster": ".*", "$node": ".*", "$topic": ".*", "$group": ".*", "$__rate_interval": "10s"}


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        unavailable("prometheus", f"no {program} on the path: install the package prometheus")
    return found


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


def expressions() -> Iterator[tuple[str, str]]:
    """Title and expression of every target of the dashboard."""
    for panel in grafana_dashboard.dashboard()["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            yield panel["title"], text


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def ask(port: int, expression: str) -> list[Any]:
    """Series that the expression selects; an expression that is wrong raises."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
        read = json.load(answer)
    assert read["status"] == "success", read
    return list(read["data"]["result"])


@asynccontextmanager
async def prometheus(directory: Path, target: int) -> AsyncIterator[int]:
    program = need("prometheus")
    config = directory / "prometheus.yml"
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "cometmq", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    port = free_port()
    arguments = [f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([program, *arguments, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)  # noqa: ASYNC220 - returns at once
    try:
        yield port
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


async def until_selected(port: int, expression: str) -> None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + PATIENCE_S
    while True:
        try:
            found = await asyncio.to_thread(ask, port, expression)
        except OSError:
            found = []  # it is starting
        if found:
            return
        assert loop.time() < until_s, f"selects nothing: {expression}"
        await asyncio.sleep(0.2)


def test_the_written_files_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    for script in (grafana_dashboard, metrics_table):
        monkeypatch.setattr("sys.argv", ["script", "--check"])
        assert script.main() == 0


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    ran = subprocess.run([need("promtool"), "check", "rules", RULES], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for rule in rules():
        assert {"summary", "description"} <= rule["annotations"].keys()
        assert rule["labels"]["severity"] in ("critical", "warning")


@pytest.mark.mission("ME-04")
async def test_every_expression_of_dashboard_and_rules_finds_a_series(tmp_path: Path) -> None:
    need("prometheus")
    settings: dict[str, str | int | float | bool] = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    async with Cluster(topics=["T"], settings=settings) as cluster, cluster.client() as client:
        server = cluster.broker.server
        server.rooms.shared.stats.dead_letter("cg", "T")
        server.tables.half_counts.add("T", 1, 0)
        link = server.rooms.replicas.replication.listener
        assert link is not None
        link.master.connect("replica", 0.0)
        async with (
            prometheus(tmp_path, server.seen.port) as port,
            client.producer("pg") as producer,
            client.consumer("cg", "T") as consumer,
        ):
            working = asyncio.create_task(_work(producer, consumer))
            try:
                for _, expression in expressions():
                    await until_selected(port, expression)
                for rule in rules():
                    await asyncio.to_thread(ask, port, rule["expr"])  # raises for an expression that is wrong
                    for name in METRIC.findall(rule["expr"]):
                        await until_selected(port, name)
            finally:
                working.cancel()


async def _work(producer: Any, consumer: Any) -> None:
    while True:
        await producer.send("T", b"x")
        await anext(consumer)
        await asyncio.sleep(0.05)
