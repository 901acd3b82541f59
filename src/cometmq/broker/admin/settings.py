"""The settings of a broker: read from properties, shown by request 26, changed by request 25.

One properties file fills two groups, the broker's and the store's. What may change while running is the allow-list of
`settings.Live`; a refusal changes nothing, not even the other keys of the same request.

A role is for a lifetime: `brokerRole` and `brokerId` go to the settings file and hold from the next start on. That is
how a replica is made the master of its group.
"""

import asyncio
import dataclasses
import logging
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cometmq import settings_file, settings_table
from cometmq.broker.config import BrokerConfig
from cometmq.errors import RequestError, WireError
from cometmq.net.tls import with_file
from cometmq.settings import Live, SettingError, read, read_inert, settings_of, texts_of
from cometmq.store.options import OLD_KEYS, StoreOptions
from cometmq.wire import java_properties
from cometmq.wire.codes import MASTER_ID, Response

logger = logging.getLogger(__name__)

# RocketMQ's keys that mean nothing here, with its defaults: shown and kept like the others.
WITHOUT_EFFECT = settings_table.shown(settings_table.BROKER)

AT_RESTART = frozenset(("brokerRole", "brokerId"))


class LiveSettings:
    """`config` and `store_options` are the current ones; `others` are keys that have no effect. `changes` counts."""

    def __init__(self, config: BrokerConfig, store_options: StoreOptions, others: dict[str, str]) -> None:
        self.config = config
        self.store_options = store_options
        self.changes: int = 0
        self._others = others
        self._changing = asyncio.Lock()
        known = {**settings_of(BrokerConfig), **settings_of(StoreOptions)}
        never = {key for key, (_, rule) in known.items() if rule.live is Live.NEVER}
        self._refused = (never - AT_RESTART) | set(config.config_black_list.split(";")) | {"rocketmqHome"}
        self._at_restart: dict[str, str] = {}

    def current(self) -> BrokerConfig:
        return self.config

    def texts(self, *, secrets: bool = False) -> dict[str, str]:
        """Every key with its value."""
        return (
            {key: text for key, text in self._others.items() if text}
            | texts_of(self.store_options, secrets=secrets)
            | texts_of(self.config, secrets=secrets)
        )

    def take_id(self, broker_id: int) -> None:
        """A set has elected its master: from now on this broker goes by another id."""
        self.config = dataclasses.replace(self.config, broker_id=broker_id)

    async def change(self, body: bytes) -> None:
        """Change what a properties text says. A key without effect is refused, unless it says what is shown anyway."""
        await asyncio.shield(self._change(body))

    async def _change(self, body: bytes) -> None:
        async with self._changing:
            try:
                wanted = java_properties.parse_request(body)
            except WireError as error:
                raise RequestError(Response.SYSTEM_ERROR, str(error)) from None
            refused = sorted(self._refused & wanted.keys())
            if refused:
                raise RequestError(
                    Response.NO_PERMISSION,
                    f"{', '.join(refused)} cannot be changed in a running broker: edit its settings file and restart",
                )
            at_restart = self._at_restart | {key: wanted.pop(key) for key in AT_RESTART & wanted.keys()}
            self._check_restart(at_restart)
            try:
                config, store_options, unknown = _read(self.config, self.store_options, wanted)
            except SettingError as error:
                raise RequestError(Response.SYSTEM_ERROR, f"nothing was changed: {error}") from None
            cause = settings_table.without_effect(settings_table.BROKER, self._others, unknown)
            if cause:
                raise RequestError(Response.SYSTEM_ERROR, f"nothing was changed: {cause}")
            changed = {key: text for key, text in wanted.items() if key not in unknown}
            await self._save(LiveSettings(config, store_options, self._others), changed | at_restart)
            self._at_restart = at_restart
            self.config, self.store_options = config, store_options
            self.changes += 1
            for key in wanted.keys() - unknown.keys():
                logger.info("changed setting key=%s value=%r", key, wanted[key])

    def _check_restart(self, at_restart: dict[str, str]) -> None:
        """Whether the broker would start with these."""
        if not at_restart:
            return
        keys = ", ".join(sorted(at_restart))
        if not self.config.config_path:
            raise RequestError(
                Response.NO_PERMISSION,
                f"{keys} hold from the next start on, and this broker has no settings file to keep them in: start it "
                "with -c, or with other --set",
            )
        try:
            config, store_options, _ = _read(self.config, self.store_options, at_restart)
            _settle_id(config, store_options)
        except SettingError as error:
            raise RequestError(Response.SYSTEM_ERROR, f"nothing was changed: {error}") from None
        logger.warning("role from the next start on %s", at_restart)

    async def _save(self, after: "LiveSettings", changed: dict[str, str]) -> None:
        """Without a settings file a change lasts until the broker stops, as RocketMQ's does."""
        if not after.config.config_path:
            return
        path = Path(after.config.config_path)
        private = after.texts(secrets=True) != after.texts()
        edit = partial(java_properties.edited, changes=changed)
        try:
            await asyncio.to_thread(settings_file.change, path, edit, datetime.now(UTC), private=private)
        except OSError as error:
            raise RequestError(
                Response.SYSTEM_ERROR, f"nothing was changed: cannot save {path.name}: {error.strerror or error}"
            ) from error


def load(texts: dict[str, str]) -> LiveSettings:
    """From the texts of a settings file and a command line; SettingError names what is wrong."""
    config, store_options, unknown = _read(BrokerConfig(), StoreOptions(), with_file(_renamed(texts)))
    settings_table.judge(settings_table.BROKER, unknown)
    _refuse_modes(config, store_options)
    return LiveSettings(_settle_id(config, store_options), store_options, read_inert(WITHOUT_EFFECT, unknown))


def _read(
    config: BrokerConfig, store_options: StoreOptions, texts: dict[str, str]
) -> tuple[BrokerConfig, StoreOptions, dict[str, str]]:
    config, rest = read(config, texts)
    store_options, unknown = read(dataclasses.replace(store_options), rest)
    return config, store_options, unknown


def _renamed(texts: dict[str, str]) -> dict[str, str]:
    """Keys of older releases by their names of today; one that is there by both names keeps the value of today's."""
    old = texts.keys() & OLD_KEYS.keys()
    for key in sorted(old):
        logger.warning("renamed setting key=%s: it is %s now", key, OLD_KEYS[key])
    return {OLD_KEYS[key]: texts[key] for key in old} | {key: texts[key] for key in texts.keys() - old}


def _refuse_modes(config: BrokerConfig, store_options: StoreOptions) -> None:
    """Settings that ask for something that is not built: better not to start than to run without it."""
    for key, asked, instead in (
        ("enableDLegerCommitLog", config.dledger_enabled, "use a master and a replica"),
        ("duplicationEnable", store_options.duplication_enabled, "use a master and a replica"),
    ):
        if asked:
            raise SettingError(f"{key} is not supported by this version: {instead}", key)
    if store_options.controller_mode != bool(config.controller_store):
        raise SettingError(
            "enableControllerMode=true and controllerStore=etcd://host:2379,... go together: RocketMQ's own controller "
            "(controllerAddr) is not supported",
            "enableControllerMode" if store_options.controller_mode else "controllerStore",
        )
    for key, asked in (
        ("allAckInSyncStateSet", store_options.all_in_sync_replicas),
        ("enableAutoInSyncReplicas", store_options.in_sync_replicas_auto),
    ):
        if store_options.controller_mode and asked:
            raise SettingError(f"{key} is not supported with enableControllerMode: set inSyncReplicas instead", key)
    if store_options.controller_mode and config.acting_master_enabled:
        raise SettingError(
            "enableControllerMode elects a master, enableSlaveActingMaster does not: set one of them",
            "enableSlaveActingMaster",
        )


def _settle_id(config: BrokerConfig, store_options: StoreOptions) -> BrokerConfig:
    """0 is the master's, and the master has no other. In a set that elects its master the id comes with the role."""
    if store_options.controller_mode:
        return config
    if store_options.is_slave and config.broker_id == MASTER_ID:
        raise SettingError(
            "brokerRole=SLAVE needs a brokerId above 0, which no other broker of its name has", "brokerRole"
        )
    if store_options.is_slave or config.broker_id == MASTER_ID:
        return config
    logger.warning("ignored setting key=brokerId value=%d: a master has the id 0", config.broker_id)
    return dataclasses.replace(config, broker_id=MASTER_ID)
