"""With what a client signs its requests.

    Client(access_key=..., secret_key=...)  ->  COMETMQ_ACCESS_KEY and COMETMQ_SECRET_KEY  ->  nothing is signed

The pair comes from one place, never half from each; a security token (COMETMQ_SECURITY_TOKEN) may go with it. In the
environment a value of the form `@FILE` is the first line of that file. An empty access key stands for no key.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cometmq.errors import ConfigError
from cometmq.secret_text import read_secret

ACCESS_KEY: Final = "COMETMQ_ACCESS_KEY"
SECRET_KEY: Final = "COMETMQ_SECRET_KEY"  # noqa: S105 - the name of a variable
SECURITY_TOKEN: Final = "COMETMQ_SECURITY_TOKEN"  # noqa: S105 - the name of a variable


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


def _check_pair(key_name: str, key: str | None, secret_name: str, secret: str | None) -> None:
    if bool(key) == bool(secret):
        return
    given, missing = (key_name, secret_name) if key else (secret_name, key_name)
    raise ConfigError(f"{given} is given and {missing} is not: they belong together, give both or neither")
