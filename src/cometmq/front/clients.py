"""What clients say of themselves, and membership.

Telemetry settings   makes or refreshes a client; registered like one that sends heartbeats by remoting
Heartbeat            keeps it;   40015 without settings
termination, expiry  the handles that are renewed for it are given back, its memberships end
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from cometmq.front import settings
from cometmq.front.call import CLIENT_ID_CHARS_MAX, Call
from cometmq.front.checks import group_of
from cometmq.front.client import PUSH_TYPES, Client
from cometmq.front.refusals import Refused, code_of, status
from cometmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from cometmq.wire.codes import Request, Version
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.hashing import java_string_hash

logger = logging.getLogger(__name__)

CLIENTS_MAX: Final = 20_000
CLIENTS_A_CONNECTION_MAX: Final = 64
# A client that names several topics may miss the first answer: Node 1.0.8 subscribes to it after its last route only.
SETTINGS_AGAIN_S: Final = 1.0


def known(call: Call) -> Client:
    """Raises Refused (40015)."""
    client = call.desk.clients.table.get(call.client_id)
    if client is None:
        raise Refused(pb.UNRECOGNIZED_CLIENT_TYPE, f"client {call.client_id[:80]} has sent no settings")
    return client


def settle(call: Call, given: pb.Settings) -> pb.Settings:
    """Take what a client says of itself; what it is answered. Raises Refused."""
    if len(call.client_id) > CLIENT_ID_CHARS_MAX:
        raise Refused(pb.CLIENT_ID_REQUIRED, f"the client id has {len(call.client_id)} characters")
    desk, clients = call.desk, call.desk.clients
    kept = settings.complete(desk.backend, given)
    client = clients.table.get(call.client_id) or _enter(call, kept)
    client.settings = kept
    client.telemetry = (call.connection, call.stream)
    if given.HasField("publishing") and not given.publishing.topics:
        client.telemetry = None  # it could not be asked for anything
    command = new_request(Request.HEART_BEAT, {}, _data(client, client.group).encode(), language=client.language)
    command.version = Version.V5_5_0
    client.link.ask(command, partial(_note_refusal, client))
    for serve in clients.unsettled.pop(call.client_id, ()):
        serve()
    if len(given.publishing.topics) > 1 or len(given.subscription.subscriptions) > 1:
        again = pb.TelemetryCommand(status=status(pb.OK), settings=kept)
        desk.later(SETTINGS_AGAIN_S, partial(_say_again, client, call, again))
    return kept


def _enter(call: Call, kept: pb.Settings) -> Client:
    """A new client. Raises Refused if there are too many."""
    desk, connection, clients = call.desk, call.connection, call.desk.clients
    if len(clients.table) >= CLIENTS_MAX:
        raise Refused(pb.TOO_MANY_REQUESTS, f"there are {CLIENTS_MAX} clients, the bound")
    if clients.counts.get(connection.peer, 0) >= CLIENTS_A_CONNECTION_MAX:
        raise Refused(pb.TOO_MANY_REQUESTS, f"the connection has {CLIENTS_A_CONNECTION_MAX} clients, the bound")
    client = Client(desk, call.client_id, call.stream.headers.get("x-mq-language", ""), kept)
    client.link = desk.backend.enter(connection.peer, connection.peer_text, connection.source, client)
    clients.enter(client)
    return client


def _say_again(client: Client, call: Call, again: pb.TelemetryCommand) -> None:
    if call.desk.clients.table.get(client.id) is client and not call.is_over:
        call.connection.session.send(call.stream, again.SerializeToString())
        call.connection.flush_soon()


def heartbeat(call: Call, request: pb.HeartbeatRequest) -> None:
    client = known(call)
    if client.settings.client_type == pb.PRODUCER:
        body = _data(client, "")
    elif client.is_consumer:
        body = _data(client, group_of(request.group) if request.HasField("group") else client.group)
    else:
        raise Refused(pb.UNRECOGNIZED_CLIENT_TYPE)
    command = new_request(Request.HEART_BEAT, {}, body.encode(), language=client.language)
    command.version = Version.V5_5_0
    call.ask(call.check(command), _beaten, client.link)


def _beaten(call: Call, response: Command) -> None:
    if response.code != 0:
        raise Refused(code_of(response.code), response.remark or "")
    call.answer(pb.HeartbeatResponse(status=status(pb.OK)))


def check_settings(call: Call, given: pb.Settings) -> None:
    """Raises Refused."""
    if given.HasField("publishing"):
        for topic in given.publishing.topics:
            call.check(new_request(Request.SEND_MESSAGE, {"topic": topic.name}))
    else:
        body = HeartbeatData(call.client_id, consumer_data_set=[_consumer(given, given.subscription.group.name)])
        call.check(new_request(Request.HEART_BEAT, {}, body.encode()))


def _data(client: Client, group: str) -> HeartbeatData:
    data = HeartbeatData(client_id=client.id)
    if client.is_consumer:
        data.consumer_data_set = [_consumer(client.settings, group)]
    else:
        # The group of a producer is the topic that it sends to.
        data.producer_data_set = [ProducerData(topic.name) for topic in client.settings.publishing.topics]
    return data


def terminate(call: Call, request: pb.NotifyClientTerminationRequest) -> None:
    client = known(call)
    if request.HasField("group") and request.group.name:
        call.check(new_request(Request.UNREGISTER_CLIENT, {"consumerGroup": group_of(request.group)}))
    client.link.close("the client has said goodbye")
    call.answer(pb.NotifyClientTerminationResponse(status=status(pb.OK)))


def _consumer(given: pb.Settings, group: str) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY" if given.client_type in PUSH_TYPES else "CONSUME_ACTIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[_subscription(it) for it in given.subscription.subscriptions],
    )


def _subscription(entry: pb.SubscriptionEntry) -> SubscriptionData:
    expression = entry.expression.expression
    if entry.expression.type == pb.SQL:
        return SubscriptionData(
            topic=entry.topic.name, sub_string=expression, expression_type="SQL92", sub_version=_hash_of(expression)
        )
    tags = {tag for part in expression.split("||") if (tag := part.strip())} if expression != "*" else set()
    return SubscriptionData(
        topic=entry.topic.name,
        sub_string=expression or "*",
        sub_version=_hash_of(expression),
        tags_set=tags,
        code_set={java_string_hash(tag) for tag in tags},
    )


def _hash_of(expression: str) -> int:
    """Another expression is another version."""
    return java_string_hash(expression) & 0x7FFFFFFF


def _note_refusal(client: Client, response: Command) -> None:
    if response.code != 0:
        logger.warning("fail registration client=%s cause=%s", client.id, response.remark)
