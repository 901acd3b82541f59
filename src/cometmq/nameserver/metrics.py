"""What a name server shows: who is registered, what it was asked, and whether it is ready. RocketMQ's shows nothing.

cometmq_nameserver_brokers, _topics     gauges
rocketmq_rpc_latency_milliseconds       as a broker's, with node_type="nameserver"
"""

import asyncio
import time
from typing import Final

from cometmq.build_info import build_info
from cometmq.config import NameServerConfig
from cometmq.health import Check
from cometmq.memory import resident_bytes
from cometmq.metrics_settings import own_labels
from cometmq.nameserver.routes import Routes
from cometmq.net.endpoint import Endpoint
from cometmq.net.latency_rows import latency_rows
from cometmq.net.meter import Meter
from cometmq.wire.exposition import COUNTER, GAUGE, HISTOGRAM, INFO, Family, Placed, Series, Value, label_text

HELP: Final = {
    "cometmq_nameserver_brokers": "Registered brokers, replicas included.",
    "cometmq_nameserver_topics": "Topics that brokers registered.",
    "cometmq_connections": "Open connections.",
    "cometmq_process_resident_bytes": "Resident memory.",
    "cometmq_process_cpu_seconds": "Processor time of the process.",
    "cometmq_build": "What runs here.",
    "rocketmq_rpc_latency_milliseconds": "From a request's arrival to its answer.",
}
UNITS: Final = ("bytes", "seconds", "milliseconds")


class NameServerRoom:
    def __init__(self, config: NameServerConfig, routes: Routes, endpoint: Endpoint, node: str) -> None:
        self._routes = routes
        self._endpoint = endpoint
        self._common = {"node_type": "nameserver", "node_id": node, "otel_scope_name": "nameserver-meter"}
        self._common |= own_labels(config)

    def measure(self) -> None:
        self._endpoint.meter = Meter()

    def fatal(self) -> str:
        return ""

    def checks(self) -> list[Check]:
        return [Check("listener", True, f"{len(self._endpoint.connections)} connections")]

    async def families(self) -> list[Family]:
        await asyncio.sleep(0)
        build = build_info()
        made = [
            self._one("cometmq_nameserver_brokers", GAUGE, len(self._routes.presences)),
            self._one("cometmq_nameserver_topics", GAUGE, len(self._routes.topics)),
            self._one("cometmq_connections", GAUGE, len(self._endpoint.connections)),
            self._one("cometmq_process_resident_bytes", GAUGE, resident_bytes() or 0),
            self._one("cometmq_process_cpu_seconds", COUNTER, time.process_time()),
            self._one("cometmq_build", INFO, 1, version=build.version, python=build.python),
        ]
        meter = self._endpoint.meter
        if meter is not None:
            rows = [(labels, Placed(bounds, counts, total)) for labels, bounds, counts, total in latency_rows([meter])]
            series = tuple(Series(label_text(self._common | labels), value) for labels, value in rows)
            name = "rocketmq_rpc_latency_milliseconds"
            made.append(Family(name, HISTOGRAM, HELP[name], "milliseconds", series))
        return made

    def _one(self, name: str, kind: str, value: Value, **labels: str) -> Family:
        unit = next((unit for unit in UNITS if name.endswith(unit)), "")
        return Family(name, kind, HELP[name], unit, (Series(label_text(self._common | labels), value),))
