"""Where a topic is: QueryRoute, and the assignments of push consumers.

    READ_WRITE   as many queues as are both; what there is more of one kind comes first
    assignment   whole brokers (queue -1), or single queues of a group that consumes in order; the same for each member

A client is given the address that it came by where only one broker has the topic: that one works for it, through
whatever lies between. Else each broker is named with its own.
"""

from __future__ import annotations

import ipaddress
from typing import Final, cast

from cometmq.front import checks
from cometmq.front.backend import BrokerQueues, Topic
from cometmq.front.call import Call
from cometmq.front.refusals import Refused, status
from cometmq.wire.bodies import QueryAssignmentRequest
from cometmq.wire.codes import Request
from cometmq.wire.command import request as new_request
from cometmq.wire.grpc import messages_pb2 as pb

PERM_READ: Final = 4
PERM_WRITE: Final = 2
ALL_QUEUES: Final = -1
TYPES: Final = dict(pb.MessageType.items())
MIXED: Final = (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION)


def query_route(call: Call, request: pb.QueryRouteRequest) -> None:
    name = checks.topic_of(request.topic)
    call.check(new_request(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": name}))
    topic = _route(call, name)
    queues = [
        queue
        for broker in topic.brokers
        for queue in _queues(request.topic, broker, _endpoints(call, request.endpoints, topic, broker), types_of(topic))
    ]
    call.answer(pb.QueryRouteResponse(status=status(pb.OK), message_queues=queues))


def query_assignment(call: Call, request: pb.QueryAssignmentRequest) -> None:
    name, group_name = checks.topic_of(request.topic), checks.group_of(request.group)
    body = QueryAssignmentRequest(topic=name, consumer_group=group_name).encode()
    call.check(new_request(Request.QUERY_ASSIGNMENT, {}, body))
    topic = _route(call, name)
    group = call.desk.backend.group(group_name)
    is_fifo = group is not None and group.consume_message_orderly
    assignments = []
    for broker in topic.brokers:
        if not broker.perm & PERM_READ or broker.read <= 0:
            continue
        named = pb.Broker(name=broker.broker, endpoints=_endpoints(call, request.endpoints, topic, broker))
        for number in range(broker.read) if is_fifo else (ALL_QUEUES,):
            queue = pb.MessageQueue(topic=request.topic, id=number, permission=pb.READ_WRITE, broker=named)
            assignments.append(pb.Assignment(message_queue=queue))
    if not assignments:
        raise Refused(pb.FORBIDDEN, f"topic {name} has no queue that may be read")
    call.answer(pb.QueryAssignmentResponse(status=status(pb.OK), assignments=assignments))


def _route(call: Call, name: str) -> Topic:
    topic = call.desk.backend.route(name)
    if topic is None or not topic.brokers:
        raise Refused(pb.TOPIC_NOT_FOUND, f"topic {name} does not exist: create it")
    return topic


def types_of(topic: Topic) -> tuple[pb.MessageType, ...]:
    if topic.message_type == "MIXED":
        return MIXED
    return (cast("pb.MessageType", TYPES.get(topic.message_type, pb.MESSAGE_TYPE_UNSPECIFIED)),)


def _queues(
    resource: pb.Resource, broker: BrokerQueues, endpoints: pb.Endpoints, types: tuple[pb.MessageType, ...]
) -> list[pb.MessageQueue]:
    may_read, may_write = broker.perm & PERM_READ, broker.perm & PERM_WRITE
    read, write = broker.read if may_read else 0, broker.write if may_write else 0
    both = min(read, write)
    kinds = [pb.READ] * (read - both) + [pb.WRITE] * (write - both) + [pb.READ_WRITE] * both
    if not kinds:
        kinds = [pb.NONE] * max(1, broker.read, broker.write)
    named = pb.Broker(name=broker.broker, id=0, endpoints=endpoints)
    return [
        pb.MessageQueue(topic=resource, id=number, permission=kind, broker=named, accept_message_types=types)
        for number, kind in enumerate(kinds)
    ]


def _endpoints(call: Call, given: pb.Endpoints, topic: Topic, broker: BrokerQueues) -> pb.Endpoints:
    if (len(topic.brokers) == 1 or call.desk.serves_all) and len(given.addresses) == 1:
        return given
    host, port = broker.endpoint if broker.endpoint is not None else call.connection.local
    return pb.Endpoints(scheme=_scheme(host), addresses=[pb.Address(host=host, port=port)])


def _scheme(host: str) -> pb.AddressScheme:
    try:
        return pb.IPv6 if ipaddress.ip_address(host).version == 6 else pb.IPv4
    except ValueError:
        return pb.DOMAIN_NAME
