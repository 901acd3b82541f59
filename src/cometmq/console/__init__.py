"""The console: a cluster in the browser, CometMQ's or RocketMQ's. An ASGI application that uses only the client.

    options      what may be set, and what is refused
    application  puts it together: routes, guard, static files
    routes       every request of /api: path, method, who may make it, what it answers; `openapi` writes that down
    guard        who is there and what they may do: hosts, log-in, origins, roles, sizes
    hub          asks the cluster once for all who look, and sends what changed as server-sent events
    views/       what pages show: each a function of the administration that gives JSON
    messages/    the message browser: the one box, scans, decoding, masking, timelines
    plans/       what changes something: each first says what it would do

    import cometmq.console
    app = cometmq.console.app(namesrv="127.0.0.1:9876")        to be served by any ASGI server, on loopback

Nothing here knows a broker's objects, and nothing is asked of the cluster while nobody looks.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.applications import Starlette


def app(namesrv: str, **options: Any) -> "Starlette":
    """`options` are the fields of `cometmq.console.options.Options`."""
    from cometmq.console.application import application
    from cometmq.console.options import Options

    return application(Options(namesrv=namesrv, **options))


__all__ = ["app"]
