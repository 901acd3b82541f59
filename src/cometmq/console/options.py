"""What the console may be told, and what it refuses: above all an open door.

--auth none            whoever reaches the port is an administrator: 127.0.0.1 only
--auth token           one link with a secret, printed at the start
--auth users:FILE      names, roles and passwords (cometmq console user add)
--auth header:NAME     a proxy in front says who it is; believed only from --trust NETWORK
"""

import ipaddress
import re
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final

from cometmq.errors import ConfigError

PORT: Final = 8099
MASKS_MAX: Final = 100
HEADER: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class Role(IntEnum):
    """Each may do what those before it may."""

    NOBODY = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


ROLES: Final = {"viewer": Role.VIEWER, "operator": Role.OPERATOR, "admin": Role.ADMIN}


@dataclass(frozen=True, slots=True)
class Options:
    namesrv: str
    host: str = "127.0.0.1"
    port: int = PORT
    auth: str = "none"
    trust: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    read_only: bool = False
    bodies: bool = True
    export: bool = True
    masks: tuple[str, ...] = ()
    schemas: Path | None = None
    history: Path | None = None
    audit: Path | None = None
    ledger: Path | None = None
    lake: Path | None = None
    pipelines: Path | None = None
    poll_s: float = 2.0
    timeout_s: float = 3.0
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    tls: object = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        kind, _, value = self.auth.partition(":")
        if kind not in ("none", "token", "users", "header"):
            raise ConfigError(f"--auth is {self.auth!r}: use none, token, users:FILE or header:NAME")
        if kind == "none" and not is_loopback(self.host):
            raise ConfigError(
                f"--host is {self.host}: on any address but 127.0.0.1 everybody could change the cluster. "
                "Add --auth token, --auth users:FILE or --auth header:NAME"
            )
        if kind == "users" and not Path(value).is_file():
            raise ConfigError(f"--auth {self.auth}: there is no file {value!r}; cometmq console user add makes it")
        if kind == "header" and not HEADER.fullmatch(value):
            raise ConfigError(f"--auth {self.auth}: {value!r} is not the name of a header; X-Forwarded-User is")
        if kind == "header" and not self.trust:
            raise ConfigError("--auth header:NAME needs --trust NETWORK: anybody else could send that header, too")
        if self.trust and kind != "header":
            raise ConfigError(f"--trust belongs to --auth header:NAME, but --auth is {self.auth}")
        for network in self.trust:
            network_of(network)
        if len(self.masks) > MASKS_MAX:
            raise ConfigError(f"--mask names {len(self.masks)} fields, at most {MASKS_MAX} are taken")
        for mask in self.masks:
            if not re.fullmatch(r"(json|prop)\..{1,200}|key|body", mask):
                raise ConfigError(f"--mask {mask!r}: use json.PATH, prop.NAME, key or body")
        if not 0.1 <= self.poll_s <= 60:
            raise ConfigError(f"poll_s is {self.poll_s}, allowed are 0.1 to 60 seconds")

    @property
    def auth_kind(self) -> str:
        return self.auth.partition(":")[0]

    @property
    def auth_value(self) -> str:
        return self.auth.partition(":")[2]


def is_loopback(host: str) -> bool:
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def network_of(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(f"--trust {text!r} is not a network like 10.0.0.0/8: {error}") from None
