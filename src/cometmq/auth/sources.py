"""Where a caller comes from: the addresses and CIDR blocks of a policy entry.

Addresses are compared as numbers within their family; an IPv4 address that is written as IPv6 (::ffff:10.1.2.3) is
IPv4. `::/0` and `0.0.0.0/0` match every address. RocketMQ compares single addresses as text and blocks without looking
at the family, so that `::1` in a policy never matches there.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Block: TypeAlias = IPv4Network | IPv6Network

TEXT_CHARS_MAX: Final = 64


def parse_block(text: str) -> Block | None:
    """An address or CIDR block; None for a host name, a range, or stars."""
    text = text.strip()
    if not text or len(text) > TEXT_CHARS_MAX or "%" in text:
        return None
    try:
        block = ip_network(text, strict=False)
    except ValueError:
        return None
    if isinstance(block, IPv6Network) and block.prefixlen >= 96 and block.network_address.ipv4_mapped is not None:
        return IPv4Network((int(block.network_address.ipv4_mapped), block.prefixlen - 96))
    return block


@lru_cache(maxsize=4096)
def parse_address(text: str) -> Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_in(block: Block, address: Address) -> bool:
    return block.prefixlen == 0 or (block.version == address.version and address in block)
