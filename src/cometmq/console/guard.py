"""The door: every request passes here before any handler, and every answer gets the headers that keep a browser safe.

    Host          one of this console's own names: a foreign page cannot reach it through a name of its own
    who           by cookie, bearer token, or a proxy's header; without --auth whoever reaches 127.0.0.1
    role          what the route needs; a route that changes something does not exist with --read-only
    changes       need the header X-CometMQ-Console, which a foreign page cannot send, and no foreign Origin
    size          at most 1 MiB
    streams       at most 64 at once

A route without a role in the table does not start: `routes` makes sure.
"""

import ipaddress
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from cometmq.console.answers import BODY_BYTES_MAX, Problem, refusal
from cometmq.console.context import Context
from cometmq.console.login import ANYBODY, COOKIE, NAME, Person
from cometmq.console.options import LOOPBACK_NAMES, ROLES, Role, is_loopback, network_of

logger = logging.getLogger(__name__)

CHANGE_HEADER: Final = "x-cometmq-console"
ROLE_HEADER: Final = "x-forwarded-role"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}

Handler = Callable[[Context, Request], Awaitable[Any]]


def guarded(handler: Handler, needs: Role, *, changes: bool) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that lets in who may, and turns what a handler gives or raises into an answer."""

    async def endpoint(request: Request) -> Response:
        from cometmq.console.answers import answer

        context: Context = request.app.state.context
        try:
            request.state.person = admit(context, request, needs, changes=changes)
            result = await handler(context, request)
        except Exception as error:
            response = refusal(error)
            if response is None:
                logger.exception("fail request path=%s", request.url.path)
                response = answer({"error": "the console failed here: its log says where"}, 500)
            return with_headers(response)
        return with_headers(result if isinstance(result, Response) else answer(result))

    return endpoint


def admit(context: Context, request: Request, needs: Role, *, changes: bool) -> Person:
    options = context.options
    check_host(context, request)
    if changes:
        check_origin(request)
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
        raise Problem(413, f"a request has at most {BODY_BYTES_MAX} bytes")
    if changes and options.read_only and request.url.path not in ("/api/login", "/api/logout"):
        raise Problem(404, "this console is read-only: there is no such route")
    person = person_of(context, request)
    if needs is Role.NOBODY:
        return person or Person("", Role.NOBODY)
    if person is None:
        raise Problem(401, "log in first", auth=options.auth_kind)
    if person.role < needs:
        raise Problem(403, f"{person.name} is {person.role.name.lower()}; this needs {needs.name.lower()}")
    return person


def person_of(context: Context, request: Request) -> Person | None:
    options = context.options
    if options.auth_kind == "none":
        return ANYBODY
    if options.auth_kind == "header":
        return _by_proxy(context, request)
    return context.logins.by_cookie(request.cookies.get(COOKIE)) or context.logins.by_bearer(
        request.headers.get("authorization")
    )


def _by_proxy(context: Context, request: Request) -> Person | None:
    """Only a proxy of `--trust` is believed; its role header says more than viewer."""
    address = request.client.host if request.client is not None else ""
    try:
        here = ipaddress.ip_address(address)
    except ValueError:
        return None
    if not any(here in network_of(network) for network in context.options.trust):
        return None
    name = request.headers.get(context.options.auth_value, "")
    if not NAME.fullmatch(name):
        return None
    return Person(name, ROLES.get(request.headers.get(ROLE_HEADER, "viewer").lower(), Role.VIEWER))


def check_host(context: Context, request: Request) -> None:
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    options = context.options
    known = {it.lower() for it in options.hosts} | {options.host.lower()}
    if is_loopback(options.host):
        known |= LOOPBACK_NAMES
    if options.host in ("0.0.0.0", "::", "[::]") and not options.hosts:  # noqa: S104 - compared, not listened on
        return  # it has a log-in, and nobody said what its names are
    if name.lower() not in known:
        raise Problem(421, f"this console is not {name[:100]!r}: --allow-host NAME lets it be called so")


def check_origin(request: Request) -> None:
    """A change comes from this console's own page, or from a program that says so."""
    if CHANGE_HEADER not in request.headers:
        raise Problem(403, "a change needs the header X-CometMQ-Console: 1, which a foreign page cannot send")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host", ""):
        raise Problem(403, f"a change from {origin[:100]} is refused: only this console's own pages may")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "a change from a foreign page is refused")


def with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response
