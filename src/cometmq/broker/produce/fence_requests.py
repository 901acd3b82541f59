"""RAISE_FENCE: a try of a sender that must not send twice begins (broker/produce/fences.py). CometMQ's own request."""

from typing import TYPE_CHECKING, Final

from cometmq.broker.entry import Entry
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply

if TYPE_CHECKING:
    from cometmq.broker.server import Broker


def raise_fence(broker: "Broker", connection: Connection, request: Command) -> Command:
    name = request.ext.get("fence")
    if name is None:
        raise RequestError(Response.INVALID_PARAMETER, "RAISE_FENCE needs the field fence")
    return reply(request, ext={"epoch": str(broker.fences.raised(name, broker.clock.now_ms()))})


HANDLERS: Final[dict[int, Entry]] = {Request.RAISE_FENCE: Entry(raise_fence, "consumer", "write")}
