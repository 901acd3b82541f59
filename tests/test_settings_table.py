"""Settings that are not read: none is in two places, and none looks as if it did something."""

from pathlib import Path

import pytest

from cometmq import settings_table
from cometmq.broker.admin import settings as broker_settings
from cometmq.broker.config import BrokerConfig
from cometmq.cli import broker, nameserver
from cometmq.cli.shared import checkup
from cometmq.config import NameServerConfig
from cometmq.nameserver import settings as name_server_settings
from cometmq.settings import SettingError, settings_of
from cometmq.settings_table import BROKER, NAME_SERVER, Row, State
from cometmq.store.options import StoreOptions

REFUSED = [row for row in BROKER.values() if row.state is State.REFUSED]


def other(row: Row) -> str:
    """A value that asks for something."""
    return {"true": "false", "false": "true"}.get(row.default, f"{row.default}1")


def test_a_setting_is_either_honoured_or_in_the_table() -> None:
    assert (settings_of(BrokerConfig).keys() | settings_of(StoreOptions).keys()) & BROKER.keys() == set()
    assert settings_of(NameServerConfig).keys() & NAME_SERVER.keys() == set()
    assert [row.key for row in (*BROKER.values(), *NAME_SERVER.values()) if len(row.why.split()) < 4] == []


@pytest.mark.mission("SK-07")
@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.key)
def test_a_broker_does_not_start_with_a_promise_that_it_does_not_keep(row: Row) -> None:
    with pytest.raises(SettingError, match=f"{row.key}=.* is refused: ") as refusal:
        broker_settings.load({row.key: other(row)})
    assert refusal.value.key == row.key
    assert str(refusal.value).endswith(row.cure)
    broker_settings.load({row.key: row.default})  # asks for nothing


@pytest.mark.mission("SK-07")
@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("storeType=defaultRocksDB", "stores in RocksDB are not built"),
        ("messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore", "tiered store are not built"),
        ("controllerAddr=127.0.0.1:9878", "set enableControllerMode=true and controllerStore"),
        ("useTLS=true", "set tls.enable=true"),
        ("enableDLegerCommitLog=true", "use a master and a replica"),
        ("duplicationEnable=true", "use a master and a replica"),
        ("maxMessageSize=large", "maxMessageSize=large is not a whole number"),
    ],
)
def test_the_refusal_is_one_line_with_the_line_of_the_file(
    line: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"# ours\nbrokerName=a\n\n{line}\nlistenPort=0\n")
    assert broker.main(["-c", str(path), "-p"]) == 3  # -p: one that is not refused ends, too
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"cometmq broker: {path} line 4: {line.partition('=')[0]}")
    assert cause in said[0]


@pytest.mark.mission("SK-07")
def test_a_name_server_does_not_start_as_a_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("enableControllerInNamesrv=true\n")
    assert nameserver.main(["-c", str(path), "-p"]) == 3
    assert f"{path} line 1: enableControllerInNamesrv=true is refused: " in capsys.readouterr().err


@pytest.mark.mission("SK-07")
def test_what_is_not_built_is_a_warning_and_what_means_nothing_is_not(caplog: pytest.LogCaptureFixture) -> None:
    texts = {"enablePopLog": "true", "compactionThreadNum": "6", "sendMessageThreadPoolNums": "9",
             "pullMessageThreadPoolNums": "20", "colour": "red"}  # fmt: skip
    with caplog.at_level("INFO"):
        broker_settings.load(texts)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [text for level, text in said if level == "WARNING"] == [
        "no effect of setting key=enablePopLog value=true: single pops are not logged; remove the line",
        "unknown settings, kept without effect: colour",
    ]
    (ignored,) = [text for level, text in said if level == "INFO"]
    assert ignored.startswith("ignored setting key=sendMessageThreadPoolNums value=9: ")
    caplog.clear()
    name_server_settings.load({"controllerDLegerGroup": "g", "colour": "red"})
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_what_rocketmq_has_by_itself_and_is_not_built_is_asked_for_by_its_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker_settings.load({"enableCompaction": "true"})
    assert "no effect of setting key=enableCompaction value=true: " in caplog.text
    caplog.clear()
    broker_settings.load({"enableCompaction": "false"})
    assert caplog.text == ""


def test_what_is_not_built_is_not_shown_unless_it_was_set_and_what_is_refused_is_shown_as_off() -> None:
    shown = broker_settings.load({}).texts()
    assert {row.key for row in BROKER.values() if row.key in shown and row.state is State.NOT_BUILT} == set()
    assert (shown["sendMessageThreadPoolNums"], shown["storeType"]) == ("2", "default")
    assert broker_settings.load({"compactionThreadNum": "9"}).texts()["compactionThreadNum"] == "9"


@pytest.mark.mission("SK-07")
def test_the_doctor_says_what_a_setting_does_not_do() -> None:
    texts = {"enablePopLog": "true", "sendMessageThreadPoolNums": "9", "colour": "red"}
    found = {(one.state, one.check): one for one in checkup.broker_settings(texts)}
    assert "enablePopLog=true has no effect: single pops" in found["warn", "setting enablePopLog"].found
    assert found["warn", "settings"].found == "unknown keys: colour"
    assert found["ok", "settings"].found == "without meaning here: sendMessageThreadPoolNums"
    (refused,) = checkup.broker_settings({"storeType": "defaultRocksDB"})
    assert (refused.state, refused.check) == ("fail", "setting storeType")
    assert "export" in refused.fix
    (fine,) = checkup.broker_settings({"storeType": "default"})
    assert (fine.state, fine.found) == ("ok", "1 keys, all understood")


def test_a_reason_is_given_for_every_key_that_cannot_be_changed() -> None:
    rows = settings_table.BROKER
    assert settings_table.without_effect(rows, {"a": "1"}, {"a": "1"}) == ""
    assert settings_table.without_effect(rows, {"a": "1"}, {"a": "2"}) == "a has no effect: no such setting is known"
    assert "enablePopLog has no effect: single" in settings_table.without_effect(rows, {}, {"enablePopLog": "false"})
