"""Signs what this process sends. The signature covers whatever other hooks added, so the signer comes last."""

from __future__ import annotations

from cometmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, key_of, signed_values
from cometmq.wire.command import Command


class Signer:
    """A hook of net.Client."""

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self._access_key = access_key
        self._key = key_of(secret_key)
        self._security_token = security_token

    @property
    def user(self) -> str:
        return self._access_key

    def renew(self, secret_key: str) -> None:
        """Sign with another secret from now on."""
        self._key = key_of(secret_key)

    def before(self, peer: str, request: Command) -> None:
        ext = request.ext
        ext[ACCESS_KEY] = self._access_key
        if self._security_token is not None:
            ext[SECURITY_TOKEN] = self._security_token
        ext[SIGNATURE] = self._key.sign(signed_values(ext, request.version), request.body)

    def after(self, peer: str, request: Command, response: Command) -> None:
        return None
