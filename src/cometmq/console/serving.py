"""Serves the application with uvicorn: a listening socket of our own, so that port 0 works and a taken port is our
sentence, and an end by signal or by event."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import uvicorn

from cometmq.console.application import application
from cometmq.console.options import Options
from cometmq.errors import ConfigError

HEADER_BYTES_MAX: Final = 64 << 10
STOP_S: Final = 1


def listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port") from error
    return listener


class Server(uvicorn.Server):
    """Says when it serves; signals are the caller's."""

    def __init__(self, config: uvicorn.Config, told: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._told = told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            await self._told()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(options: Options, told: Callable[[str], Awaitable[None]], stopping: asyncio.Event) -> None:
    app = application(options)
    listener = listening(options.host, options.port)
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{host}:{listener.getsockname()[1]}/"
    if options.auth_kind == "token":
        address += f"?token={app.state.logins.token}"
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_S,
        limit_concurrency=500,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        http="h11",
        ws="none",
        lifespan="on",
    )
    server = Server(config, lambda: told(address))

    async def end() -> None:
        await stopping.wait()
        if hasattr(app.state, "context"):
            app.state.context.closing.set()
        server.should_exit = True

    ending = asyncio.create_task(end())
    try:
        await server.serve([listener])
    finally:
        ending.cancel()
        listener.close()
