"""One request: from its code to its handler, and from whatever the handler did to its answer.

    guard refuses it                            its code    16 NO_PERMISSION, perhaps late
    code -> route -> family full or rejecting?  code 2      [OVERLOAD], [REJECTREQUEST]
         -> none                                code 3      with the number
    hook or handler raises RequestError         its code and remark
                    raises anything else        code 1      with a short text
    handler returns a Command                   that
                    an awaitable                a task; its result, later
                    None                        whatever `connection.answer` is given, later
"""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from cometmq.errors import CometError, RequestError
from cometmq.net.endpoint import Endpoint
from cometmq.net.family import Family
from cometmq.net.shares import CONNECTION_SHARE, is_over_share, make_room
from cometmq.wire.codes import Response
from cometmq.wire.command import FLAG_ONEWAY, Command, reply

if TYPE_CHECKING:
    from cometmq.net.connection import Connection

# Clients of RocketMQ up to 5.3.1 do not know GO_AWAY.
GO_AWAY_VERSION: Final = 475

REMARK_CHARACTERS_MAX: Final = 512


def serve(connection: "Connection", request: Command) -> None:
    endpoint = connection.endpoint
    if endpoint.leaving and request.version > GO_AWAY_VERSION and not request.flag & FLAG_ONEWAY:
        connection.respond(request, reply(request, Response.GO_AWAY, "the server is stopping, connect again"))
        return
    guard = endpoint.guard
    if guard is not None:
        try:
            guard.check(request, connection.source)
        except Exception as error:
            _turn_away(connection, request, error)
            return
    route = connection.dispatcher.routes.get(request.code)
    if route is None:
        route = connection.dispatcher.default
        if route is None:
            remark = f"request code {request.code} is not supported"
            connection.respond(request, reply(request, Response.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
    family = route.family
    connection.serving = request
    try:
        if family.reject is not None or family.waiting * CONNECTION_SHARE >= family.waiting_max:
            refusal = _refusal(connection, family)
            if refusal is not None:
                connection.serving = None
                _refuse(connection, request, family, refusal)
                return
        if endpoint.hooks:
            endpoint.run_before(connection.peer_text, request)
        connection.kept_bytes = 0
        result = route.handler(connection, request)
    except Exception as error:
        connection.serving = None
        connection.respond(request, answer_to(endpoint, request, error))
        return
    # The handler may have called `answer` itself: then this request is served no longer.
    if isinstance(result, Command):
        if connection.is_serving(request):
            connection.serving = None
            connection.respond(request, result)
    elif result is not None:
        connection.serving = None
        _start(connection, request, family, result)
    elif connection.is_serving(request) and not request.flag & FLAG_ONEWAY:
        connection.hold(request, family, False)
    connection.serving = None


def _turn_away(connection: "Connection", request: Command, error: Exception) -> None:
    """Answer what the guard refused. Who has too many answers waiting is disconnected instead."""
    endpoint = connection.endpoint
    delay_s: float = error.delay_s if isinstance(error, RequestError) else 0.0
    response = answer_to(endpoint, request, error)
    if delay_s == 0:
        connection.respond(request, response)
    elif endpoint.refused.waiting >= endpoint.refused.waiting_max:
        connection.close("too many refused requests")
    elif not request.flag & FLAG_ONEWAY:
        connection.hold(request, endpoint.refused, False)
        endpoint.clock.call_later(delay_s, partial(connection.answer, request, response))


def _refusal(connection: "Connection", family: Family) -> str | None:
    if family.waiting * CONNECTION_SHARE >= family.waiting_max:
        over = is_over_share(family, connection)
        if over is not None:
            return over
        if family.waiting >= family.waiting_max:
            make_room(connection.endpoint, family, connection)
    return family.refusal()


def _refuse(connection: "Connection", request: Command, family: Family, remark: str) -> None:
    family.refused += 1
    connection.endpoint.log_refused.warning(
        "refuse request code=%d peer=%s family=%s cause=%s", request.code, connection.peer_text, family.name, remark
    )
    connection.respond(request, reply(request, Response.SYSTEM_BUSY, remark))


def _start(connection: "Connection", request: Command, family: Family, work: Awaitable[Command | None]) -> None:
    """Run what an asynchronous handler returned."""
    endpoint = connection.endpoint
    task: asyncio.Future[Command | None] = asyncio.ensure_future(work, loop=endpoint.loop)
    connection.hold(request, family, True)
    endpoint.tasks.add(task)
    task.add_done_callback(partial(_finish, connection, request))


def _finish(connection: "Connection", request: Command, task: "asyncio.Future[Command | None]") -> None:
    connection.endpoint.tasks.discard(task)
    response: Command | None = None
    if not task.cancelled():
        error = task.exception()
        if isinstance(error, Exception):
            response = answer_to(connection.endpoint, request, error)
        elif error is None:
            response = task.result()
    connection.answer(request, response)


def answer_to(endpoint: Endpoint, request: Command, error: Exception) -> Command:
    """The answer for a request whose handler or hook raised `error`."""
    if isinstance(error, RequestError):
        return reply(request, error.code, error.remark)
    trace = None if isinstance(error, CometError) else error
    endpoint.log_failed.warning("fail request code=%d error=%s", request.code, error, error=trace)
    text = f"{type(error).__name__}: {error}"[:REMARK_CHARACTERS_MAX]
    return reply(request, Response.SYSTEM_ERROR, text.encode(errors="replace").decode())
