"""The port of replicas: haAllowedAddresses and tls.ha.mode, with the certificates of the other ports.

RocketMQ's has neither: whoever reaches it copies the log. How a connection is judged is in store/replication/doors.py.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import replace

from cometmq.auth import startup
from cometmq.broker.config import BrokerConfig
from cometmq.clock import Clock
from cometmq.errors import ConfigError
from cometmq.net.tls import DISABLED, ENFORCING, ClientTls, ServerTls, TlsSettings, client_context
from cometmq.store.replication.doors import Doors

logger = logging.getLogger(__name__)


class ReplicaPort:
    """Raises ConfigError for settings that do not fit together."""

    def __init__(self, config: BrokerConfig, clock: Clock, *, is_slave: bool) -> None:
        self._is_asked = config.authentication_enabled
        self._allowed = startup.read_blocks("haAllowedAddresses", config.ha_allowed_addresses)
        self._tls = ServerTls(replace(TlsSettings.of(config), mode=config.tls_ha_mode), clock)
        outgoing = ClientTls.of_server(config) if is_slave and config.tls_ha_mode != DISABLED else None
        if is_slave and config.tls_ha_mode == ENFORCING and outgoing is None:
            raise ConfigError("tls.ha.mode=enforcing on a replica needs tls.enable=true, to reach its master with TLS")
        self.doors: Doors = Doors(
            is_allowed=self._is_allowed,
            mode=config.tls_ha_mode,
            serving=self._serving,
            dialling=None if outgoing is None else client_context(outgoing),
            server_name=None if outgoing is None else outgoing.server_name,
        )

    def open(self) -> None:
        """Of a master: load the certificate and watch it. Raises CometError if it is needed and not there."""
        self._tls.start()
        if self._is_asked and not self._allowed:
            logger.warning("whoever reaches the port of replicas reads the whole log: set haAllowedAddresses")

    def close(self) -> None:
        self._tls.stop()

    def _is_allowed(self, address: str) -> bool:
        return not self._allowed or startup.contains(self._allowed, address)

    def _serving(self) -> ssl.SSLContext | None:
        return self._tls.context
