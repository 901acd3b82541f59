"""A proxy: the gRPC front, a listener, and the cluster behind it."""

from __future__ import annotations

from cometmq.clock import Clock, SystemClock
from cometmq.front.call import WANTED
from cometmq.front.front import Front
from cometmq.net import self_signed
from cometmq.net.http2 import Http2Server
from cometmq.net.limits import Limits
from cometmq.net.seen import Seen
from cometmq.net.tls import ServerTls, TlsSettings
from cometmq.proxy.backend import ClusterBackend
from cometmq.proxy.config import ProxyConfig
from cometmq.proxy.metrics import ProxyRoom


class Proxy:
    def __init__(self, config: ProxyConfig, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._config = config
        self.seen = Seen(config, clock, config.bind_address)
        self.backend = ClusterBackend(config, clock)
        self.front = Front(self.backend, clock, serves_all=True)
        instead = self_signed.context if config.tls_test_mode else None
        self.server = Http2Server(
            self.front,
            WANTED,
            config.grpc_message_bytes_max,
            Limits(idle_s=config.grpc_idle_ms / 1000),
            clock,
            ServerTls(TlsSettings.of(config), clock, ["h2"], instead),
        )

    @property
    def address(self) -> str:
        return f"{self.server.host}:{self.server.port}"

    async def start(self) -> None:
        """Raises CometError that names the address if it cannot be bound."""
        await self.seen.start()
        try:
            await self.server.start(self._config.bind_address, self._config.grpc_port)
        except BaseException:
            await self.seen.stop()
            raise
        self.backend.start()
        self.front.start()
        self.seen.attach(ProxyRoom(self._config, self))

    async def stop(self) -> None:
        """What clients have in hand is given back, while brokers are still asked."""
        await self.seen.stop()
        self.front.stop()
        await self.server.stop(self._config.shutdown_s)
        await self.backend.stop()
