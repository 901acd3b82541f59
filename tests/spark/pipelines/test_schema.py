"""Schemas of bodies: what is inferred, what is told of changes, and the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.bodies import Profile, drift, read_schema
from cometmq.spark.pipelines import schema
from cometmq.testing import SyncCluster
from tests.support.jsonbodies import send_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def profile(*bodies: Any) -> Profile:
    made = Profile()
    for body in bodies:
        made.add_body(body if isinstance(body, bytes) else json.dumps(body).encode())
    return made


def test_a_schema_fits_all_that_was_seen() -> None:
    made = profile(
        {
            "id": 1,
            "price": 2,
            "who": {"name": "a"},
            "lines": [{"n": 1}, {"n": None, "x": True}],
            "odd": 1,
            "none": None,
        },
        {"id": 2, "price": 2.5, "who": {"name": "b", "age": 3}, "lines": [], "odd": {"a": 1}, "big": 1 << 70},
        b"no json",
        [1],
    )
    told = made.schema()
    assert told["ddl"] == (
        "`big` DOUBLE, `id` BIGINT, `lines` ARRAY<STRUCT<`n`: BIGINT, `x`: BOOLEAN>>, `none` STRING, `odd` STRING, "
        "`price` DOUBLE, `who` STRUCT<`age`: BIGINT, `name`: STRING>"
    )
    assert (told["messages"], told["bad"]) == (2, 2)
    fields = {one["path"]: one for one in told["fields"]}
    assert [path for path, one in fields.items() if one["conflict"]] == ["odd"]
    assert fields["odd"]["kinds"] == {"bigint": 1, "struct": 1}
    assert fields["none"]["null_rate"] == 1.0
    assert fields["who.age"]["null_rate"] == 0.5
    assert fields["lines[].n"]["null_rate"] == 0.5
    assert fields["who.name"]["examples"] == ["a", "b"]


def test_profiles_made_apart_add_up_to_the_one_made_at_once() -> None:
    bodies: list[Any] = [{"a": n, "b": [n, str(n)] if n % 2 else None} for n in range(20)]
    parts = [profile(*bodies[:7]), profile(*bodies[7:])]
    joined = Profile()
    for one in parts:
        joined.add(Profile.from_json(one.to_json()))
    assert joined.schema() == profile(*bodies).schema()


def test_drift_tells_what_came_went_and_changed() -> None:
    before = profile(*[{"id": n, "gone": 1, "kind": 1, "often": n, "in": {"a": 1}} for n in range(10)]).schema()
    later = [{"id": n, "kind": "x", "often": n if n < 5 else None, "in": {"a": 1, "b": 2}} for n in range(10)]
    told = [(one.kind, one.path, one.before, one.after) for one in drift("t", "file", before, profile(*later).schema())]
    assert told == [
        ("removed", "gone", "BIGINT", ""),
        ("added", "in.b", "", "BIGINT"),
        ("type", "kind", "BIGINT", "STRING"),
        ("nulls", "often", "0.0", "0.5"),
    ]
    assert drift("t", "file", before, before) == []


def test_an_object_that_is_a_table_does_not_grow_the_schema_without_end() -> None:
    made = profile(*[{f"key{n}": 1 for n in range(i * 500, i * 500 + 500)} for i in range(8)])
    assert len(made.places) <= 2002
    assert made.left_out > 1900


@pytest.mark.spark
def test_schemas_of_topics_are_inferred_and_kept_in_a_file(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    send_json(cluster, topic, [{"id": n, "price": n / 2, "city": None if n % 4 else "Kiel"} for n in range(40)])
    out = tmp_path / "schema.json"
    summary, changes = schema(spark, namesrv=cluster.namesrv, topics=topic, out=str(out), by_day=True)
    assert (summary.figures["messages"], summary.figures["bad"], changes) == (40, 0, [])
    told = read_schema(out)[topic]
    assert told["ddl"] == "`city` STRING, `id` BIGINT, `price` DOUBLE"
    assert {one["path"]: one["null_rate"] for one in told["fields"]}["city"] == 0.75

    send_json(cluster, topic, [{"id": f"n{n}", "price": 1.5, "city": "Kiel", "paid": True} for n in range(60)])
    _, changes = schema(spark, namesrv=cluster.namesrv, topics=topic, out=str(out))
    assert [(one.kind, one.path) for one in changes] == [("nulls", "city"), ("type", "id"), ("added", "paid")]
    assert [one["kinds"] for one in read_schema(out)[topic]["fields"] if one["conflict"]] == [
        {"bigint": 40, "string": 60}
    ]


def test_a_file_that_is_no_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file .*pipeline run schema"):
        read_schema(tmp_path / "none.json")
    (tmp_path / "odd.json").write_text("[]")
    with pytest.raises(ConfigError, match="is no schema file"):
        read_schema(tmp_path / "odd.json")
