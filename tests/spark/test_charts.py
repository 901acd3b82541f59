"""Charts and pages: figures kept, pictures well-formed, nothing loaded from elsewhere."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cometmq.spark.charts import bars, lines, page, save, short, table

SVG = "{http://www.w3.org/2000/svg}"


def test_a_line_chart_keeps_its_figures_and_draws_a_point_for_each() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    points = [(start + timedelta(minutes=n), float(n * n)) for n in range(7)]
    chart = lines("squares", {"one": reversed(points), "two": points[:3]}, y_label="count")
    assert chart.series["one"] == points
    tree = ElementTree.fromstring(chart.svg())
    assert len(tree.findall(f"{SVG}circle")) == 10
    assert len(tree.findall(f"{SVG}polyline")) == 2
    texts = [one.text for one in tree.findall(f"{SVG}text")]
    assert {"squares", "count", "one", "two", "00:00:00", "00:06:00", "50"} <= set(texts)


def test_bars_are_as_high_as_their_figures() -> None:
    chart = bars("tags", ["paid", "sent"], {"count": [10, 5]})
    drawn = ElementTree.fromstring(chart.svg()).findall(f"{SVG}rect")
    high, low = (float(one.attrib["height"]) for one in drawn)
    assert high == pytest.approx(2 * low, rel=0.01)


def test_charts_of_nothing_and_of_one_point_can_be_drawn() -> None:
    for chart in (lines("empty", {}), lines("one", {"a": [(1, 0)]}), bars("none", [], {"a": []})):
        ElementTree.fromstring(chart.svg())


def test_a_page_holds_all_it_needs_and_text_of_messages_stays_text(tmp_path: Path) -> None:
    chart = bars("a < b", ["<script>"], {"<i>": [1]})
    text = page("Report & more", [chart, table(["topic", "n"], [("<b>", 1234), (None, 0.5)]), "a <sentence>"])
    assert re.search(r"(src|href)=", text) is None
    assert "<script" not in text
    assert "<b>" not in text
    assert "1,234" in text
    assert save(tmp_path / "deep" / "report.html", text).read_text() == text
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["report.html"]


def test_numbers_are_told_as_people_read_them() -> None:
    assert [short(n) for n in (0, 12, 0.25, 9999, 12_000, 1_250_000, 3.2e9)] == [
        "0", "12", "0.25", "9999", "12k", "1.25M", "3.2G",
    ]  # fmt: skip
