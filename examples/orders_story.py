"""Orders from the shop to the lake, to a chart, and back into a queue. `make demo` runs it.

    orders --send--> topic orders --archive--> lake --SQL--> chart
                                                  \\--replay--> topic orders-again

    python examples/orders_story.py --folder story      # on a cluster of its own, or at COMETMQ_NAMESRV if that is set

Every step can be tried again: the archive has each message once however often it runs, and a replay of the same name
sends nothing twice. The story does both twice and counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq import json_codec
from cometmq.spark import charts, session
from cometmq.spark.pipelines import archive, replay
from cometmq.sync import Client
from cometmq.testing import SyncCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATES = ("paid", "sent", "returned")
SHARES = (6, 3, 1)
GOODS = {"book": 12, "lamp": 45, "chair": 130}
PARSED = "from_json(CAST(body AS STRING), 'order STRING, item STRING, price DOUBLE, at STRING') AS order"


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """The address of the cluster that is set, or of one that lives as long as the story."""
    address = os.environ.get("COMETMQ_NAMESRV")
    if address:
        yield address
        return
    with SyncCluster(brokers=2, settings={"mappedFileSizeCommitLog": 64 << 20}) as embedded:
        yield embedded.namesrv


def send_orders(namesrv: str, topic: str, count: int, seed: int) -> None:
    """A day of a shop, most of it in the evening; the steps of one order stay in order."""
    chance = random.Random(seed)  # noqa: S311 - prices, not secrets
    morning = datetime(2026, 3, 2, tzinfo=UTC)
    with Client(namesrv) as client, client.producer("shop", codec=json_codec) as producer:
        for number in range(count):
            item = chance.choice(list(GOODS))
            moment = morning + timedelta(hours=24 * chance.betavariate(5, 2))
            value = {"order": f"o{number}", "item": item, "price": GOODS[item], "at": moment.isoformat()}
            (state,) = chance.choices(STATES, SHARES)
            producer.send_soon(topic, value, tag=state, keys=[f"o{number}"], ordering_key=f"o{number}")
        producer.flush()


def orders(spark: SparkSession, lake: Path, topic: str) -> DataFrame:
    """The orders of the lake, as columns."""
    raw = spark.read.format("cometmq_archive").option("subscribe", topic).load(str(lake))
    return raw.selectExpr("tags AS state", PARSED).select("state", "order.*")


def draw(frame: DataFrame, target: Path) -> dict[str, Any]:
    """A page with orders and turnover by the hour; the figures that it shows."""
    hourly = (
        frame.selectExpr("unix_timestamp(date_trunc('HOUR', to_timestamp(at))) AS hour", "state", "price")
        .groupBy("hour", "state")
        .agg({"price": "sum", "state": "count"})
        .collect()
    )
    series: dict[str, list[tuple[Any, float]]] = {state: [] for state in STATES}
    for row in hourly:
        series[row["state"]].append((datetime.fromtimestamp(row["hour"], UTC), float(row["count(state)"])))
    turnover = {state: sum(row["sum(price)"] for row in hourly if row["state"] == state) for state in STATES}
    counts = {state: int(sum(value for _, value in series[state])) for state in STATES}
    parts: list[charts.Chart | charts.Table | str] = [
        charts.lines("orders by the hour", series, y_label="orders"),
        charts.bars("turnover by state", list(STATES), {"turnover": [turnover[state] for state in STATES]}),
        charts.table(["state", "orders", "turnover"], [(state, counts[state], turnover[state]) for state in STATES]),
    ]
    charts.save(target, charts.page("A day of orders", parts))
    return {"counts": counts, "turnover": sum(turnover.values())}


def story(spark: SparkSession, namesrv: str, folder: Path, count: int, seed: int) -> dict[str, Any]:
    name = time.strftime("%Y%m%d%H%M%S")
    topic, again = f"orders-{name}", f"orders-again-{name}"
    with Client(namesrv) as client, client.admin() as admin:
        for one in (topic, again):
            admin.create_topic(one, queues=4)
    lake = folder / "lake"

    began = time.monotonic()
    send_orders(namesrv, topic, count, seed)
    print(f"queue    {count} orders sent to {topic} in {time.monotonic() - began:.1f} s")

    began = time.monotonic()
    kept = [archive(spark, namesrv=namesrv, topics=topic, root=str(lake)).figures["rows"] for _ in range(2)]
    print(f"lake     {kept[0]} rows in {lake} in {time.monotonic() - began:.1f} s; a second run adds {kept[1]}")

    chart = folder / "orders.html"
    figures = draw(orders(spark, lake, topic), chart)
    told = ", ".join(f"{number} {state}" for state, number in figures["counts"].items())
    print(f"chart    {told}; turnover {figures['turnover']:.0f}")

    for _ in range(2):  # the second one has nothing left to do
        replay(spark, root=str(lake), namesrv=namesrv, to=again, run=name, topics=topic, where="tags = 'returned'")
    returned = spark.read.format("cometmq").options(namesrvAddr=namesrv, subscribe=again).load()
    sent, distinct = returned.count(), returned.select("keys").distinct().count()
    print(f"replay   {sent} returned orders sent to {again}, {distinct} of them different; run twice")
    print(f"page     {chart.resolve()}")
    return {"kept": kept, "replayed": (sent, distinct), "chart": chart, **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders -> queue -> lake -> chart -> replay.")
    parser.add_argument("--folder", type=Path, help="where lake and chart go; default: a new temporary directory")
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="cometmq-story-"))
    folder.mkdir(parents=True, exist_ok=True)
    spark = session("orders-story")
    try:
        with cluster() as namesrv:
            story(spark, namesrv, folder, options.orders, options.seed)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
