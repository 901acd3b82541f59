"""Metrics as text, in the two formats that Prometheus reads. Values in, text out.

    text 0.0.4                                   OpenMetrics 1.0.0
    # HELP rocketmq_messages_in_total ...        # TYPE rocketmq_messages_in counter
    # TYPE rocketmq_messages_in_total counter    # HELP rocketmq_messages_in ...
    rocketmq_messages_in_total{...} 6.0          rocketmq_messages_in_total{...} 6.0
                                                 ... # EOF

The name of a counter is written here without `_total`, which is how families are sorted: `timer_dequeue_total` stands
before `timer_dequeue_lag` as in RocketMQ's exporter. Labels are sorted by name, `le` last. Gauges, counters and sums
have a decimal point, counts have none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
INFO: Final = "info"

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES: Final = {"\\": r"\\", "\n": r"\n", '"': r"\""}


@dataclass(frozen=True, slots=True)
class Placed:
    """A histogram's value. `counts` are by bucket, not added up, and have one more entry than `bounds`."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


Value = float | Placed


@dataclass(frozen=True, slots=True)
class Series:
    """`labels`: `a="1",b="2"`, sorted and escaped, see `label_text`."""

    labels: str
    value: Value


@dataclass(frozen=True, slots=True)
class Family:
    """`name` without `_total` or `_info`, but with its unit."""

    name: str
    kind: str
    help: str
    unit: str
    series: tuple[Series, ...]


def label_text(labels: Mapping[str, str]) -> str:
    return ",".join([f'{name}="{escaped(value)}"' for name, value in sorted(labels.items())])


def escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return "".join([_ESCAPES.get(character, character) for character in value])
    return value


def as_text(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for family in sorted(families, key=lambda one: one.name):
        name = sample_name(family)
        kind = GAUGE if family.kind == INFO else family.kind
        lines.append(f"# HELP {name} {_one_line(family.help)}\n# TYPE {name} {kind}")
        _append(lines, family, name)
    return "\n".join(lines) + "\n" if lines else ""


def as_open_metrics(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for family in sorted(families, key=lambda one: one.name):
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit and family.name.endswith(f"_{family.unit}"):
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {_one_line(family.help)}")
        _append(lines, family, sample_name(family))
    lines.append("# EOF")
    return "\n".join(lines) + "\n"


def sample_name(family: Family) -> str:
    return f"{family.name}{ {COUNTER: '_total', INFO: '_info'}.get(family.kind, '') }"


def _append(lines: list[str], family: Family, name: str) -> None:
    for series in family.series:
        value = series.value
        if isinstance(value, Placed):
            _append_buckets(lines, name, series.labels, value)
        else:
            lines.append(f"{name}{{{series.labels}}} {number(value)}" if series.labels else f"{name} {number(value)}")


def _append_buckets(lines: list[str], name: str, labels: str, placed: Placed) -> None:
    before = f"{labels}," if labels else ""
    total = 0
    for bound, count in zip(placed.bounds, placed.counts, strict=False):
        total += count
        lines.append(f'{name}_bucket{{{before}le="{float(bound)}"}} {total}')
    total += placed.counts[-1]
    lines.append(f'{name}_bucket{{{before}le="+Inf"}} {total}')
    lines.append(f"{name}_count{{{labels}}} {total}")
    lines.append(f"{name}_sum{{{labels}}} {number(placed.sum)}")


def number(value: float) -> str:
    return repr(float(value))


def _one_line(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
