"""What every request of a client carries besides its own fields: the namespace mark and the signature.

The signature (auth/signature.py) covers whatever other hooks added, so the signer comes last.
"""

from cometmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, content, sign
from cometmq.wire.command import Command


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
        ext[SIGNATURE] = sign(self._secret_key, content(ext, request.body, request.version))

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
