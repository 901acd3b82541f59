"""Health says no when a promise is not kept right now, and says which."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.admin import settings
from cometmq.broker.server import Broker
from cometmq.cli.main import main
from cometmq.errors import ConfigError
from cometmq.nameserver import settings as nameserver_settings
from cometmq.nameserver.server import NameServer
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.write_flags import DISK_FULL
from cometmq.testing import Cluster
from cometmq.wire.codes import Response
from tests.support.brokers import Peer, add_topic, broker_settings, running_broker, send_request
from tests.support.scraping import fetch, scrape

PROM: dict[str, Any] = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}


async def readiness(port: int) -> tuple[int, dict[str, tuple[bool, str]]]:
    status, headers, body = await fetch(port, "/readyz")
    assert headers["content-type"] == "application/json"
    read = json.loads(body)
    assert read["ready"] == (status == 200)
    return status, {check["name"]: (check["ok"], check["detail"]) for check in read["checks"]}


@pytest.mark.mission("ME-03")
async def test_a_broker_that_serves_is_alive_started_and_ready() -> None:
    async with Cluster(settings=PROM) as cluster:
        port = cluster.broker.server.seen.port
        status, checks = await readiness(port)
        assert status == 200
        assert all(ok for ok, _ in checks.values())
        assert checks["name servers"] == (True, "1 of 1 know this broker")
        assert (await fetch(port, "/healthz"))[2] == b"ok\n"
        assert (await fetch(port, "/startupz"))[0] == 200
        assert (await fetch(port, "/-/healthy"))[2] == b"Exporter is healthy.\n"
        assert (await fetch(port, "/somewhere"))[0] == 404, "a probe on a wrong path must not be green"


@pytest.mark.mission("ME-03")
async def test_while_the_store_recovers_the_process_is_alive_and_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    open_store = Broker._open_store

    def slow(self: Broker) -> None:
        self.seen.recovering(3, 12)
        reached.set()
        assert go_on.wait(30)
        open_store(self)

    monkeypatch.setattr(Broker, "_open_store", slow)
    broker = Broker(settings.load({key: str(value) for key, value in _texts(tmp_path).items()}))
    starting = asyncio.create_task(broker.start())
    await asyncio.to_thread(reached.wait, 30)
    port = broker.seen.port
    try:
        assert (await fetch(port, "/healthz"))[0] == 200
        assert (await readiness(port)) == (503, {"recovery": (False, "log file 3 of 12")})
        assert (await fetch(port, "/startupz"))[0] == 503
        assert (await fetch(port, "/metrics"))[0] == 200, "a scrape meanwhile is empty, not an error"
    finally:
        go_on.set()
    await starting
    assert (await readiness(port))[0] == 200
    await broker.stop()


def _texts(directory: Path) -> dict[str, object]:
    return {"listenPort": 0, "storePathRootDir": directory / "store", **PROM}


@pytest.mark.mission("ME-03")
async def test_a_failed_flush_ends_readiness_and_not_life(tmp_path: Path) -> None:
    disk = FakeDisk()
    settings = {**PROM, "flushDiskType": "SYNC_FLUSH"}
    async with running_broker(tmp_path, None, disk, **settings) as broker, Peer.of(broker) as peer:
        add_topic(broker, "T")
        disk.fail("sync", 1)
        codes = [(await peer.ask(send_request("T", b"x"))).code for _ in range(3)]
        assert Response.SERVICE_NOT_AVAILABLE in codes
        status, checks = await readiness(broker.seen.port)
        assert status == 503
        assert not checks["flush"][0]
        assert not checks["store"][0]
        assert (await fetch(broker.seen.port, "/healthz"))[0] == 200
        found = await scrape(broker.seen.port)
        assert found.value("cometmq_store_read_only") == 1
        assert found.value("cometmq_flush_errors_total") == 1
        assert found.value("cometmq_ready", check="flush") == 0


async def test_a_full_disk_and_a_name_server_that_is_gone_are_named(tmp_path: Path) -> None:
    settings = {**PROM, "namesrvAddr": "127.0.0.1:1", "registerBrokerTimeoutMills": 100}
    async with running_broker(tmp_path, None, FakeDisk(), **settings) as broker:
        broker.store.flags.set(DISK_FULL)
        status, checks = await readiness(broker.seen.port)
        assert status == 503
        assert checks["disk"] == (False, "above the mark: sends are refused")
        assert checks["name servers"] == (False, "0 of 1 know this broker; not 127.0.0.1:1")


async def test_a_sync_master_without_its_replica_is_not_ready_and_a_lost_replica_neither(tmp_path: Path) -> None:
    master = {**PROM, "brokerRole": "SYNC_MASTER"}
    async with running_broker(tmp_path / "m", None, FakeDisk(), **master) as broker:
        status, checks = await readiness(broker.seen.port)
        assert (status, checks["copies"]) == (503, (False, "1 of 2 that an acknowledgement promises"))
    replica = {**PROM, "brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:1"}
    async with running_broker(tmp_path / "r", None, FakeDisk(), **replica) as broker:
        status, checks = await readiness(broker.seen.port)
        assert (status, checks["master"]) == (503, (False, "not connected to the master"))


async def test_health_alone_has_a_port_of_its_own_and_no_metrics(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", None, FakeDisk(), **PROM) as first:
        taken = first.seen.port
        with pytest.raises(ConfigError, match=f"{taken}.*healthPort"):
            async with running_broker(tmp_path / "b", None, FakeDisk(), healthPort=taken):
                pass
    async with running_broker(tmp_path / "b", None, FakeDisk(), healthPort=taken) as broker:
        assert (await fetch(broker.seen.port, "/readyz"))[0] == 200
        assert (await fetch(broker.seen.port, "/metrics"))[0] == 404


@asynccontextmanager
async def name_server(directory: Path) -> AsyncIterator[NameServer]:
    texts = {"listenPort": "0", "kvConfigPath": str(directory / "kv.json"), **{k: str(v) for k, v in PROM.items()}}
    server = NameServer(nameserver_settings.load(texts))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_a_name_server_shows_who_is_registered(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server:
        async with running_broker(tmp_path, None, FakeDisk(), namesrvAddr=server.address):
            found = await scrape(server.seen.port)
            assert found.value("cometmq_nameserver_brokers") == 1
            assert found.value("cometmq_nameserver_topics") > 5
            asked = {"request_code": "register_broker", "node_type": "nameserver"}
            assert found.value("rocketmq_rpc_latency_milliseconds_count", **asked) >= 1
        assert (await readiness(server.seen.port))[0] == 200
        assert (await scrape(server.seen.port, is_open=True)).value("cometmq_nameserver_brokers") == 0


async def test_the_command_asks_and_ends_with_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def health(*words: str) -> int:
        return await asyncio.to_thread(main, ["health", *words])

    broker = Broker(broker_settings(tmp_path, **PROM), None, FakeDisk())
    await broker.start()
    url = f"http://127.0.0.1:{broker.seen.port}"
    try:
        assert await health("--url", url) == 0
        assert capsys.readouterr().out == "ok\n"
        assert await health("--url", url, "--ready") == 0
        broker.store.flags.set(DISK_FULL)
        assert await health("--url", url, "--ready") == 1
        assert await health("--url", url, "--started") == 0
    finally:
        await broker.stop()
    assert await health("--url", url) == 3
    assert "metricsExporterType=PROM or healthPort" in capsys.readouterr().err
    assert await health("--url", "ftp://x") == 2
    assert await health("--url", "http://x:notaport") == 2
