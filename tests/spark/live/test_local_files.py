"""Which files a task may read instead of pulling: those of the broker itself, and only as far as they reach."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from cometmq.spark.columns import COLUMNS
from cometmq.spark.live.local_files import near, read_near
from cometmq.spark.live.offsets import Queue, Range
from cometmq.spark.live.source import read_messages, source_options
from cometmq.spark.options import Options
from cometmq.spark.stores.partitions import StoreDirectory
from cometmq.testing import SyncCluster
from tests.compat.harness.processes import wait_until
from tests.spark.conftest import fill

pytestmark = pytest.mark.spark


def options_for(cluster: SyncCluster, topic: str, **more: str) -> Options:
    return source_options({"namesrvAddr": cluster.namesrv, "subscribe": topic, "readMode": "auto", **more})


def ranges(cluster: SyncCluster, topic: str, count: int) -> list[Range]:
    """The first messages of the first queue of each broker, as soon as its files have them."""
    found = [Range(Queue(topic, broker.name, 0), 0, count) for broker in cluster.brokers]
    for one, broker in zip(found, cluster.brokers, strict=True):
        store = StoreDirectory.at(str(broker.directory / "store"), broker.name)
        wait_until(partial(_reaches, store, one), f"the files of {one.queue}")
    return found


def _reaches(store: StoreDirectory, one: Range) -> bool:
    return store.unit_bounds(one.queue.topic, one.queue.number)[1] >= one.last


def test_the_brokers_own_directory_is_found_by_asking_it(cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 200)
    options = options_for(cluster, topic)
    for one, broker in zip(ranges(cluster, topic, 20), cluster.brokers, strict=True):
        store = near(options, one)
        assert store is not None
        assert store.root == str(broker.directory / "store")
        rows = [row for batch in read_near(store, one, COLUMNS, options, None) for row in batch.to_pylist()]
        pulled = source_options({"namesrvAddr": cluster.namesrv, "subscribe": topic})
        assert rows == [row for batch in read_messages(pulled, one, COLUMNS) for row in batch.to_pylist()]
        assert len(rows) == 20


def test_files_of_another_broker_and_altered_files_are_not_read(
    cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 200)
    one, other = ranges(cluster, topic, 20)
    theirs = str(cluster.brokers[1].directory / "store")
    assert near(options_for(cluster, topic, storePath=theirs), other) is not None
    assert near(options_for(cluster, topic, storePath=theirs), one) is None

    copy = tmp_path / "store"
    shutil.copytree(theirs, copy)
    copied = options_for(cluster, topic, storePath=str(copy))
    assert near(copied, other) is not None
    store = StoreDirectory.at(str(copy), "copy")
    unit = store.unit_slice(topic, 0, other.last - 1, other.last)[0]
    start, path, _ = max(file for file in store.log_files() if file[0] <= unit["offset"])
    with open(path, "r+b") as log:
        log.seek(int(unit["offset"]) - start + int(unit["size"]) - 1)
        log.write(b"?")
    assert near(copied, other) is None
    assert near(copied, Range(other.queue, 0, 10)) is not None


def test_what_files_do_not_have_yet_is_pulled(cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 200)
    options = options_for(cluster, topic)
    (one, _) = ranges(cluster, topic, 20)
    assert near(options, Range(one.queue, 0, 1_000_000)) is None
    assert near(options, Range(one.queue, 0, 0)) is None
    assert near(options_for(cluster, topic, sqlFilter="n = 1"), one) is None
    assert near(options_for(cluster, topic, readMode="remote"), one) is None
