"""From settings to the access control of one server: what does not fit together refuses to start.

    initAuthenticationUser                 {"username":"...","password":"..."}     a first Super user
    innerClientAuthenticationCredentials   {"accessKey":"...","secretKey":"..."}   a Super user that servers sign as

Both are created if their name is unknown; a user that is there is never overwritten, so a changed password survives.
Their values may be `@FILE`, so that they stay out of process lists: the file is read, the setting stays as it is.
Each refusal is one ConfigError that names the setting and the cure and shows no secret. What works but leaves a door
open is a warning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from cometmq.auth.access import AccessRules
from cometmq.auth.signer import Signer
from cometmq.auth.sources import Block, is_in, parse_address, parse_block
from cometmq.auth.users import User, Users
from cometmq.config import ServerConfig
from cometmq.errors import ConfigError
from cometmq.secret_text import read_secret
from cometmq.wire.codes import Request

PROVIDERS: Final = {
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}
_STRATEGY: Final = re.compile(
    r"(org\.apache\.rocketmq\.auth\.[a-z.]*)?State(less|ful)(Authentication|Authorization)Strategy"
)
# Whoever may call one of these without a signature, or without a right, may everything.
NEVER_WHITELISTED: Final = frozenset((Request.UPDATE_BROKER_CONFIG, Request.UPDATE_NAMESRV_CONFIG, *range(3001, 3011)))
CODE_MAX: Final = 10**9


class InitUser(msgspec.Struct):
    username: str
    password: str

    def __repr__(self) -> str:
        return f"InitUser({self.username!r})"


class InnerCredentials(msgspec.Struct, rename="camel"):
    """What this server signs its requests to other servers with."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"InnerCredentials({self.access_key!r})"


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    """The part of the settings that only brokers have."""

    enabled: bool = False
    provider: str = ""
    metadata_provider: str = ""
    strategy: str = ""
    whitelist: str = ""


def read_rules(config: ServerConfig, authorization: AuthorizationSettings, cluster: str) -> AccessRules:
    if authorization.enabled and not config.authentication_enabled:
        raise ConfigError(
            "authorizationEnabled=true needs authenticationEnabled=true: without signatures a caller is whoever it says"
        )
    for key, value in (
        ("authenticationProvider", config.authentication_provider),
        ("authenticationMetadataProvider", config.authentication_metadata_provider),
        ("authorizationProvider", authorization.provider),
        ("authorizationMetadataProvider", authorization.metadata_provider),
    ):
        if value not in ("", PROVIDERS[key]):
            raise ConfigError(f"{key}={value[:120]} is not supported: leave it empty, or {PROVIDERS[key]}")
    for key, value in (
        ("authenticationStrategy", config.authentication_strategy),
        ("authorizationStrategy", authorization.strategy),
    ):
        if value and not _STRATEGY.fullmatch(value):
            raise ConfigError(f"{key}={value[:120]} is not supported: leave it empty; every request is checked")
    return AccessRules(
        cluster,
        config.authentication_enabled,
        authorization.enabled,
        read_whitelist("authenticationWhitelist", config.authentication_whitelist),
        read_whitelist("authorizationWhitelist", authorization.whitelist),
    )


def read_whitelist(key: str, text: str) -> frozenset[int]:
    codes = set()
    for word in (each.strip() for each in text.split(",")):
        if not word:
            continue
        if not (word.isascii() and word.isdigit() and int(word) <= CODE_MAX):
            raise ConfigError(f"{key}: {word[:40]!r} is not a request code")
        codes.add(int(word))
    closed = sorted(codes & NEVER_WHITELISTED)
    if closed:
        raise ConfigError(
            f"{key}: request codes {', '.join(map(str, closed))} change users or settings and stay closed: remove them"
        )
    return frozenset(codes)


def read_init_user(config: ServerConfig) -> InitUser | None:
    if not config.init_authentication_user:
        return None
    try:
        text = read_secret("initAuthenticationUser", config.init_authentication_user, whole=True)
        user = msgspec.json.decode(text, type=InitUser)
    except msgspec.DecodeError:
        user = InitUser("", "")
    if not user.username.strip() or not user.password.strip():
        raise ConfigError(
            'initAuthenticationUser is not of the form {"username":"...","password":"..."} (its value is not shown)'
        )
    return user


def read_inner_credentials(config: ServerConfig) -> InnerCredentials | None:
    if not config.inner_credentials:
        return None
    try:
        text = read_secret("innerClientAuthenticationCredentials", config.inner_credentials, whole=True)
        credentials = msgspec.json.decode(text, type=InnerCredentials)
    except msgspec.DecodeError:
        credentials = InnerCredentials("", "")
    if not credentials.access_key.strip() or not credentials.secret_key.strip():
        raise ConfigError(
            'innerClientAuthenticationCredentials is not of the form {"accessKey":"...","secretKey":"..."} '
            "(its value is not shown)"
        )
    return credentials


def read_signer(config: ServerConfig) -> Signer | None:
    credentials = read_inner_credentials(config)
    if credentials is None:
        return None
    return Signer(credentials.access_key, credentials.secret_key, credentials.security_token)


def add_configured_users(config: ServerConfig, users: Users) -> list[str]:
    """Creates the users of the settings; gives what an operator should know."""
    warnings = []
    init, inner = read_init_user(config), read_inner_credentials(config)
    for key, wanted in (
        ("initAuthenticationUser", None if init is None else User(init.username, init.password, is_super=True)),
        (
            "innerClientAuthenticationCredentials",
            None if inner is None else User(inner.access_key, inner.secret_key, is_super=True),
        ),
    ):
        if wanted is None:
            continue
        known = users.table.get(wanted.name)
        if known is None:
            users.put(wanted)
        elif known.password != wanted.password:
            warnings.append(f"{key}: the user {wanted.name} is there with another password, which stays valid")
    if init is not None and inner is not None and init.username == inner.access_key:
        warnings.append(
            f"initAuthenticationUser and innerClientAuthenticationCredentials are both {init.username}: give servers a "
            "user of their own, so that a person's password can change without them"
        )
    return warnings


def check_somebody_can_log_in(rules: AccessRules, users: Users) -> None:
    if rules.authentication and not users.table:
        raise ConfigError(
            "authenticationEnabled=true and there is no user: set initAuthenticationUser to "
            '{"username":"...","password":"..."}'
        )


def open_doors(config: ServerConfig, rules: AccessRules) -> list[str]:
    """What access control that is on does not cover, with the setting that would."""
    if not rules.authentication:
        return []
    found = []
    if config.tls_mode != "enforcing":
        found.append(
            "signatures do not hide messages and can be sent again by anyone who sees them: set "
            "tls.server.mode=enforcing"
        )
    for key, codes in (
        ("authenticationWhitelist", rules.unauthenticated_codes),
        ("authorizationWhitelist", rules.unauthorized_codes),
    ):
        found.extend(f"{key}: request code {code} is open" for code in sorted(codes))
    return found


def read_blocks(key: str, text: str) -> tuple[Block, ...]:
    """Addresses and CIDR blocks, with commas."""
    blocks = []
    for word in (each.strip() for each in text.split(",")):
        if not word:
            continue
        block = parse_block(word)
        if block is None:
            raise ConfigError(f"{key}: {word[:64]!r} is neither an IP address nor a CIDR block")
        blocks.append(block)
    return tuple(blocks)


def contains(blocks: tuple[Block, ...], source: str) -> bool:
    address = parse_address(source)
    return address is not None and any(is_in(block, address) for block in blocks)
