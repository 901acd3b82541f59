"""A broker takes over RocketMQ 4's plain_acl.yml at its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.auth.users import User
from cometmq.broker.server import Broker
from cometmq.errors import ConfigError
from tests.support.access import ROOT, SECURED, signed_peer
from tests.support.brokers import add_topic, broker_settings, running_broker

FIRST = """
accounts:
  - {accessKey: app, secretKey: 12345678, topicPerms: [orders=PUB, bills=DENY], groupPerms: [g=SUB]}
  - {accessKey: root, secretKey: another secret, admin: true}
"""
SECOND = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
  - {accessKey: app, secretKey: a second one}
  - {accessKey: chief, secretKey: secret of chief, admin: true}
  - {accessKey: open, secretKey: secret of open, defaultTopicPerm: PUB}
"""


def home_with(directory: Path) -> Path:
    (directory / "conf" / "acl" / "more").mkdir(parents=True)
    (directory / "conf" / "acl" / "more" / "app.yaml").write_text(FIRST)
    (directory / "conf" / "plain_acl.yml").write_text(SECOND)
    return directory


@pytest.mark.mission("AC-14")
async def test_accounts_become_users_and_what_is_there_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = {**SECURED, "migrateAuthFromV1Enabled": True, "rocketmqHome": home_with(tmp_path / "home")}
    async with running_broker(tmp_path, **texts) as broker:
        for name in ("orders", "bills"):
            add_topic(broker, name)
        users = broker.access.users.table
        assert users["chief"] == User("chief", "secret of chief", is_super=True)
        assert users[ROOT].password == "password of root"
        async with (
            signed_peer(broker, "app", "12345678") as app,
            signed_peer(broker, "open", "secret of open") as free,
        ):
            assert [(await app.send(topic)).code for topic in ("orders", "bills")] == [0, 16]
            assert [(await free.send(topic)).code for topic in ("bills", "RMQ_SYS_TRACE_TOPIC")] == [0, 0]
        await signed_change(broker)
    for words in ("3 of 4 accounts were added", "10.10.103.*", "appears again"):
        assert words in caplog.text
    assert "secret" not in caplog.text.replace("secretKey", "")
    async with running_broker(tmp_path, **texts) as broker:
        assert broker.access.users.table["app"].password == "changed by hand"


async def signed_change(broker: Broker) -> None:
    async with signed_peer(broker) as root:
        assert (await root.call(3002, b'{"password":"changed by hand"}', username="app")).code == 0


@pytest.mark.parametrize("home", ["", "nothing here"])
async def test_without_files_to_take_over_the_broker_does_not_start(
    tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    texts = {**SECURED, "migrateAuthFromV1Enabled": True, "rocketmqHome": tmp_path / home if home else ""}
    with pytest.raises(ConfigError, match="rocketmqHome"):
        await Broker(broker_settings(tmp_path, **texts)).start()


@pytest.mark.mission("AC-14")
async def test_acl_enable_with_migration_starts_if_authentication_is_on(tmp_path: Path) -> None:
    texts = {"aclEnable": True, "migrateAuthFromV1Enabled": True, "rocketmqHome": home_with(tmp_path / "home")}
    with pytest.raises(ConfigError, match="authenticationEnabled=true"):
        Broker(broker_settings(tmp_path, **texts))
    async with running_broker(tmp_path, authenticationEnabled=True, authorizationEnabled=True, **texts) as broker:
        assert broker.access.users.table.keys() == {"app", ROOT, "chief", "open"}
