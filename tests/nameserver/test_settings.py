"""Settings of a running name server: what may change, what is saved, what is shown."""

from pathlib import Path

import pytest

from cometmq.nameserver import settings as live
from cometmq.settings_file import backups
from cometmq.wire import java_properties
from cometmq.wire.codes import Request
from tests.nameserver.support import call, nameserver, register, route
from tests.support.aio import run
from tests.support.net import RawPeer


async def settings(peer: RawPeer) -> dict[str, str]:
    answer = await call(peer, Request.GET_NAMESRV_CONFIG)
    assert answer.code == 0
    return java_properties.parse(answer.body)


@pytest.mark.mission("NS-11")
@pytest.mark.parametrize(
    "text",
    [
        "kvConfigPath=/elsewhere",
        "configStorePath=/elsewhere",
        "rocketmqHome=/elsewhere",
        "configBlackList=nothing",
        "tls.server.keyPath=/elsewhere",
        "rocketmq.namesrv.addr=10.0.0.9:9876",
        "scanNotActiveBrokerInterval=1",
        "orderMessageEnable=true\nkvConfigPath=/elsewhere",
        "bindAddress=0.0.0.0",
        "listenPort=1",
        "kvConfigBytesMax=15000000",
        "kvConfigEntriesMax=100000",
        "routeAnswerBytesMax=2147483647",
    ],
)
async def test_what_must_not_change_is_refused_with_16_and_nothing_changes(text: str, tmp_path: Path) -> None:
    black = "configBlackList;scanNotActiveBrokerInterval"
    async with nameserver(tmp_path, configBlackList=black) as server, RawPeer.connected(server.port) as peer:
        before = await settings(peer)
        answer = await call(peer, Request.UPDATE_NAMESRV_CONFIG, text.encode())
        assert answer.code == 16
        assert await settings(peer) == before
        assert not (tmp_path / "namesrv.properties").exists()


@pytest.mark.mission("NS-11")
async def test_a_switch_acts_on_the_next_query(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        await register(peer, "A", "B")
        await call(peer, Request.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A", value="broker-a:4")
        found = await route(peer, "A")
        assert found is not None
        assert found.order_topic_conf is None
        answer = await call(peer, Request.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true")
        assert (answer.code, answer.remark) == (0, None)
        found = await route(peer, "A")
        assert found is not None
        assert found.order_topic_conf == "broker-a:4"


@pytest.mark.mission("NS-11")
async def test_settings_are_shown_as_sorted_text_that_java_reads(tmp_path: Path) -> None:
    secret = {"tls_server_keyPassword": "secret"}
    async with nameserver(tmp_path, **secret) as server, RawPeer.connected(server.port) as peer:
        answer = await call(peer, Request.GET_NAMESRV_CONFIG)
        lines = answer.body.decode("ascii").splitlines()
        assert lines == sorted(lines)
        assert "scanNotActiveBrokerInterval=5000" in lines
        assert f"kvConfigPath={tmp_path}/kvConfig.json" in lines
        assert "serverWorkerThreads=8" in lines
        assert "secret" not in answer.body.decode()


def test_a_change_is_saved_whole_and_in_effect_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    path.write_text("listenPort=0\nteam=orders\ntls.server.keyPassword=secret\nserverWorkerThreads=4\n")

    async def main() -> None:
        texts = java_properties.parse(path.read_bytes())
        async with nameserver(tmp_path, **texts) as server, RawPeer.connected(server.port) as peer:
            change = "scanNotActiveBrokerInterval=700\nsupportActingMaster=TRUE\nwaitSecondsForService=3"
            answer = await call(peer, Request.UPDATE_NAMESRV_CONFIG, change.encode())
            assert (answer.code, answer.remark) == (0, None)
            assert server._scan_s == 5, "acts after a restart only"

    run(main())
    saved = java_properties.parse(path.read_bytes())
    assert saved["team"] == "orders"
    assert saved["tls.server.keyPassword"] == "secret"
    assert saved["serverWorkerThreads"] == "4"
    (backup,) = backups(path)
    assert backup.read_text().startswith("listenPort=0\nteam=orders")
    assert len(path.read_text().splitlines()) == 7, "only what was changed"
    config = live.load(saved).config
    assert (config.scan_interval_ms, config.support_acting_master) == (700, True)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"supportActingMaster=true\nwaitSecondsForService=soon", "waitSecondsForService=soon is not a whole number"),
        (b"supportActingMaster=true\nserverWorkerThreads=many", "serverWorkerThreads has no effect: sockets"),
        (b"supportActingMaster=maybe", "neither true nor false"),
        (b"waitSecondsForService=70000", "outside 0 to 3600"),
        (b"supportActingMaster=tru\\u00zz", "four hex digits"),
    ],
)
async def test_a_value_that_does_not_fit_is_refused_with_1_and_nothing_changes(
    body: bytes, cause: str, tmp_path: Path
) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        before = await settings(peer)
        answer = await call(peer, Request.UPDATE_NAMESRV_CONFIG, body)
        assert answer.code == 1
        assert cause in str(answer.remark)
        assert await settings(peer) == before


async def test_a_change_that_cannot_be_saved_is_refused_and_not_in_effect(tmp_path: Path) -> None:
    directory = tmp_path / "made by the first save"

    async with nameserver(directory) as server, RawPeer.connected(server.port) as peer:
        directory.touch()
        answer = await call(peer, Request.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false")
        assert answer.code == 1
        assert "nothing was changed" in str(answer.remark)
        assert (await settings(peer))["enableTopicList"] == "true"


async def test_an_empty_change_is_no_error(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        assert (await call(peer, Request.UPDATE_NAMESRV_CONFIG)).code == 0


@pytest.mark.parametrize(
    "text",
    [
        "productEnvName=" + "x" * 10_000_000,
        "productEnvName=" + "x" * 20_000,
        "waitSecondsForService=2147483647",
        "scanNotActiveBrokerInterval=2147483647",
        "defaultThreadPoolQueueCapacity=2147483647",
    ],
    ids=lambda text: text[:40],
)
async def test_what_would_hurt_the_server_is_refused_and_nothing_is_saved(text: str, tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        before = await settings(peer)
        answer = await call(peer, Request.UPDATE_NAMESRV_CONFIG, text.encode())
        assert answer.code == 1
        assert any(cause in (answer.remark or "") for cause in ("at most", "outside", "no effect"))
        assert await settings(peer) == before
        assert not (tmp_path / "namesrv.properties").exists()
