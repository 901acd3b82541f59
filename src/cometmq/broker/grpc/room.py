"""The room of gRPC: the front on this broker, its listener, and its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from cometmq.auth.access import Access
from cometmq.broker.config import BrokerConfig
from cometmq.broker.grpc.local import Handlers, LocalBackend
from cometmq.broker.shared import Shared
from cometmq.front.backend import Limits
from cometmq.front.call import WANTED
from cometmq.front.front import Front
from cometmq.net import self_signed
from cometmq.net.http2 import Http2Server
from cometmq.net.inside import Inside
from cometmq.net.limits import Limits as NetLimits
from cometmq.net.tls import ServerTls, TlsSettings
from cometmq.wire.bodies import TopicRoute

OFF: Final = -1
ANY_PORT: Final = 0


class GrpcRoom:
    """Made always, listens if `grpcServerPort` says so."""

    def __init__(
        self,
        shared: Shared,
        handlers: Handlers,
        access: Access | None,
        *,
        find_route: Callable[[str], Awaitable[TopicRoute]],
        has_cluster: Callable[[], bool],
        on_close: Callable[[Inside], object],
        is_trusted_proxy: Callable[[str], bool],
    ) -> None:
        self._shared = shared
        self.backend = LocalBackend(
            shared, handlers, access, find_route, has_cluster, on_close, self._limits, shared.own
        )
        self.front = Front(self.backend, shared.clock)
        self.server: Http2Server | None = None
        self._is_trusted_proxy = is_trusted_proxy

    def _limits(self) -> Limits:
        config = self._shared.config()
        return Limits(
            body_bytes_max=self._shared.store.options.message_bytes_max,
            delay_ms_max=config.delay_ms_max,
            check_message_types=config.check_message_types,
        )

    @property
    def port(self) -> int:
        """0 while it does not listen."""
        return self.server.port if self.server is not None else 0

    async def start(self, host: str) -> None:
        config = self._shared.config()
        if config.grpc_port == OFF:
            return
        self.server = server = make_server(self.front, config, self._shared)
        server.endpoint.is_trusted_proxy = self._is_trusted_proxy
        await server.start(host, config.grpc_port)
        self.backend.start(asyncio.get_running_loop(), server.port)
        self.front.start()

    def leave(self) -> None:
        """Clients are forgotten while requests are still served: what they had in hand is given back."""
        if self.server is not None:
            self.front.stop()

    async def stop(self, grace_s: float) -> None:
        if self.server is not None:
            await self.server.stop(grace_s)
            self.backend.stop()


def make_server(front: Front, config: BrokerConfig, shared: Shared) -> Http2Server:
    instead = self_signed.context if config.tls_test_mode else None
    return Http2Server(
        front,
        WANTED,
        config.grpc_message_bytes_max,
        NetLimits(idle_s=config.grpc_idle_ms / 1000),
        shared.clock,
        ServerTls(TlsSettings.of(config), shared.clock, ["h2"], instead),
    )
