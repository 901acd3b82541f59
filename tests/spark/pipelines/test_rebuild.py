"""Queues and index made anew from the log: the same bytes as the broker's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.clock import ManualClock
from cometmq.errors import ConfigError, StoreError
from cometmq.spark.pipelines import audit, rebuild
from cometmq.store.disk import OsDisk
from cometmq.store.options import StoreOptions
from cometmq.store.queues.index import KEY, TAG, Index
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill
from tests.support.golden import StoreName, copy_golden_store, golden_messages, golden_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
GOLDEN: dict[str, Any] = {"index_slots": 500, "index_entries": 2000}
EVER = (0, 1 << 60)


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_rebuilt_queues_and_index_are_byte_for_byte_those_of_the_java_broker(
    spark: SparkSession, tmp_path: Path, name: StoreName
) -> None:
    store = golden_store(name)
    summary = rebuild(spark, store=str(store), to=str(tmp_path / "made"), partition_mib=1, **GOLDEN)
    assert content(tmp_path / "made" / "consumequeue") == content(store / "consumequeue")
    assert list(content(tmp_path / "made" / "index").values()) == list(content(store / "index").values())
    assert summary.figures["damaged_places"] == 0
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["consumequeue", "index"]
    options = StoreOptions(root_dir=str(tmp_path / "made"), **GOLDEN)
    java, ours = (Index(OsDisk(), one, ManualClock()) for one in (StoreOptions(root_dir=str(store), **GOLDEN), options))
    java.load(False, 0)
    ours.load(False, 0)
    asked = 0
    for message in golden_messages(name):
        questions = [(key, KEY) for key in (message["properties"].get("KEYS") or "").split()]
        questions += [(tag, TAG) for tag in (message["properties"].get("TAGS"),) if tag]
        for text, kind in questions:
            found = ours.query(message["topic"], text, 64, *EVER, kind)
            assert found == java.query(message["topic"], text, 64, *EVER, kind)
            assert found
            asked += 1
    assert asked > 50
    java.close()
    ours.close()


def test_a_store_of_our_own_broker_is_made_anew_in_place_and_killed_runs_end_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "mappedFileSizeConsumeQueue": 20_000,
        "mappedFileSizeCommitLog": 1 << 20,
        "brokerFastFailureEnable": False,
    }
    settings |= {"maxHashSlotNum": 1000, "maxIndexNum": 4000}
    with SyncCluster(directory=tmp_path / "cluster", settings=settings) as cluster:
        for name in ("orders", "bills"):
            cluster.create_topic(name, queues=2)
            fill(cluster, name, 6000)
    (store,) = [path.parent for path in (tmp_path / "cluster").rglob("commitlog")]
    before = {kind: content(store / kind) for kind in ("consumequeue", "index")}
    assert len(before["index"]) > 5
    assert len(list((store / "commitlog").iterdir())) > 2
    sizes: dict[str, Any] = {"index_slots": 1000, "index_entries": 4000, "partition_mib": 1}

    shutil.rmtree(store / "index")
    spoilt = store / "consumequeue" / "orders" / "0" / f"{20_000:020d}"
    assert spoilt.stat().st_size == 20_000
    spoilt.write_bytes(b"\x01" * 20_000)
    points: list[str] = []

    def killed(point: str) -> None:
        points.append(point)
        if point == "rebuild in swap" and points.count(point) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["cometmq.spark.pipelines.rebuild"], "at", killed)
    with pytest.raises(KeyboardInterrupt):
        rebuild(spark, store=str(store), **sizes)
    assert (store / "rebuild.ready").exists()
    summary = rebuild(spark, store=str(store), **sizes)
    assert summary.figures["messages"] >= 12_000
    assert content(store / "consumequeue") == before["consumequeue"]
    assert list(content(store / "index").values()) == list(before["index"].values())
    assert [path.name for path in store.iterdir() if "rebuild" in path.name] == []
    assert audit(spark, store=str(store))[1] == []


def test_numbers_behind_a_damaged_place_stay_with_their_messages(spark: SparkSession, tmp_path: Path) -> None:
    store = copy_golden_store("clean", tmp_path / "store")
    message = [one for one in golden_messages("clean") if one["topic"] == "GoldenNormalA"][10]
    (file,) = (store / "commitlog").iterdir()
    data = bytearray(file.read_bytes())
    data[message["commitLogOffset"] + 4] ^= 0xFF
    file.write_bytes(data)
    before = content(store / "consumequeue")
    summary = rebuild(spark, store=str(store), **GOLDEN)
    assert summary.figures["damaged_places"] == 1
    after = content(store / "consumequeue")
    changed = [name for name in before if before[name] != after[name]]
    assert changed == [f"GoldenNormalA/{message['queueId']}/{0:020d}"]
    at = message["queueOffset"] * 20
    old, new = before[changed[0]], after[changed[0]]
    assert new[at : at + 20] == old[at + 20 : at + 40]
    assert new[at + 20 :] == old[at + 20 :]


def test_a_store_in_use_and_wrong_sizes_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = copy_golden_store("clean", tmp_path / "store")
    with pytest.raises(ConfigError, match=r"has 42040 bytes, index_slots=5000000 .* give the broker's maxHashSlotNum"):
        rebuild(spark, store=str(store))
    (tmp_path / "made" / "index").mkdir(parents=True)
    with pytest.raises(ConfigError, match="has queues or an index already"):
        rebuild(spark, store=str(store), to=str(tmp_path / "made"))
    with SyncCluster(directory=tmp_path / "cluster") as cluster:
        cluster.create_topic("orders")
        (used,) = [path.parent for path in (tmp_path / "cluster").rglob("commitlog")]
        with pytest.raises(StoreError, match="another broker uses this store directory"):
            rebuild(spark, store=str(used))
