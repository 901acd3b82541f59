"""Between the brokers of a replica group: what a replica copies from its master, besides topics, groups and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.broker.entry import Entry
from cometmq.net.connection import Connection
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import ExchangeHaInfo, NotifyMinBrokerIdChange

if TYPE_CHECKING:
    from cometmq.broker.server import Broker


def delay_progress(broker: Broker, connection: Connection, request: Command) -> Command:
    """As it is safe to go on from: what it says is delivered is on disk."""
    return reply(request, body=broker.delays.snapshot()())


def exchange_ha_info(broker: Broker, connection: Connection, request: Command) -> Command:
    """Asked without an address, a master says where its log is; with one, a replica takes it from there."""
    header = ExchangeHaInfo.decode(request.ext)
    if header.master_ha_address is not None:
        broker.membership.master_told(header)
        return reply(request)
    if broker.is_replica:
        return reply(request, ext=ExchangeHaInfo().encode())
    info = ExchangeHaInfo(broker.nameservers.ha_address, broker.store.log.max_offset, broker.address)
    return reply(request, ext=info.encode())


def first_member_changed(broker: Broker, connection: Connection, request: Command) -> Command:
    broker.membership.told(NotifyMinBrokerIdChange.decode(request.ext))
    return reply(request)


HANDLERS: Final[dict[int, Entry]] = {
    Request.GET_ALL_DELAY_OFFSET: Entry(delay_progress, "admin", "admin"),
    Request.EXCHANGE_BROKER_HA_INFO: Entry(exchange_ha_info, "admin", "admin"),
    Request.NOTIFY_MIN_BROKER_ID_CHANGE: Entry(first_member_changed, "admin", "admin"),
}
