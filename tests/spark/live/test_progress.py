"""The line that a pipeline draws while it runs."""

from __future__ import annotations

import io
from typing import Any

from cometmq.spark.pipelines.progress import lag_of, progress


def test_a_line_with_rows_rate_and_lag_is_drawn_and_wiped_at_the_end() -> None:
    out = io.StringIO()
    with progress("mirror", out) as line:
        line(rows=1200, lag=30)
        line.add(5)
        assert line.text().startswith("mirror  1,205 rows  ")
        assert line.text().endswith("rows/s  lag 30")
    assert "mirror  1,200 rows" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_nothing_is_drawn_where_nobody_looks(capsys: Any) -> None:
    with progress("mirror") as line:
        line(rows=1)
        assert not line.is_shown
    told = capsys.readouterr()
    assert told.err == told.out == ""


def test_lag_is_what_was_there_and_not_read() -> None:
    source = {"endOffset": '{"t":{"b":{"0":5,"1":7}}}', "latestOffset": {"t": {"b": {"0": 9, "1": 7, "2": 3}}}}
    assert lag_of({"sources": [source, {"endOffset": None, "latestOffset": None}]}) == 7
