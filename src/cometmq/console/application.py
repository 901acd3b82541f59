"""Puts the console together: routes behind the guard, pages, and a client that lives as long as the application.

/api/...       routes.ROUTES, each behind guard.guarded
/static/...    files of static/, as they are
everything else that looks like a page: index.html, whose script reads the address
"""

import dataclasses
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route as PathRoute

from cometmq.client.client import Client
from cometmq.console.answers import Problem
from cometmq.console.audit import Audit
from cometmq.console.context import Context
from cometmq.console.guard import guarded, with_headers
from cometmq.console.hub import Hub
from cometmq.console.login import Logins
from cometmq.console.options import Options, Role
from cometmq.console.plans import groups, letters, others, topics
from cometmq.console.plans.store import Plans
from cometmq.console.polls import POLLS
from cometmq.console.routes import ROUTES

STATIC: Final = Path(__file__).parent / "static"
KINDS: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
ACTIONS: Final = topics.ACTIONS | groups.ACTIONS | letters.ACTIONS | others.ACTIONS


def application(options: Options) -> Starlette:
    if options.ledger is None:
        options = dataclasses.replace(options, ledger=Path(tempfile.mkdtemp(prefix="cometmq-console-")))
    logins = Logins(options)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        keys: dict[str, Any] = {"call_timeout": options.timeout_s, "connect_timeout": min(options.timeout_s, 3.0)}
        if options.access_key is not None:
            keys |= {"access_key": options.access_key, "secret_key": options.secret_key}
        if options.tls is not None:
            keys["tls"] = options.tls
        async with (
            Client(options.namesrv, **keys) as client,
            client.admin(timeout_s=options.timeout_s) as admin,
        ):
            context = Context(options, client, admin, logins, Audit(options.audit))
            context.hub = Hub(context, dict(POLLS))
            context.plans = Plans(dict(ACTIONS))
            app.state.context = context
            try:
                yield
            finally:
                await context.hub.close()
                context.history.save()

    routes = [
        PathRoute(it.path, guarded(it.handler, it.needs, changes=it.changes), methods=[it.method])
        for it in ROUTES
        if not (options.read_only and it.changes and it.path not in ("/api/login", "/api/logout"))
    ]
    routes += [
        PathRoute(
            "/api/{rest:path}", guarded(_nothing, Role.NOBODY, changes=False), methods=["GET", "POST", "PUT", "DELETE"]
        ),
        PathRoute("/static/{path:path}", guarded(_static, Role.NOBODY, changes=False)),
        PathRoute("/favicon.ico", guarded(_icon, Role.NOBODY, changes=False)),
        PathRoute("/{rest:path}", guarded(_page, Role.NOBODY, changes=False)),
    ]
    app = Starlette(routes=routes, lifespan=life, exception_handlers={405: _wrong_method})
    app.state.logins = logins
    return app


async def _nothing(context: Context, request: Request) -> Any:
    raise Problem(404, "there is no such route; /api/openapi.json lists all")


async def _wrong_method(request: Request, error: Exception) -> Response:
    return with_headers(
        Response('{"error":"there is no such route with this method"}', 405, media_type="application/json")
    )


async def _static(context: Context, request: Request) -> Any:
    """Files of the package only: names are looked up below it, and links do not lead out."""
    path = (STATIC / str(request.path_params["path"])).resolve()
    if not path.is_relative_to(STATIC.resolve()) or not path.is_file() or path.suffix not in KINDS:
        raise Problem(404, "there is no such file")
    return FileResponse(path, media_type=KINDS[path.suffix], headers={"Cache-Control": "no-cache"})


async def _icon(context: Context, request: Request) -> Any:
    return FileResponse(STATIC / "icon.svg", media_type=KINDS[".svg"])


async def _page(context: Context, request: Request) -> Any:
    return FileResponse(STATIC / "index.html", media_type=KINDS[".html"], headers={"Cache-Control": "no-cache"})
