"""Signs what this process sends. The signature covers whatever other hooks added, so the signer comes last."""

from __future__ import annotations

from cometmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, content, sign
from cometmq.wire.command import Command


class Signer:
    """A hook of net.Client."""

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self._access_key = access_key
        self._secret_key = secret_key.encode()
        self._security_token = security_token

    @property
    def user(self) -> str:
        return self._access_key

    def renew(self, secret_key: str) -> None:
        """Sign with another secret from now on."""
        self._secret_key = secret_key.encode()

    def before(self, peer: str, request: Command) -> None:
        ext = request.ext
        ext[ACCESS_KEY] = self._access_key
        if self._security_token is not None:
            ext[SECURITY_TOKEN] = self._security_token
        ext[SIGNATURE] = sign(self._secret_key, content(ext, request.body, request.version))

    def after(self, peer: str, request: Command, response: Command) -> None:
        return None
