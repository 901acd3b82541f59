"""Access control of a name server, for fleets whose clients and brokers sign: `authenticationEnabled`.

    changes    registrations, key values, write permissions, settings    a Super user: what servers sign as
    all else   routes, clusters, lists, settings                         any user

The users are those of users.json in authConfigPath (auth/users.py has its format), which an operator writes, and those
of initAuthenticationUser and innerClientAuthenticationCredentials. RocketMQ's name server checks nothing, and what
does not sign cannot use one that does; `authenticationWhitelist` opens single request codes to all.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from cometmq import state_file
from cometmq.auth import startup
from cometmq.auth.access import Access, AccessRules
from cometmq.auth.acls import Acls
from cometmq.auth.audit import Audit
from cometmq.auth.startup import AuthorizationSettings
from cometmq.auth.users import Users
from cometmq.clock import Clock
from cometmq.config import NameServerConfig
from cometmq.errors import WireError
from cometmq.nameserver.handlers import HANDLERS
from cometmq.wire.codes import Request

log = logging.getLogger(__name__)

USERS_FILE: Final = "users.json"
CHANGES: Final = frozenset(
    (
        Request.PUT_KV_CONFIG, Request.DELETE_KV_CONFIG, Request.REGISTER_BROKER, Request.UNREGISTER_BROKER,
        Request.BROKER_HEARTBEAT, Request.WIPE_WRITE_PERM_OF_BROKER, Request.ADD_WRITE_PERM_OF_BROKER,
        Request.DELETE_TOPIC_IN_NAMESRV, Request.REGISTER_TOPIC_IN_NAMESRV, Request.UPDATE_NAMESRV_CONFIG,
    )
)  # fmt: skip
OF_CONTROLLER: Final = frozenset(
    (
        Request.CONTROLLER_GET_METADATA_INFO, Request.CONTROLLER_GET_SYNC_STATE_DATA,
        Request.CONTROLLER_GET_REPLICA_INFO, Request.GET_CONTROLLER_CONFIG,
    )
)  # fmt: skip
READS: Final = (frozenset(HANDLERS.keys() | {Request.GET_ROUTEINFO_BY_TOPIC}) | OF_CONTROLLER) - CHANGES


def make_guard(config: NameServerConfig, clock: Clock, audit: Audit) -> Access | None:
    """None where nobody is asked. Raises ConfigError for settings that do not fit together."""
    rules = startup.read_rules(config, AuthorizationSettings(), "name server")
    if not rules.authentication:
        return None
    users = Users()
    path = Path(config.auth_config_path or config.kv_file.parent) / USERS_FILE
    _load(users, path)
    warnings = startup.add_configured_users(config, users)
    startup.check_somebody_can_log_in(rules, users)
    for warning in [*warnings, *startup.open_doors(config, rules)]:
        log.warning("access control: %s", warning)
    only_changes = AccessRules(rules.cluster, True, True, rules.unauthenticated_codes, READS)
    return Access(only_changes, users, Acls(), clock, audit)


def _load(users: Users, path: Path) -> None:
    def parse(content: bytes) -> bool:
        try:
            users.restore(content)
        except WireError as error:
            raise ValueError(str(error)) from error
        return True

    state_file.close_to_others(path)
    if state_file.load(path, parse) is None:
        log.info("no users of its own file=%s", path)
