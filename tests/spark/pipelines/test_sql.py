"""SQL from topics to a topic: golden pairs of input and output, poison bodies, restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.bodies import Profile, write_schema
from cometmq.spark.parsed import ERROR, SOURCE, struct_of, why_unfit
from cometmq.spark.pipelines import sql
from cometmq.spark.pipelines.sql import view_names
from cometmq.testing import SyncCluster
from tests.support.jsonbodies import send_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = [{"id": n, "price": n * 2.5, "who": f"c{n % 3}"} for n in range(20)]
POISON = [b"no json at all", b'{"id": "seven", "price": 1.0}', b"[1, 2]", b""]


def schema_file(path: Path, topics: dict[str, list[Any]]) -> str:
    schemas = {}
    for topic, bodies in topics.items():
        profile = Profile()
        for body in bodies:
            profile.add_body(json.dumps(body).encode())
        schemas[topic] = profile.schema()
    write_schema(path, schemas)
    return str(path)


def bodies(cluster: SyncCluster, topic: str) -> list[Any]:
    return sorted((json.loads(one.body) for one in cluster.messages(topic)), key=json.dumps)


@pytest.mark.spark
def test_a_stream_of_sql_gives_what_it_should_and_poison_goes_aside(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    for name in ("customers", "gross", "bad"):
        cluster.create_topic(f"{topic}_{name}", queues=2)
    people = [{"name": f"c{n}", "city": f"town{n}"} for n in range(3)]
    send_json(cluster, f"{topic}_customers", people)
    send_json(cluster, topic, ORDERS[:10])
    send_json(cluster, topic, POISON[:3], raw=True, keys=["poison"], properties={"from": "test"})
    settings: dict[str, Any] = {
        "namesrv": cluster.namesrv,
        "topics": f"orders={topic}",
        "lookups": f"customers={topic}_customers",
        "schema": schema_file(tmp_path / "schema.json", {topic: ORDERS, f"{topic}_customers": people}),
        "to": f"{topic}_gross",
        "bad_to": f"{topic}_bad",
        "checkpoint": str(tmp_path / "checkpoint"),
        "delivery": "deduplicated",
        "sql": "SELECT o.id, o.price * 2 AS gross, c.city, concat('order', o.id) AS keys, 'gross' AS tags "
        "FROM orders o JOIN customers c ON c.name = o.who WHERE o.price > 5 AND o._message.keys IS NULL",
    }
    summary = sql(spark, **settings)
    assert summary.figures["rows_read"] >= 13
    golden = [{"id": n, "gross": n * 5.0, "city": f"town{n % 3}"} for n in range(3, 20)]
    assert bodies(cluster, f"{topic}_gross") == sorted(golden[:7], key=json.dumps)
    assert {one.tag for one in cluster.messages(f"{topic}_gross")} == {"gross"}
    assert {one.keys for one in cluster.messages(f"{topic}_gross")} == {(f"order{n}",) for n in range(3, 10)}
    aside = cluster.messages(f"{topic}_bad")
    assert sorted(one.body for one in aside) == sorted(POISON[:3])
    reasons = {one.body: one.properties[ERROR] for one in aside}
    assert reasons[POISON[0]].startswith("the body is no JSON: ")
    assert reasons[POISON[1]] == "field id is a string, the schema says bigint: 'seven'"
    assert reasons[POISON[2]] == "the body is no JSON object but a array"
    assert {one.properties["from"] for one in aside} == {"test"}
    assert all(one.properties[SOURCE].startswith(f"{topic}/") for one in aside)

    send_json(cluster, topic, ORDERS[10:])
    sql(spark, **settings)
    assert bodies(cluster, f"{topic}_gross") == sorted(golden, key=json.dumps)
    assert len(cluster.messages(f"{topic}_bad")) == 3


@pytest.mark.spark
def test_a_batch_of_sql_is_of_everything_and_a_second_try_sends_nothing_twice(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    for name in ("totals", "bad"):
        cluster.create_topic(f"{topic}_{name}", queues=2)
    send_json(cluster, topic, ORDERS)
    send_json(cluster, topic, POISON[:1], raw=True)
    settings: dict[str, Any] = {
        "namesrv": cluster.namesrv,
        "topics": f"orders={topic}",
        "schema": schema_file(tmp_path / "schema.json", {topic: ORDERS}),
        "to": f"{topic}_totals",
        "checkpoint": str(tmp_path / "checkpoint"),
        "delivery": "deduplicated",
        "run": f"run-{topic}",
        "batch": True,
        "sql": "SELECT who, count(*) AS orders, sum(price) AS total FROM orders GROUP BY who",
    }
    with pytest.raises(Exception, match=r"/20: the body does not fit the schema; bad_to=TOPIC"):
        sql(spark, **settings)
    summary = sql(spark, bad_to=f"{topic}_bad", **settings)
    assert (summary.figures["rows"], summary.figures["bad"]) == (3, 1)
    send_json(cluster, topic, ORDERS)
    sql(spark, bad_to=f"{topic}_bad", **settings)
    golden = [
        {"who": f"c{n}", "orders": len(range(n, 20, 3)), "total": sum(2.5 * one for one in range(n, 20, 3))}
        for n in range(3)
    ]
    assert bodies(cluster, f"{topic}_totals") == sorted(golden, key=json.dumps)
    assert [one.body for one in cluster.messages(f"{topic}_bad")] == POISON[:1]


def test_views_have_names_that_sql_takes() -> None:
    assert view_names("orders, my-topic,c=%RETRY%x") == {"orders": "orders", "my_topic": "my-topic", "c": "%RETRY%x"}
    with pytest.raises(ConfigError, match="two topics would be the view a_b: name one of them, as in a_b2=a-b"):
        view_names("a_b,a-b")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"a": {"b": [1, "x"]}}', "field a.b[] is a string, the schema says bigint: 'x'"),
        (b'{"a": 5}', "field a is a bigint, the schema says struct<b:array<bigint>>: 5"),
        (b'{"c": 1.5}', "field c is a double, the schema says bigint: 1.5"),
    ],
)
def test_the_reason_names_the_field(spark: SparkSession, body: bytes, reason: str) -> None:
    assert why_unfit(body, struct_of("a STRUCT<b: ARRAY<BIGINT>>, c BIGINT")) == reason
