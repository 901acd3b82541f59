"""Addresses as records have them: the broker's own, and where messages are born."""

import socket
from typing import cast

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.hosts import FAST_PORT_BELOW, HA_PORT_ABOVE, BornHosts, OwnAddress, free_port, ha_port_of
from cometmq.errors import CometError
from cometmq.net.connection import Connection
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.record.message_id import decode_offset_id


class Peer:
    def __init__(self, host: str, port: int) -> None:
        self.peer = (host, port)


def test_ids_of_messages_begin_with_the_own_address() -> None:
    own = OwnAddress(BrokerConfig(broker_ip1="192.0.2.7", listen_port=10911))
    assert (own.address, own.host) == ("192.0.2.7:10911", bytes([192, 0, 2, 7]) + (10911).to_bytes(4))
    assert decode_offset_id(own.offset_id(4096)).physical_offset == 4096
    assert own.offset_ids(PutResult(PutStatus.OK, 4096)) == own.offset_id(4096)


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(CometError, match=r"brokerIP1=nowhere\.invalid is neither"):
        OwnAddress(BrokerConfig(broker_ip1="nowhere.invalid", listen_port=10911))


def test_a_born_host_is_kept_until_its_connection_closes() -> None:
    hosts = BornHosts()
    four, six, unknown = (cast(Connection, Peer(it, 9)) for it in ("192.0.2.1", "2001:db8::1", "a socket of files"))
    assert hosts.of(four) == bytes([192, 0, 2, 1]) + (9).to_bytes(4)
    assert hosts.of(four) is hosts.of(four)
    assert hosts.of(six) == socket.inet_pton(socket.AF_INET6, "2001:db8::1") + (9).to_bytes(4)
    assert hosts.of(unknown) == bytes(4) + (9).to_bytes(4)
    assert len(hosts) == 3
    hosts.forget(six)
    hosts.forget(six)
    assert len(hosts) == 2


def test_a_free_port_has_free_neighbours() -> None:
    port = free_port()
    for neighbour in (port, port - FAST_PORT_BELOW, port + HA_PORT_ABOVE):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", neighbour))
    assert ha_port_of(StoreOptions(), port) == port + HA_PORT_ABOVE
    assert ha_port_of(StoreOptions(ha_listen_port=7), port) == 7
