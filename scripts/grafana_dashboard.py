"""Writes packaging/grafana/cometmq.json: one dashboard for brokers, topics and groups, with RocketMQ's names.

    python -m scripts.grafana_dashboard             write it
    python -m scripts.grafana_dashboard --check     exit code 1 if it is not current

A row is a title and its panels; a panel is a title, a unit and expressions with their legends. Grafana's own editor may
change the file afterwards, but then the change belongs here.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).resolve().parent.parent / "packaging" / "grafana" / "cometmq.json"
SCHEMA: Final = 39
WIDTH: Final = 24
HEIGHT: Final = 7
NODE: Final = 'cluster=~"$cluster",node_id=~"$node"'
TOPIC: Final = f'{NODE},topic=~"$topic"'
GROUP: Final = f'{NODE},consumer_group=~"$group"'
PER_ROW: Final = 3

Panel = tuple[str, str, tuple[tuple[str, str], ...]]


def quantile(name: str, by: str, where: str) -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({name}_bucket{{{where}}}[$__rate_interval])))"


def rate(name: str, by: str, where: str) -> str:
    return f"sum by ({by}) (rate({name}{{{where}}}[$__rate_interval]))"


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Is it well",
        (
            (
                "Promises kept",
                "short",
                ((f"min by (node_id, check) (cometmq_ready{{{NODE}}})", "{{node_id}} {{check}}"),),
            ),
            ("Messages in", "cps", ((rate("rocketmq_messages_in_total", "node_id", NODE), "{{node_id}}"),)),
            ("Messages out", "cps", ((rate("rocketmq_messages_out_total", "node_id", NODE), "{{node_id}}"),)),
        ),
    ),
    (
        "Topics",
        (
            ("Messages in", "cps", ((f"topk(20, {rate('rocketmq_messages_in_total', 'topic', TOPIC)})", "{{topic}}"),)),
            ("Bytes in", "Bps", ((f"topk(20, {rate('rocketmq_throughput_in_total', 'topic', TOPIC)})", "{{topic}}"),)),
            ("Message size, 99 %", "bytes", ((quantile("rocketmq_message_size", "topic", TOPIC), "{{topic}}"),)),
        ),
    ),
    (
        "Consumer groups",
        (
            (
                "Lag",
                "short",
                (
                    (
                        f"topk(20, sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{{{GROUP}}}))",
                        "{{consumer_group}} {{topic}}",
                    ),
                ),
            ),
            (
                "Age of the oldest unread message",
                "ms",
                (
                    (
                        "topk(20, max by (consumer_group, topic) "
                        f"(rocketmq_consumer_lag_latency_milliseconds{{{GROUP}}}))",
                        "{{consumer_group}} {{topic}}",
                    ),
                ),
            ),
            (
                "Messages out",
                "cps",
                ((rate("rocketmq_messages_out_total", "consumer_group", GROUP), "{{consumer_group}}"),),
            ),
            (
                "In flight",
                "short",
                (
                    (
                        f"sum by (consumer_group) (rocketmq_consumer_inflight_messages{{{GROUP}}})",
                        "{{consumer_group}}",
                    ),
                ),
            ),
            (
                "Members",
                "short",
                ((f"sum by (consumer_group) (rocketmq_consumer_connections{{{GROUP}}})", "{{consumer_group}}"),),
            ),
            (
                "Ready",
                "short",
                ((f"sum by (consumer_group) (rocketmq_consumer_ready_messages{{{GROUP}}})", "{{consumer_group}}"),),
            ),
        ),
    ),
    (
        "Requests",
        (
            (
                "Requests",
                "reqps",
                ((rate("rocketmq_rpc_latency_milliseconds_count", "request_code", NODE), "{{request_code}}"),),
            ),
            (
                "Not successful",
                "reqps",
                (
                    (
                        rate(
                            "rocketmq_rpc_latency_milliseconds_count",
                            "request_code, response_code",
                            f'{NODE},response_code!="success"',
                        ),
                        "{{request_code}} {{response_code}}",
                    ),
                ),
            ),
            (
                "Time of sends, 99 %",
                "ms",
                (
                    (
                        quantile("rocketmq_rpc_latency_milliseconds", "node_id", f'{NODE},request_code=~"send.*"'),
                        "{{node_id}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Store",
        (
            ("Log", "bytes", ((f"cometmq_commitlog_bytes{{{NODE}}}", "{{node_id}}"),)),
            ("Free on disk", "bytes", ((f"cometmq_disk_free_bytes{{{NODE}}}", "{{node_id}}"),)),
            (
                "Age of the oldest message",
                "ms",
                ((f"rocketmq_storage_message_reserve_time_milliseconds{{{NODE}}}", "{{node_id}}"),),
            ),
            ("Flush behind", "bytes", ((f"rocketmq_storage_flush_behind_bytes{{{NODE}}}", "{{node_id}}"),)),
            ("Dispatch behind", "bytes", ((f"rocketmq_storage_dispatch_behind_bytes{{{NODE}}}", "{{node_id}}"),)),
            ("Time of a flush, 99 %", "s", ((quantile("cometmq_flush_seconds", "node_id", NODE), "{{node_id}}"),)),
        ),
    ),
    (
        "Process",
        (
            (
                "Processor",
                "percentunit",
                ((f"rate(cometmq_process_cpu_seconds_total{{{NODE}}}[$__rate_interval])", "{{node_id}}"),),
            ),
            ("Memory", "bytes", ((f"cometmq_process_resident_bytes{{{NODE}}}", "{{node_id}}"),)),
            ("Loop lag, 99 %", "s", ((quantile("cometmq_loop_lag_seconds", "node_id", NODE), "{{node_id}}"),)),
            ("Connections", "short", ((f"cometmq_connections{{{NODE}}}", "{{node_id}}"),)),
            ("Parked pulls", "short", ((f"cometmq_parked_pulls{{{NODE}}}", "{{node_id}}"),)),
            ("Waiting requests", "short", ((f"rocketmq_processor_watermark{{{NODE}}}", "{{node_id}} {{processor}}"),)),
        ),
    ),
)


def main() -> int:
    text = json.dumps(dashboard(), indent=2) + "\n"
    if "--check" in sys.argv[1:]:
        if FILE.exists() and FILE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{FILE.name} is not current: run python -m scripts.grafana_dashboard", file=sys.stderr)
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


def dashboard() -> dict[str, Any]:
    return {
        "title": "CometMQ",
        "uid": "cometmq",
        "schemaVersion": SCHEMA,
        "tags": ["cometmq", "rocketmq"],
        "timezone": "browser",
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables()},
        "panels": panels(),
    }


def variables() -> list[dict[str, Any]]:
    source = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}
    asked = (
        ("cluster", "label_values(rocketmq_broker_permission, cluster)"),
        ("node", 'label_values(rocketmq_broker_permission{cluster=~"$cluster"}, node_id)'),
        ("topic", 'label_values(rocketmq_messages_in_total{cluster=~"$cluster"}, topic)'),
        ("group", 'label_values(rocketmq_consumer_lag_messages{cluster=~"$cluster"}, consumer_group)'),
    )
    return [source, *(variable(name, query) for name, query in asked)]


def variable(name: str, query: str) -> dict[str, Any]:
    return {
        "type": "query",
        "name": name,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for title, listed in ROWS:
        made.append(
            {"type": "row", "title": title, "id": len(made) + 1, "gridPos": place(0, y, WIDTH, 1), "panels": []}
        )
        y += 1
        for index, panel in enumerate(listed):
            x = index % PER_ROW * (WIDTH // PER_ROW)
            made.append(graph(panel, len(made) + 1, place(x, y + index // PER_ROW * HEIGHT, WIDTH // PER_ROW, HEIGHT)))
        y += -(-len(listed) // PER_ROW) * HEIGHT
    return made


def place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def graph(panel: Panel, number: int, where: dict[str, int]) -> dict[str, Any]:
    title, unit, targets = panel
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries",
        "title": title,
        "id": number,
        "datasource": source,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8, "lineWidth": 1}}},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(targets)
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
