"""Who a client is: its address, its id, and the ids that it gives its messages.

    client id    10.0.0.7@4711#81273645510923@unit@STREAM        address @ process # nanoseconds [@ unit] [@ STREAM]

The name DEFAULT is replaced by process and nanoseconds, so that two clients never count as one member of a group.
Broadcasting consumers keep it: the file with their offsets is found again after a restart by `stable_id`.
"""

import ipaddress
import os
import secrets
import socket
import time
from typing import Final

from cometmq.wire.record.message_id import UniqueIds

DEFAULT_NAME: Final = "DEFAULT"
# Reserved for documentation: no packet is sent there, the kernel only says which address it would use.
_NOWHERE_V4: Final = ("192.0.2.1", 9)
_NOWHERE_V6: Final = ("2001:db8::1", 9)


def own_address() -> str:
    """The address by which others would reach this host; 127.0.0.1 on one without a network."""
    for family, target in ((socket.AF_INET, _NOWHERE_V4), (socket.AF_INET6, _NOWHERE_V6)):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def client_id(address: str, instance_name: str, unit_name: str | None = None, stream: bool = False) -> str:
    shown = f"[{address}]" if ":" in address else address
    parts = [shown, instance_name, *([unit_name] if unit_name else []), *(["STREAM"] if stream else [])]
    return "@".join(parts)


def unique_name() -> str:
    """An instance name that no other client of this host has."""
    return f"{os.getpid()}#{time.monotonic_ns()}{secrets.randbelow(1000):03d}"


def unique_ids(address: str) -> UniqueIds:
    return UniqueIds(ipaddress.ip_address(address.partition("%")[0]).packed, os.getpid(), secrets.randbits(32))
