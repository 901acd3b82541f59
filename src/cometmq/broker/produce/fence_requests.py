"""RAISE_FENCE: a try of a sender that must not send twice begins (broker/produce/fences.py). CometMQ's own request."""

from typing import Final

from cometmq.auth.signature import ACCESS_KEY
from cometmq.broker.entry import Entry
from cometmq.broker.produce.context import ProduceContext
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply


def raise_fence(context: ProduceContext, connection: Connection, request: Command) -> Command:
    name = request.ext.get("fence")
    if name is None:
        raise RequestError(Response.INVALID_PARAMETER, "RAISE_FENCE needs the field fence")
    user = request.ext.get(ACCESS_KEY, "")
    return reply(request, ext={"epoch": str(context.fences.raised(name, context.clock.now_ms(), user))})


HANDLERS: Final = {Request.RAISE_FENCE: Entry(raise_fence, "consumer")}
