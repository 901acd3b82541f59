"""Charts as SVG and pages as HTML, from plain figures: nothing to install, nothing to load from elsewhere.

    lines("orders a minute", {"orders": [(minute, count), ...]}, y_label="messages")
    bars("messages by tag", ["paid", "sent"], {"count": [12, 7]})
    page("Orders", [chart, table(["tag", "count"], rows), "a sentence"])

A chart keeps its figures (`Chart.series`), so a test compares these and no pixels. In the picture every point has its
value as a tooltip. A point whose x is a moment (datetime) makes a time axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

WIDTH: Final = 760
HEIGHT: Final = 320
LEFT: Final = 72
RIGHT: Final = 16
TOP: Final = 64
BOTTOM: Final = 52
TICKS: Final = 5
# More bars than this would have no room for their labels.
BARS_MAX: Final = 60
COLOURS: Final = ("#2f6fb5", "#d9662b", "#2f8f5b", "#8a56ac", "#b8860b", "#c0405e", "#4a8a93", "#6b6b6b")

X = float | datetime | str
Point = tuple[Any, float]


@dataclass(frozen=True)
class Chart:
    """One picture. `kind` is lines or bars; bars have texts as x."""

    title: str
    kind: str
    series: Mapping[str, Sequence[Point]]
    x_label: str = ""
    y_label: str = ""

    def svg(self) -> str:
        return _Drawing(self).text()


@dataclass(frozen=True)
class Table:
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def html(self) -> str:
        heads = "".join(f"<th>{escape(name)}</th>" for name in self.heads)
        rows = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in self.rows)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def lines(title: str, series: Mapping[str, Iterable[Point]], *, x_label: str = "", y_label: str = "") -> Chart:
    """Each series is drawn in the order of its x: numbers, or moments."""
    sorted_ = {name: sorted(points, key=lambda point: _number(point[0])) for name, points in series.items()}
    return Chart(title, "lines", sorted_, x_label, y_label)


def bars(
    title: str, labels: Sequence[str], series: Mapping[str, Sequence[float]], *, x_label: str = "", y_label: str = ""
) -> Chart:
    """A group of bars for each label, one bar for each series."""
    pairs = {name: list(zip(labels, values, strict=True)) for name, values in series.items()}
    return Chart(title, "bars", {name: points[:BARS_MAX] for name, points in pairs.items()}, x_label, y_label)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    return Table(heads, [tuple(row) for row in rows])


def page(title: str, parts: Iterable[Chart | Table | str]) -> str:
    """One file that a browser shows without anything else. Text that is no chart or table becomes a paragraph."""
    content = []
    for part in parts:
        if isinstance(part, Chart):
            content.append(f"<figure>{part.svg()}</figure>")
        elif isinstance(part, Table):
            content.append(part.html())
        else:
            content.append(f"<p>{escape(part)}</p>")
    return _PAGE.format(title=escape(title), content="\n".join(content), style=_STYLE)


def save(path: str | Path, text: str) -> Path:
    """The whole file at once: who looks at it while it is written anew sees the old one."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_text(text, encoding="utf-8")
    return fresh.replace(target)


class _Drawing:
    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        values = [float(y) for points in chart.series.values() for _, y in points]
        self.high = _rounded_up(max(values, default=1.0))
        self.low = -_rounded_up(-min(values)) if values and min(values) < 0 else 0.0
        moments = [x for points in chart.series.values() for x, _ in points]
        self.is_time = bool(moments) and isinstance(moments[0], datetime)
        self.labels = list(dict.fromkeys(moments)) if chart.kind == "bars" else []
        numbers = [_number(x) for x in moments] if chart.kind == "lines" else []
        self.first, self.last = min(numbers, default=0.0), max(numbers, default=1.0)

    def text(self) -> str:
        drawn = [*self._head(), *self._grid(), *(self._bars() if self.chart.kind == "bars" else self._lines())]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(self.chart.title)}" font-family="system-ui, sans-serif" font-size="12" '
            f'fill="currentColor">{"".join(drawn)}</svg>'
        )

    # Where things are

    def _x(self, value: float) -> float:
        span = (self.last - self.first) or 1.0
        share = 0.5 if self.last == self.first else (value - self.first) / span
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return TOP + (self.high - value) / ((self.high - self.low) or 1.0) * (HEIGHT - TOP - BOTTOM)

    # What is drawn

    def _head(self) -> Iterable[str]:
        yield f'<text x="{LEFT}" y="20" font-size="15" font-weight="600">{escape(self.chart.title)}</text>'
        if self.chart.y_label:
            yield f'<text x="{LEFT - 60}" y="{TOP - 8}" opacity=".7">{escape(self.chart.y_label)}</text>'
        if self.chart.x_label:
            yield _text(WIDTH - RIGHT, HEIGHT - 8, self.chart.x_label, "end")
        if len(self.chart.series) < 2:
            return
        at = float(LEFT)
        for number, name in enumerate(self.chart.series):
            yield f'<rect x="{at:.0f}" y="32" width="10" height="10" rx="2" fill="{_colour(number)}"/>'
            yield _text(at + 14, 41, name, "start")
            at += 34 + 7 * len(name)

    def _grid(self) -> Iterable[str]:
        for step in range(TICKS + 1):
            value = self.low + (self.high - self.low) * step / TICKS
            y = self._y(value)
            yield (
                f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="currentColor" '
                f'stroke-opacity="{0.5 if value == 0 else 0.12}"/>'
            )
            yield _text(LEFT - 8, y + 4, short(value), "end")
        if self.chart.kind == "lines" and self.chart.series:
            for step in range(TICKS + 1):
                value = self.first + (self.last - self.first) * step / TICKS
                if step == 0 or self.last > self.first:
                    yield _text(self._x(value), HEIGHT - BOTTOM + 18, self._x_text(value), "middle")

    def _x_text(self, value: float) -> str:
        if not self.is_time:
            return short(value)
        span_s = self.last - self.first
        form = "%H:%M:%S" if span_s < 600 else "%H:%M" if span_s < 2 * 86_400 else "%m-%d"
        return datetime.fromtimestamp(value, UTC).strftime(form)

    def _lines(self) -> Iterable[str]:
        for number, (name, points) in enumerate(self.chart.series.items()):
            places = [(self._x(_number(x)), self._y(float(y)), x, y) for x, y in points]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
            colour = _colour(number)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'
            for x, y, stated, value in places:
                title = escape(f"{name}: {_x_title(stated)} {short(float(value))}")
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{title}</title></circle>'

    def _bars(self) -> Iterable[str]:
        room = (WIDTH - LEFT - RIGHT) / max(1, len(self.labels))
        wide = room * 0.72 / max(1, len(self.chart.series))
        slots = {label: LEFT + room * number for number, label in enumerate(self.labels)}
        for number, (name, points) in enumerate(self.chart.series.items()):
            for label, value in points:
                x = slots[label] + room * 0.14 + wide * number
                top, bottom = sorted((self._y(float(value)), self._y(0.0)))
                title = escape(f"{name}: {label} {short(float(value))}")
                yield (
                    f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(1.0, wide - 1):.1f}" rx="2" '
                    f'height="{max(0.0, bottom - top):.1f}" fill="{_colour(number)}"><title>{title}</title></rect>'
                )
        letters = max(3, int(room / 6.5))
        for label, x in slots.items():
            yield _text(x + room / 2, HEIGHT - BOTTOM + 18, _shortened(str(label), letters), "middle")


def short(value: float) -> str:
    """A number as people read it: 1.2k, 3.4M, 0.25."""
    if abs(value) < 10_000:
        return f"{value:.3f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}" if abs(value) < 1000 * limit else f"{value / limit:.0f}{unit}"
    return str(value)


def _rounded_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten, so that axes end at plain numbers."""
    if value <= 0 or not math.isfinite(value):
        return 1.0 if value <= 0 else value
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * power >= value * (1 - 1e-9))


def _number(x: X) -> float:
    if isinstance(x, datetime):
        return (x if x.tzinfo is not None else x.replace(tzinfo=UTC)).timestamp()
    return float(x)


def _x_title(x: X) -> str:
    return x.strftime("%Y-%m-%d %H:%M:%S") if isinstance(x, datetime) else x if isinstance(x, str) else short(x)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" opacity=".8">{escape(text)}</text>'


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _cell(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="n">{value:,.3f}</td>' if isinstance(value, float) else f'<td class="n">{value:,}</td>'
    return f"<td>{'' if value is None else escape(str(value))}</td>"


_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 1.5rem 0; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .75rem; border-bottom: 1px solid #8884; }
td.n { text-align: right; }
"""
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style></head>
<body><h1>{title}</h1>
{content}
</body></html>
"""
