"""Who may copy the log from a master, and whether over TLS.

    mode          first byte 0x16, a TLS hello       any other, as RocketMQ's replica sends
    disabled      closed                             plain
    permissive    TLS if there is a certificate      plain
    enforcing     TLS                                closed

A replica that may speak TLS begins with it. At a master that does not, it goes on without, unless the mode is enforcing
or it was the master's certificate that was not good.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

DISABLED: Final = "disabled"
PERMISSIVE: Final = "permissive"
ENFORCING: Final = "enforcing"

TLS_HELLO: Final = b"\x16"


def _everybody(_: str) -> bool:
    return True


def _no_context() -> ssl.SSLContext | None:
    return None


@dataclass(frozen=True, slots=True)
class Doors:
    """`serving` gives the context of the moment for a master; `dialling` and `server_name` are a replica's."""

    is_allowed: Callable[[str], bool] = _everybody
    mode: str = DISABLED
    serving: Callable[[], ssl.SSLContext | None] = _no_context
    dialling: ssl.SSLContext | None = None
    server_name: str | None = None

    @property
    def looks_first(self) -> bool:
        """Whether a connection's first byte must be seen before it is known what it speaks."""
        return self.mode != DISABLED and self.serving() is not None

    def admit(self, first: bytes) -> tuple[bool, ssl.SSLContext | None]:
        """Whether who begins with this byte is served, and the context for TLS."""
        if first != TLS_HELLO:
            return bool(first) and self.mode != ENFORCING, None
        context = self.serving()
        return context is not None, context

    def attempts(self) -> Iterator[ssl.SSLContext | None]:
        """How a replica tries to reach its master, one after the other."""
        if self.mode != DISABLED and self.dialling is not None:
            yield self.dialling
        if self.mode != ENFORCING:
            yield None


def is_deaf(error: OSError) -> bool:
    """Whether the failure of a TLS handshake may mean that the other side speaks none."""
    if isinstance(error, ssl.SSLCertVerificationError | ConnectionRefusedError):
        return False
    return isinstance(error, ssl.SSLError | ConnectionError)
