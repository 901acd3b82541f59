"""What every request of a client carries besides its own fields: the namespace mark and the signature.

A signature is HMAC-SHA1, in Base64, over the values of all ext fields in the order of their names, without names and
separators, and the body. It covers whatever other hooks added, so the signer comes last.
"""

import base64
import hashlib
import hmac
from typing import Final

from cometmq.wire.command import Command

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE: Final = "Signature"


class Signer:
    """A hook of net.Client."""

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self._access_key = access_key
        self._secret_key = secret_key.encode()
        self._security_token = security_token

    def before(self, peer: str, request: Command) -> None:
        ext = request.ext
        ext[ACCESS_KEY] = self._access_key
        if self._security_token is not None:
            ext[SECURITY_TOKEN] = self._security_token
        ext[SIGNATURE] = sign(ext, request.body, self._secret_key)

    def after(self, peer: str, request: Command, response: Command) -> None:
        return None


class NamespaceMark:
    """A namespace of the second kind: names stay, requests say where they belong. A hook of net.Client."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def before(self, peer: str, request: Command) -> None:
        request.ext["nsd"] = "true"
        request.ext["ns"] = self._namespace

    def after(self, peer: str, request: Command, response: Command) -> None:
        return None


def sign(ext: dict[str, str], body: bytes, secret_key: bytes) -> str:
    # Java sorts by UTF-16 units; for the ASCII names of ext fields that is Python's order, too.
    values = "".join([ext[name] for name in sorted(ext) if name != SIGNATURE])
    digest = hmac.new(secret_key, values.encode() + body, hashlib.sha1).digest()
    return base64.b64encode(digest).decode("ascii")
