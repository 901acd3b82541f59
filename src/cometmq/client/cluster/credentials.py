"""With what a client signs its requests, and how it encrypts them.

    Client(access_key=..., secret_key=...)  ->  COMETMQ_ACCESS_KEY and COMETMQ_SECRET_KEY  ->  nothing is signed
    Client(tls=...)                         ->  COMETMQ_TLS and its kin                    ->  plain

The pair comes from one place, never half from each; a security token (COMETMQ_SECURITY_TOKEN) may go with it. In the
environment a value of the form `@FILE` is the first line of that file. An empty access key stands for no key.

TLS is on with COMETMQ_TLS=true or any of COMETMQ_TLS_CA, _NAME, _CERT and _KEY; COMETMQ_TLS_INSECURE=true verifies
nothing. The command line reads the same names.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cometmq.errors import ConfigError
from cometmq.net.tls import ClientTls
from cometmq.secret_text import read_secret

ACCESS_KEY: Final = "COMETMQ_ACCESS_KEY"
SECRET_KEY: Final = "COMETMQ_SECRET_KEY"  # noqa: S105 - the name of a variable
SECURITY_TOKEN: Final = "COMETMQ_SECURITY_TOKEN"  # noqa: S105 - the name of a variable
TLS: Final = "COMETMQ_TLS"


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def configured(
    access_key: str | None,
    secret_key: str | None,
    security_token: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Credentials | None:
    """From the arguments of a client, or the environment if they are None. ConfigError for half a pair."""
    if access_key is not None or secret_key is not None:
        _check_pair("access_key", access_key, "secret_key", secret_key)
        return Credentials(access_key, secret_key, security_token) if access_key and secret_key else None
    environment = os.environ if environment is None else environment
    found = {name: environment.get(name, "").strip() for name in (ACCESS_KEY, SECRET_KEY, SECURITY_TOKEN)}
    _check_pair(ACCESS_KEY, found[ACCESS_KEY], SECRET_KEY, found[SECRET_KEY])
    if not found[ACCESS_KEY]:
        if security_token is not None:
            raise ConfigError("security_token goes with access_key and secret_key: give them, too")
        return None
    read = {name: read_secret(name, text) for name, text in found.items()}
    return Credentials(read[ACCESS_KEY], read[SECRET_KEY], security_token or read[SECURITY_TOKEN] or None)


def configured_tls(tls: ClientTls | None, environment: Mapping[str, str] | None = None) -> ClientTls | None:
    """From the argument of a client, or the environment if it is None."""
    if tls is not None:
        return tls
    environment = os.environ if environment is None else environment
    given = {name: environment.get(f"{TLS}_{name}", "").strip() or None for name in ("CA", "NAME", "CERT", "KEY")}
    is_insecure = _is_true(environment, f"{TLS}_INSECURE")
    if not (_is_true(environment, TLS) or is_insecure or any(given.values())):
        return None
    _check_pair(f"{TLS}_CERT", given["CERT"], f"{TLS}_KEY", given["KEY"])
    return ClientTls(
        verify=not is_insecure,
        trust_path=given["CA"],
        certificate_path=given["CERT"],
        key_path=given["KEY"],
        server_name=given["NAME"],
    )


def _is_true(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").strip().lower()
    if text not in ("", "true", "false"):
        raise ConfigError(f"{name} is {text!r}: it is true or false")
    return text == "true"


def _check_pair(key_name: str, key: str | None, secret_name: str, secret: str | None) -> None:
    if bool(key) == bool(secret):
        return
    given, missing = (key_name, secret_name) if key else (secret_name, key_name)
    raise ConfigError(f"{given} is given and {missing} is not: they belong together, give both or neither")
