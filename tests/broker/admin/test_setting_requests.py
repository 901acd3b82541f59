"""Settings shown and changed while the broker runs."""

import json
from pathlib import Path

import pytest

from cometmq import settings_table
from cometmq.broker.config import BrokerConfig
from cometmq.settings import settings_of
from cometmq.store.options import StoreOptions
from cometmq.wire import java_properties
from cometmq.wire.codes import Request, Response
from tests.broker.running import Session, running_broker


async def shown(session: Session) -> dict[str, str]:
    answer = await session.ask(Request.GET_BROKER_CONFIG)
    assert answer.code == Response.SUCCESS
    return java_properties.parse(answer.body)


async def version(session: Session) -> int:
    answer = await session.ask(Request.GET_BROKER_CONFIG)
    counter: int = json.loads(answer.ext["version"])["counter"]
    return counter


async def test_every_setting_is_shown_sorted_and_in_ascii(tmp_path: Path) -> None:
    async with running_broker(tmp_path, regionId="Zürich\\") as running:
        session = await running.connect()
        answer = await session.ask(Request.GET_BROKER_CONFIG)
        assert answer.body.isascii()
        lines = answer.body.decode().splitlines()
        assert lines == sorted(lines, key=lambda line: line.partition("=")[0])
        assert "regionId=Z\\u00FCrich\\\\" in lines
        texts = await shown(session)
        known = {**settings_of(BrokerConfig), **settings_of(StoreOptions)}
        has_value = {key for key, text in running.broker.settings.texts().items() if text}
        assert has_value <= texts.keys()
        unset = {key for key, (name, _) in known.items() if getattr(BrokerConfig(), name, None) == ""}
        assert known.keys() - texts.keys() <= unset | {"readOnlyCommitLogStorePaths", "haMasterAddress"}
        assert {key for key, text in settings_table.shown(settings_table.BROKER).items() if text} <= texts.keys()
        assert texts["brokerIP1"] == "127.0.0.1"
        assert texts["listenPort"] == str(running.broker.port)
        assert texts["storePathCommitLog"] == str(tmp_path / "store" / "commitlog")
        assert texts["brokerName"] == "broker-a"


async def test_a_change_acts_at_once_and_raises_the_version(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        before = await version(session)
        assert (await session.send_message("T", b"x" * 2000)).ext["TRACE_ON"] == "true"
        answer = await session.ask(Request.UPDATE_BROKER_CONFIG, b"traceOn=false\nmaxMessageSize=1000\n")
        assert (answer.code, answer.remark) == (Response.SUCCESS, None)
        assert (await session.send_message("T", b"x")).ext["TRACE_ON"] == "false"
        assert (await session.send_message("T", b"x" * 2000)).code == Response.MESSAGE_ILLEGAL
        texts = await shown(session)
        assert (texts["traceOn"], texts["maxMessageSize"]) == ("false", "1000")
        assert await version(session) == before + 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"brokerConfigPath=/etc/passwd", Response.NO_PERMISSION),
        (b"configBlackList=", Response.NO_PERMISSION),
        (b"rocketmqHome=/tmp", Response.NO_PERMISSION),
        (b"storePathRootDir=/tmp", Response.NO_PERMISSION),
        (b"brokerPermission=many", Response.SYSTEM_ERROR),
        (b"brokerPermission=8", Response.SYSTEM_ERROR),
        (b"traceOn=maybe", Response.SYSTEM_ERROR),
        (b"key=\\u12", Response.SYSTEM_ERROR),
    ],
)
async def test_a_change_that_may_not_be_made_changes_nothing(tmp_path: Path, body: bytes, code: int) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        before = await shown(session)
        answer = await session.ask(Request.UPDATE_BROKER_CONFIG, b"longPollingEnable=false\n" + body)
        assert answer.code == code
        assert answer.remark
        assert await shown(session) == before
        assert running.broker.settings.config.long_polling


@pytest.mark.mission("SK-07")
@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"colour=red", "colour has no effect: no such setting is known"),
        (b"sendMessageThreadPoolNums=7", "sendMessageThreadPoolNums has no effect: requests are served on"),
        (b"enablePopLog=true", "enablePopLog has no effect: single pops are not logged"),
        (b"storeType=defaultRocksDB", "storeType has no effect: stores in RocksDB are not built"),
    ],
)
async def test_a_change_without_effect_is_refused_and_changes_nothing(
    tmp_path: Path, body: bytes, cause: str
) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        before = await shown(session)
        answer = await session.ask(Request.UPDATE_BROKER_CONFIG, b"traceOn=false\n" + body)
        assert answer.code == Response.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith(f"nothing was changed: {cause}")
        assert await shown(session) == before
        assert running.broker.settings.config.trace_on


async def test_a_key_without_effect_may_be_given_the_value_that_is_shown(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        whole = (await session.ask(Request.GET_BROKER_CONFIG)).body
        key = b"sendMessageThreadPoolNums=2"
        assert key in whole.splitlines()
        answer = await session.ask(Request.UPDATE_BROKER_CONFIG, key + b"\ntraceOn=false")
        assert (answer.code, answer.remark) == (Response.SUCCESS, None)
        assert (await session.ask(Request.UPDATE_BROKER_CONFIG)).code == Response.SUCCESS


async def test_a_change_is_kept_in_the_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    async with running_broker(tmp_path, brokerConfigPath=path) as running:
        session = await running.connect()
        await session.ask(Request.UPDATE_BROKER_CONFIG, b"brokerPermission=4\nmaxMessageSize=70000\n")
    saved = java_properties.parse(path.read_bytes())
    assert (saved["brokerPermission"], saved["maxMessageSize"]) == ("4", "70000")


async def test_a_change_of_permission_makes_a_new_version_of_the_topics(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        before = running.broker.tables.topics.data_version
        await session.ask(Request.UPDATE_BROKER_CONFIG, b"brokerPermission=4")
        assert running.broker.tables.topics.data_version.counter == before.counter + 1
        await session.ask(Request.UPDATE_BROKER_CONFIG, b"brokerPermission=4")
        assert running.broker.tables.topics.data_version.counter == before.counter + 1
