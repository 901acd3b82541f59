"""Between the brokers of a replica group: what a replica copies from its master, besides topics, groups and offsets."""

from __future__ import annotations

from typing import Final

import msgspec

from cometmq.broker.entry import Entry
from cometmq.broker.replicas.context import ReplicaContext
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import ExchangeHaInfo, NotifyMinBrokerIdChange

# Where the newest epoch ends: RocketMQ's Long.MAX_VALUE.
OPEN_END: Final = (1 << 63) - 1


def delay_progress(context: ReplicaContext, connection: Connection, request: Command) -> Command:
    """As it is safe to go on from: what it says is delivered is on disk."""
    return reply(request, body=context.delays.snapshot()())


def exchange_ha_info(context: ReplicaContext, connection: Connection, request: Command) -> Command:
    """Asked without an address, a master says where its log is; with one, a replica takes it from there."""
    header = ExchangeHaInfo.decode(request.ext)
    if header.master_ha_address is not None:
        context.group.master_told(header)
        return reply(request)
    if context.store.is_replica:
        return reply(request, ext=ExchangeHaInfo().encode())
    info = ExchangeHaInfo(context.registration.ha_address, context.store.log.max_offset, context.own.address)
    return reply(request, ext=info.encode())


def first_member_changed(context: ReplicaContext, connection: Connection, request: Command) -> Command:
    context.group.notice(NotifyMinBrokerIdChange.decode(request.ext))
    return reply(request)


def epochs(context: ReplicaContext, connection: Connection, request: Command) -> Command:
    """Request 1007, for mqadmin getBrokerEpoch."""
    found = context.epochs()
    if found is None:
        raise RequestError(Response.SYSTEM_ERROR, "this broker is not of a set that elects (enableControllerMode=true)")
    number, entries = found
    starts = [start for _, start in entries]
    config = context.config()
    body = {
        "brokerId": number,
        "brokerName": config.broker_name,
        "clusterName": config.cluster_name,
        "epochList": [
            {"endOffset": end, "epoch": epoch, "startOffset": start}
            for (epoch, start), end in zip(entries, [*starts[1:], OPEN_END], strict=False)
        ],
        "maxOffset": context.store.log.max_offset,
    }
    return reply(request, body=msgspec.json.encode(body))


HANDLERS: Final = {
    Request.GET_BROKER_EPOCH_CACHE: Entry(epochs, "admin"),
    Request.GET_ALL_DELAY_OFFSET: Entry(delay_progress, "admin"),
    Request.EXCHANGE_BROKER_HA_INFO: Entry(exchange_ha_info, "admin"),
    Request.NOTIFY_MIN_BROKER_ID_CHANGE: Entry(first_member_changed, "admin"),
}
