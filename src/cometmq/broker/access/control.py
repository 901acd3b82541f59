"""The access control of one broker: users and policies with their files, the guard of its ports, its own credentials.

    config/users.json    auth/users.py    readable by their owner only, written before a change is answered
    config/acls.json     auth/acls.py

    load     what the files have; then the users of the settings and of RocketMQ 4's files, if they are not there
    open     with the store locked: begin to write the files
    saved    changes so far are on disk

A deletion takes a user's policies first and a creation waits for both files, so that no crash leaves old policies to
a new user of the same name; policies without a user are dropped when the files are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cometmq.auth import startup
from cometmq.auth.access import Access
from cometmq.auth.acls import Acls
from cometmq.auth.audit import Audit
from cometmq.auth.resources import Need
from cometmq.auth.signer import Signer
from cometmq.auth.users import User, Users
from cometmq.broker.access.migration import migrate
from cometmq.broker.config import BrokerConfig
from cometmq.broker.rights import Rights
from cometmq.broker.tables import saving
from cometmq.clock import Clock
from cometmq.errors import ConfigError, StoreError
from cometmq.net.connection import Connection
from cometmq.state_file import PRIVATE_FILES, close_to_others
from cometmq.wire.command import Command

logger = logging.getLogger(__name__)

USERS_FILE: Final = "users.json"
ACLS_FILE: Final = "acls.json"
# In the directory that RocketMQ keeps users in, as in every one of its database.
ROCKSDB_MARK: Final = "CURRENT"
SUPERS_SHOWN: Final = 20


class AccessControl:
    """Raises ConfigError for settings that do not fit together."""

    def __init__(self, config: BrokerConfig, directory: Path, clock: Clock, *, is_slave: bool = False) -> None:
        self.users: Users = Users()
        self.acls: Acls = Acls()
        self.rules = startup.read_rules(config, _authorization(config), config.cluster_name)
        self.signer: Signer | None = startup.read_signer(config)
        self.audit: Audit = Audit(clock, config.broker_name, config.audit_log_path)
        self.checks: Access = Access(self.rules, self.users, self.acls, clock, self.audit)
        self._config = config
        self._directory = directory
        self._is_slave = is_slave
        self._clock = clock
        self._savers: list[saving.Saver] = []
        self._proxies = startup.read_blocks("proxyProtocolTrustedAddresses", config.proxy_trusted_addresses)
        _refuse_rocketmq_4(config)
        startup.read_init_user(config)

    @property
    def guard(self) -> Access | None:
        """Who is asked before each request; None where anybody may do anything."""
        return self.checks if self.rules.authentication else None

    @property
    def rights(self) -> Rights:
        return Rights(self.rules.authorization, self.require)

    def trusts_proxy(self, address: str) -> bool:
        """Whether a PROXY header from there says where a caller comes from."""
        return startup.contains(self._proxies, address)

    def load(self) -> None:
        """Raises StoreError for a file without a good copy, ConfigError if nobody could log in."""
        self.audit.open()
        has_users = self._load(USERS_FILE, self.users)
        self._load(ACLS_FILE, self.acls)
        for name in self.acls.table.keys() - self.users.table.keys():
            logger.warning("dropped policies without user=%s", name)
            self.acls.forget(name)
        if not has_users and (self._directory / "users" / ROCKSDB_MARK).exists():
            logger.warning(
                "users of RocketMQ in %s are not read: while its broker runs, bring them over with mqadmin copyUser "
                "and copyAcl",
                self._directory / "users",
            )
        warnings = startup.add_configured_users(self._config, self.users)
        warnings += migrate(self._config, self.users, self.acls)
        startup.check_somebody_can_log_in(self.rules, self.users)
        for warning in [*warnings, *startup.open_doors(self._config, self.rules), *self._gaps()]:
            logger.warning("access control: %s", warning)
        if self.rules.authentication:
            supers = [user.name for user in self.users.matching() if user.is_super]
            logger.info("access control users=%d super=%s", len(self.users.table), ",".join(supers[:SUPERS_SHOWN]))

    def _gaps(self) -> Iterable[str]:
        if not self.rules.authentication:
            return
        if not self.rules.authorization:
            yield "every user may do everything: set authorizationEnabled=true"
        if self.signer is None and self._is_slave:
            yield "this replica signs nothing, so its master refuses it: set innerClientAuthenticationCredentials"

    def open(self) -> None:
        for saver in self._savers:
            saver.poke()

    async def saved(self) -> None:
        """Changes so far are on disk. StoreError if they cannot be saved."""
        for saver in reversed(self._savers):
            await saver.settle()

    async def close(self) -> None:
        """Save what is not saved yet, if that is possible."""
        try:
            await self.saved()
        except StoreError as error:
            logger.error("fail save users and policies error=%s", error)

    def caller(self, request: Command) -> User | None:
        """Who sent a request that was let through; None if nobody was asked."""
        return self.checks.caller(request)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def note(self, connection: Connection, request: Command, action: str, name: str, what: str = "") -> None:
        """Write a change of users or policies to the audit log."""
        caller = self.caller(request)
        by = "-" if caller is None else caller.name
        tls = connection.intake.tls
        certificate = f" certificate={tls.subject}" if tls is not None and tls.subject else ""
        self.audit.changed(action, name, by, connection.source, what + certificate)

    def require(self, connection: Connection, request: Command, needs: Iterable[Need]) -> None:
        """What a handler found out to be needed only while it served the request. Raises RequestError."""
        self.checks.require(request, connection.source, needs)

    def _load(self, name: str, table: Users | Acls) -> bool:
        path = self._directory / name
        close_to_others(path)
        is_there = saving.load(table, path, PRIVATE_FILES)
        is_missing = self.rules.authentication and not is_there
        self._savers.append(saving.Saver(table, path, self._clock, is_new=is_missing, files=PRIVATE_FILES))
        return is_there


def _authorization(config: BrokerConfig) -> startup.AuthorizationSettings:
    return startup.AuthorizationSettings(
        config.authorization_enabled,
        config.authorization_provider,
        config.authorization_metadata_provider,
        config.authorization_strategy,
        config.authorization_whitelist,
    )


def _refuse_rocketmq_4(config: BrokerConfig) -> None:
    """A broker that was closed under RocketMQ 4 must not be open here."""
    if config.acl_enabled and not config.authentication_enabled:
        raise ConfigError(
            "aclEnable=true is of RocketMQ 4 and protects nothing here: set authenticationEnabled=true and "
            "authorizationEnabled=true, and migrateAuthFromV1Enabled=true to take over plain_acl.yml"
        )
