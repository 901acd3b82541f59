"""The body of a request, read or refused."""

from typing import TypeVar

from cometmq.errors import RequestError, WireError
from cometmq.wire.bodies import Body
from cometmq.wire.codes import Response
from cometmq.wire.command import Command

B = TypeVar("B", bound=Body)


def body_of(kind: type[B], request: Command) -> B:
    """The body of a request; a bad one is refused, the connection stays."""
    if not request.body:
        raise RequestError(Response.SYSTEM_ERROR, f"request {request.code} has no body, {kind.__name__} is needed")
    try:
        return kind.decode_request(request.body)
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, f"request {request.code} has a bad body: {error}") from None
