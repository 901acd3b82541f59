"""What a proxy shows: who is connected, and whether it can serve.

    cometmq_connections, cometmq_proxy_clients, cometmq_proxy_requests_waiting, cometmq_process_*, cometmq_build

It is ready while it listens, has a certificate if it needs one, and a name server has answered its last question.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from cometmq.build_info import build_info
from cometmq.health import Check
from cometmq.memory import resident_bytes
from cometmq.metrics_settings import own_labels
from cometmq.wire.exposition import COUNTER, GAUGE, INFO, Family, Series, Value, label_text

if TYPE_CHECKING:
    from cometmq.proxy.config import ProxyConfig
    from cometmq.proxy.server import Proxy

HELP: Final = {
    "cometmq_connections": "Open connections.",
    "cometmq_proxy_clients": "gRPC clients that have sent their settings.",
    "cometmq_proxy_requests_waiting": "Requests that wait for a broker.",
    "cometmq_process_resident_bytes": "Resident memory.",
    "cometmq_process_cpu_seconds": "Processor time of the process.",
    "cometmq_build": "What runs here.",
}
UNITS: Final = ("bytes", "seconds")


class ProxyRoom:
    def __init__(self, config: ProxyConfig, proxy: Proxy) -> None:
        self._proxy = proxy
        self._common = {"node_type": "proxy", "node_id": proxy.address, "otel_scope_name": "proxy-meter"}
        self._common |= own_labels(config)

    def fatal(self) -> str:
        return ""

    def checks(self) -> list[Check]:
        proxy = self._proxy
        cause = proxy.backend.cluster.unreachable
        brokers = len(proxy.backend.cluster.addresses)
        return [
            Check("listener", True, f"{len(proxy.server.connections)} connections"),
            Check("name server", not cause, cause or f"answered, {brokers} brokers are known"),
        ]

    async def families(self) -> list[Family]:
        await asyncio.sleep(0)
        proxy, build = self._proxy, build_info()
        return [
            self._one("cometmq_connections", GAUGE, len(proxy.server.connections)),
            self._one("cometmq_proxy_clients", GAUGE, len(proxy.front.desk.clients.table)),
            self._one("cometmq_proxy_requests_waiting", GAUGE, proxy.backend.waiting),
            self._one("cometmq_process_resident_bytes", GAUGE, resident_bytes() or 0),
            self._one("cometmq_process_cpu_seconds", COUNTER, time.process_time()),
            self._one("cometmq_build", INFO, 1, version=build.version, python=build.python),
        ]

    def _one(self, name: str, kind: str, value: Value, **labels: str) -> Family:
        unit = next((unit for unit in UNITS if name.endswith(unit)), "")
        return Family(name, kind, HELP[name], unit, (Series(label_text(self._common | labels), value),))
