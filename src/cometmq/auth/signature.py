"""The signature of a request: HMAC-SHA1 over the values of its ext fields and its body.

    content      values of all ext fields in the order of their names, without names and separators, then the body
    left out     Signature; _UNIQUE_KEY_QUERY, if the request comes from a client of 4.9.3 or older
    Signature    Base64 of HMAC-SHA1(secret, content), 28 characters

What the signature does not cover: the request code, field names and boundaries, the time. TLS is the cure for all of
these (docs/security.md). Names are sorted by UTF-16 code units, as Java sorts them.

5.x clients that speak gRPC sign the text of one header instead (`read_authorization`).
"""

import base64
import hmac
from typing import Final, NamedTuple

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE: Final = "Signature"
# What a client adds to a request to sign it.
SIGNED_WITH: Final = frozenset((ACCESS_KEY, SECURITY_TOKEN, SIGNATURE))
SIGNATURE_CHARS: Final = 28
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
# 4.9.3: the last version whose clients leave UNIQUE_KEY_QUERY out of what they sign.
UNSIGNED_QUERY_VERSION_MAX: Final = 399


def content(ext: dict[str, str], body: bytes, version: int) -> bytes:
    """The bytes that a request's signature covers."""
    names = sorted(ext)
    if not "".join(names).isascii():
        names.sort(key=_utf16)
    if SIGNATURE in ext:
        names.remove(SIGNATURE)
    if version <= UNSIGNED_QUERY_VERSION_MAX and UNIQUE_KEY_QUERY in ext:
        names.remove(UNIQUE_KEY_QUERY)
    return "".join([ext[name] for name in names]).encode(errors="surrogatepass") + body


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", errors="surrogatepass")


def sign(secret: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.digest(secret, signed, "sha1")).decode("ascii")


def fits(secret: bytes, signed: bytes, signature: str) -> bool:
    """Whether `signature` is that of `signed`; takes the same time for every signature of the right length."""
    if len(signature) != SIGNATURE_CHARS or not signature.isascii():
        return False
    return hmac.compare_digest(sign(secret, signed), signature)


class Authorization(NamedTuple):
    """What a gRPC request says about its sender. `signature` is in the form that `fits` takes."""

    username: str
    signature: str


def read_authorization(header: str) -> Authorization | None:
    """`MQv2-HMAC-SHA1 Credential=key, SignedHeaders=x-mq-date-time, Signature=hex`; None if it is not of this form.

    The signature covers the text of `x-mq-date-time`.
    """
    _, _, rest = header.partition(" ")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    username = parts.get("Credential", "").partition("/")[0]
    try:
        digest = bytes.fromhex(parts.get("Signature", ""))
    except ValueError:
        return None
    if not username or not digest:
        return None
    return Authorization(username, base64.b64encode(digest).decode("ascii"))
