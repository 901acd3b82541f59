"""The signature of a request: HMAC-SHA1 over the values of its ext fields and its body.

    content      values of all ext fields in the order of their names, without names and separators, then the body
    left out     Signature; _UNIQUE_KEY_QUERY, if the request comes from a client of 4.9.3 or older
    Signature    Base64 of HMAC-SHA1(secret, content), 28 characters

What the signature does not cover: the request code, field names and boundaries, the time. TLS is the cure for all of
these (docs/security.md). Names are sorted by UTF-16 code units, as Java sorts them.

5.x clients that speak gRPC sign the text of one header instead (`read_authorization`).
"""

import base64
import hashlib
import hmac
from functools import lru_cache
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

# Orders of field names that are kept: a client sends the same fields with every request of a kind.
ORDERS_MAX: Final = 256
ORDER_NAMES_MAX: Final = 64
ORDER_CHARS_MAX: Final = 1_024
KEYS_MAX: Final = 1_024

_SHA1_BLOCK_BYTES: Final = 64
_INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))


class SigningKey:
    """A secret, with the two states of HMAC-SHA1 that depend on nothing else: 1.2 us a signature of 1.2 KB, not 2.2."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: bytes) -> None:
        block = secret if len(secret) <= _SHA1_BLOCK_BYTES else _sha1(secret).digest()
        block = block.ljust(_SHA1_BLOCK_BYTES, b"\0")
        self._inner: hashlib._Hash = _sha1(block.translate(_INNER_PAD))
        self._outer: hashlib._Hash = _sha1(block.translate(_OUTER_PAD))

    def digest(self, values: bytes, body: bytes = b"") -> bytes:
        inner = self._inner.copy()
        inner.update(values)
        if body:
            inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def sign(self, values: bytes, body: bytes = b"") -> str:
        return base64.b64encode(self.digest(values, body)).decode("ascii")

    def fits(self, signature: str, values: bytes, body: bytes = b"") -> bool:
        """Whether `signature` is that of the content; takes the same time for every signature of the right length."""
        if len(signature) != SIGNATURE_CHARS or not signature.isascii():
            return False
        return hmac.compare_digest(self.sign(values, body), signature)


@lru_cache(maxsize=KEYS_MAX)
def key_of(secret: str) -> SigningKey:
    return SigningKey(secret.encode())


def _sha1(content: bytes) -> "hashlib._Hash":
    return hashlib.sha1(content)  # noqa: S324 - the algorithm of RocketMQ's signature


_orders: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}


def signed_values(ext: dict[str, str], version: int) -> bytes:
    """The bytes before the body that a request's signature covers."""
    names = tuple(ext)
    order = _orders.get(names)
    if order is None:
        order = _order(names)
    if version <= UNSIGNED_QUERY_VERSION_MAX and UNIQUE_KEY_QUERY in ext:
        order = tuple([name for name in order if name != UNIQUE_KEY_QUERY])
    return "".join([ext[name] for name in order]).encode("utf-8", "surrogatepass")


def _order(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in the order of signing. Kept only if they are few and short: they come from the peer."""
    joined = "".join(names)
    order = tuple([name for name in sorted(names, key=None if joined.isascii() else _utf16) if name != SIGNATURE])
    if len(names) <= ORDER_NAMES_MAX and len(joined) <= ORDER_CHARS_MAX:
        if len(_orders) >= ORDERS_MAX:
            _orders.clear()
        _orders[names] = order
    return order


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", errors="surrogatepass")


class Authorization(NamedTuple):
    """What a gRPC request says about its sender. `signature` is in the form that `SigningKey.fits` takes."""

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
