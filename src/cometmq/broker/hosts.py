"""Addresses as records have them: this broker's own, and that of the client where a message was born."""

import os
import random
import socket
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.errors import CometError
from cometmq.net.connection import Connection
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutResult
from cometmq.wire.record.message import encode_host
from cometmq.wire.record.message_id import UniqueIds, encode_offset_id, encode_offset_ids, offset_id_prefix

# Where the second listener is, and where replicas connect unless haListenPort is set.
FAST_PORT_BELOW: Final = 2
HA_PORT_ABOVE: Final = 1
DRAWN_PORTS: Final = (12_000, 32_000)
UNKNOWN_HOST: Final = bytes(4)


class OwnAddress:
    """`address`: as clients know it, `ip:port`; `host`: as records have it. Ids that name this broker begin with it."""

    def __init__(self, config: BrokerConfig) -> None:
        self.port: int = config.listen_port or free_port()
        self.address: str = f"{config.advertised_host}:{self.port}"
        host_bytes = _address_bytes(config.advertised_host)
        self.host: bytes = encode_host((host_bytes, self.port))
        self.unique_ids: UniqueIds = UniqueIds(host_bytes, os.getpid(), random.getrandbits(32))
        self._id_prefix: str = offset_id_prefix(host_bytes, self.port)

    def offset_id(self, physical_offset: int) -> str:
        return encode_offset_id(self._id_prefix, physical_offset)

    def offset_ids(self, result: PutResult) -> str:
        """The id of a stored message; of a batch all of them."""
        if not result.lengths:
            return encode_offset_id(self._id_prefix, result.physical_offset)
        return encode_offset_ids(self._id_prefix, result.physical_offset, result.lengths)


class BornHosts:
    """Where messages are born, by connection; `forget` one that closes."""

    def __init__(self) -> None:
        self._hosts: dict[Connection, bytes] = {}

    def of(self, connection: Connection) -> bytes:
        host = self._hosts.get(connection)
        if host is None:
            address = _literal_bytes(connection.peer[0]) or UNKNOWN_HOST
            host = self._hosts[connection] = encode_host((address, connection.peer[1]))
        return host

    def forget(self, connection: Connection) -> None:
        self._hosts.pop(connection, None)

    def __len__(self) -> int:
        return len(self._hosts)


def ha_port_of(options: StoreOptions, broker_port: int) -> int:
    """Where replicas connect."""
    return options.ha_listen_port or broker_port + HA_PORT_ABOVE


def _address_bytes(host: str) -> bytes:
    """The address as a record has it; a name is looked up once, at the start."""
    try:
        return _literal_bytes(host) or socket.inet_aton(socket.gethostbyname(host))
    except OSError as error:
        raise CometError(f"brokerIP1={host} is neither an address nor a name that can be looked up: {error}") from error


def _literal_bytes(host: str) -> bytes | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host.split("%")[0])
        except OSError:
            continue
    return None


def free_port() -> int:
    """A port that is free now, as are its neighbours for the second listener and for replication.

    Drawn from below the ports that systems give to outgoing connections: one of those could take a neighbour before it
    is listened on.
    """
    for _ in range(100):
        port = random.randrange(*DRAWN_PORTS)  # noqa: S311 - keeps no secret
        with socket.socket() as main, socket.socket() as fast, socket.socket() as replicas:
            try:
                main.bind(("127.0.0.1", port))
                fast.bind(("127.0.0.1", port - FAST_PORT_BELOW))
                replicas.bind(("127.0.0.1", port + HA_PORT_ABOVE))
            except OSError:
                continue
            return port
    raise CometError(f"no three free ports between {DRAWN_PORTS[0]} and {DRAWN_PORTS[1]}: set listenPort")
