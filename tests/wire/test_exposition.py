"""Metrics as text: what Prometheus' parsers read of it."""

import pytest

from cometmq.wire.exposition import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    INFO,
    Family,
    Placed,
    Series,
    as_open_metrics,
    as_text,
    label_text,
)
from tests.support.scraping import Scrape

HOSTILE = 'a"b\\c\nd} 1\n# EOF'
FAMILIES = [
    Family("z_gauge", GAUGE, "a gauge", "", (Series(label_text({"name": HOSTILE, "b": "2"}), 1.5), Series("", 2.0))),
    Family(
        "x_time_milliseconds", HISTOGRAM, "time", "milliseconds", (Series('a="1"', Placed((1, 10), (2, 3, 4), 99)),)
    ),
    Family("y_lag", GAUGE, "", "", (Series("", 22343073792),)),
    Family("y_enqueue", COUNTER, "counted", "", (Series("", 7),)),
    Family("a_build", INFO, "what runs", "", (Series('version="1"', 1),)),
]


@pytest.mark.parametrize("is_open", [False, True])
def test_both_formats_are_read_back_by_prometheus(is_open: bool) -> None:
    text = as_open_metrics(FAMILIES) if is_open else as_text(FAMILIES)
    read = Scrape(text, is_open=is_open)
    assert read.value("z_gauge", name=HOSTILE) == 1.5
    assert read.value("y_lag") == 22343073792
    assert read.value("y_enqueue_total") == 7
    assert read.value("a_build_info", version="1") == 1
    assert [read.value("x_time_milliseconds_bucket", le=le) for le in ("1.0", "10.0", "+Inf")] == [2, 5, 9]
    assert read.value("x_time_milliseconds_count") == 9
    assert read.value("x_time_milliseconds_sum") == 99


def test_families_are_sorted_as_rocketmqs_exporter_sorts_them() -> None:
    names = [line.split()[2] for line in as_text(FAMILIES).splitlines() if line.startswith("# TYPE")]
    assert names == ["a_build_info", "x_time_milliseconds", "y_enqueue_total", "y_lag", "z_gauge"]


def test_the_open_format_says_units_first_types_and_its_end() -> None:
    lines = as_open_metrics(FAMILIES).splitlines()
    assert lines[-1] == "# EOF"
    assert "# UNIT x_time_milliseconds milliseconds" in lines
    assert lines.index("# TYPE y_enqueue counter") < lines.index("# HELP y_enqueue counted")


def test_numbers_have_a_decimal_point_and_counts_have_none() -> None:
    lines = as_text(FAMILIES).splitlines()
    assert "y_enqueue_total 7.0" in lines
    assert 'x_time_milliseconds_bucket{a="1",le="1.0"} 2' in lines
    assert 'x_time_milliseconds_sum{a="1"} 99.0' in lines
