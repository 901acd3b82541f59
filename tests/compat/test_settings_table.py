"""The table of settings against RocketMQ's own classes: no key is missing, and each default is the real one."""

from __future__ import annotations

import pytest

from cometmq import settings_table
from cometmq.broker.config import BrokerConfig
from cometmq.config import NameServerConfig
from cometmq.settings import settings_of
from cometmq.store.options import StoreOptions
from tests.compat.harness.scene import Scenes
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

BROKER_CLASSES = (
    "org.apache.rocketmq.common.BrokerConfig",
    "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    "org.apache.rocketmq.store.config.MessageStoreConfig",
    "org.apache.rocketmq.auth.config.AuthConfig",
)
NAME_SERVER_CLASSES = (
    "org.apache.rocketmq.common.namesrv.NamesrvConfig",
    "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    "org.apache.rocketmq.common.ControllerConfig",
)
# RocketMQ computes them from the number of cores; and an object without a text of its own.
COMPUTED = {"clientCallbackExecutorThreads", "endTransactionThreadPoolNums", "jraftConfig"}
# Of RocketMQ's TLS, which reads system properties and no class.
OF_NO_CLASS = {"tls.server.authClient", "tls.test.mode.enable"}

FIELDS = """
    for (String name : args) {
        Object config = Class.forName(name).getDeclaredConstructor().newInstance();
        for (Class<?> kind = config.getClass(); kind != Object.class; kind = kind.getSuperclass())
            for (java.lang.reflect.Field field : kind.getDeclaredFields()) {
                if (java.lang.reflect.Modifier.isStatic(field.getModifiers())) continue;
                field.setAccessible(true);
                Object value = field.get(config);
                emit("key", field.getName(), "value", value == null ? "" : value.toString());
            }
    }
"""


def fields(java: JavaShell, classes: tuple[str, ...]) -> dict[str, str]:
    return {row["key"]: row["value"] for row in java.run(FIELDS, *classes).rows}


@pytest.mark.mission("SK-08")
def test_every_key_of_rocketmqs_classes_is_honoured_or_in_the_table(java55: JavaShell) -> None:
    for classes, honoured, rows in (
        (BROKER_CLASSES, settings_of(BrokerConfig) | settings_of(StoreOptions), settings_table.BROKER),
        (NAME_SERVER_CLASSES, settings_of(NameServerConfig), settings_table.NAME_SERVER),
    ):
        real = fields(java55, classes)
        assert len(real) > 60
        assert real.keys() - honoured.keys() - rows.keys() == set()
        assert rows.keys() - real.keys() - OF_NO_CLASS == set(), "no row is made up"
        shared = rows.keys() & real.keys() - COMPUTED
        assert {key: rows[key].default for key in shared} == {key: real[key] for key in shared}


@pytest.mark.mission("SK-08")
def test_every_key_that_a_real_broker_shows_is_honoured_or_in_the_table(scenes: Scenes) -> None:
    done = scenes.java.run("getBrokerConfig", "-b", scenes.java.broker.address, check=False)
    shown = {key.strip() for key, equals, _ in (line.partition("=") for line in done.lines) if equals and key.strip()}
    honoured = settings_of(BrokerConfig).keys() | settings_of(StoreOptions).keys()
    assert len(shown) > 450
    assert shown - honoured - settings_table.BROKER.keys() == set()


@pytest.mark.mission("SK-08")
def test_a_change_without_effect_fails_here_and_looks_done_at_rocketmq(scenes: Scenes) -> None:
    for key, value in (("sendMessageThreadPoolNums", "7"), ("noSuchKey", "true"), ("enablePopLog", "true")):
        theirs, ours = (
            scene.run("updateBrokerConfig", "-b", scene.broker.address, "-k", key, "-v", value, check=False)
            for scene in scenes.both
        )
        assert any("update broker config success" in line for line in theirs.lines), theirs.lines
        assert not any("success" in line for line in ours.lines), ours.lines
        assert f"nothing was changed: {key} has no effect" in ours.stdout + ours.stderr
    at = scenes.java.broker.address
    for key, value in (("sendMessageThreadPoolNums", "2"), ("enablePopLog", "false")):
        scenes.java.run("updateBrokerConfig", "-b", at, "-k", key, "-v", value)
