"""The PROXY protocol header: a load balancer in front of us says who the peer really is.

Version 1 is one line of text, at most 107 bytes:

    PROXY TCP4 192.0.2.1 192.0.2.9 56324 10911\\r\\n          also TCP6, and UNKNOWN with anything behind it

Version 2 is binary:

    signature:12  version 2 << 4 | command:1  family << 4 | transport:1  length:2  addresses  { type:1 length:2 value }*

Command 0 (LOCAL) is the balancer's own health check: the socket's address stays. Addresses are
source, destination, source port, destination port: 4+4+2+2 bytes for IPv4, 16+16+2+2 for IPv6.
"""

import ipaddress
from dataclasses import dataclass, field

from cometmq.errors import WireError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V1_BYTES_MAX = 107
V2_FIXED_BYTES = 16

_ADDRESS_BYTES = {1: 4, 2: 16}


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """`source` and `destination` are (host, port), or None if the header names none."""

    size_bytes: int
    source: tuple[str, int] | None = None
    destination: tuple[str, int] | None = None
    fields: dict[str, str] = field(default_factory=dict)

    def attributes(self) -> dict[str, str]:
        """What the connection keeps, under the names that RocketMQ uses."""
        kept: dict[str, str] = {}
        if self.source is not None:
            kept["proxy_protocol_addr"], kept["proxy_protocol_port"] = self.source[0], str(self.source[1])
        if self.destination is not None:
            kept["proxy_protocol_server_addr"] = self.destination[0]
            kept["proxy_protocol_server_port"] = str(self.destination[1])
        return kept | self.fields


def announces_header(data: bytes) -> bool:
    """Whether a connection that begins with these (at least 12) bytes begins with a PROXY header."""
    return data.startswith((b"PROXY", SIGNATURE))


def read_header(data: bytes) -> ProxyHeader | None:
    """The header at the start of `data`; None if more bytes are needed."""
    return _read_v1(data) if data.startswith(b"PROXY") else _read_v2(data)


def _read_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise WireError(f"PROXY line does not end within {V1_BYTES_MAX} bytes")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1:2] == ["UNKNOWN"]:
        return ProxyHeader(end + 2)
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise WireError(f"PROXY line is not understood: {data[:end]!r}")
    try:
        source = (str(ipaddress.ip_address(words[2])), _port(words[4]))
        destination = (str(ipaddress.ip_address(words[3])), _port(words[5]))
    except ValueError as error:
        raise WireError(f"PROXY line has a bad address: {error}") from None
    return ProxyHeader(end + 2, source, destination)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 0xFFFF):
        raise ValueError(f"{text!r} is not a port")
    return int(text)


def _read_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < V2_FIXED_BYTES:
        return None
    version, command = data[12] >> 4, data[12] & 15
    if version != 2 or command > 1:
        raise WireError(f"PROXY header has version {version} command {command}, known are 2 with 0 or 1")
    end = V2_FIXED_BYTES + int.from_bytes(data[14:16], "big")
    if len(data) < end:
        return None
    address_bytes = _ADDRESS_BYTES.get(data[13] >> 4)
    if command == 0 or address_bytes is None:
        return ProxyHeader(end)
    position = V2_FIXED_BYTES + 2 * address_bytes + 4
    if position > end:
        raise WireError(f"PROXY header of {end} bytes has no room for its addresses, {position} are needed")
    middle = V2_FIXED_BYTES + address_bytes
    source = (_host(data[V2_FIXED_BYTES:middle]), int.from_bytes(data[position - 4 : position - 2], "big"))
    destination = (_host(data[middle : position - 4]), int.from_bytes(data[position - 2 : position], "big"))
    return ProxyHeader(end, source, destination, _read_fields(data, position, end))


def _host(address: bytes) -> str:
    return str(ipaddress.ip_address(address))


def _read_fields(data: bytes, position: int, end: int) -> dict[str, str]:
    """Type-length-value fields with an ASCII value; others are skipped."""
    fields: dict[str, str] = {}
    while position + 3 <= end:
        value_end = position + 3 + int.from_bytes(data[position + 1 : position + 3], "big")
        if value_end > end:
            raise WireError(f"PROXY field at byte {position} runs over the header, which ends at {end}")
        value = data[position + 3 : value_end]
        if value.isascii():
            fields[f"proxy_protocol_tlv_0x{data[position]:02x}"] = value.decode("ascii")
        position = value_end
    return fields
