"""Sets under Java 5.5.0 clients that know nothing of them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.harness.shell import JavaShell
from tests.failover.java_load import JavaLoad, with_java_load
from tests.failover.real_set import Judged, Load, RealSet
from tests.failover.rocketmq_set import HEALTHY_S, RocketMqSet
from tests.failover.test_processes import Faults, document_of, healthy, percentile
from tests.support import length
from tests.support.etcd import Etcd

pytestmark = pytest.mark.interop

STOCK_POLL_MS = 30_000
# So that a broker that stops need not forward for half a minute; `long` takes what a stock client has.
QUICK_POLL_MS = 2_000
FAULTS = length.count("COMETMQ_SET_JAVA_FAULTS", 20, 60, 300)
SEED = int(os.environ.get("COMETMQ_SET_SEED", "1"))


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    nodes = Etcd(tmp_path / "etcd", 3)
    yield nodes
    nodes.stop()


@pytest.fixture
def a_set(tmp_path: Path, etcd: Etcd) -> Iterator[RealSet]:
    made = RealSet(tmp_path / "set", etcd)
    yield made
    made.stop()


def judge(a_set: RealSet, load: JavaLoad, master: int) -> Judged:
    a_set.stop()
    judged = Judged(load, a_set.log_of(master))
    print(f"{judged} unknown={load.unknown} errors={len(load.errors)} seen={len(load.seen)} skipped={len(load.back)}")
    assert judged.is_good, str(judged)
    assert not load.back, load.back[:3]
    missed = {(queue, offset) for _, queue, offset, _ in load.acked} - load.seen.keys()
    assert not missed, f"{len(missed)} acked messages never came to the consumer: {sorted(missed)[:3]}"
    return judged


def master_of(etcd: Etcd, a_set: RealSet) -> int:
    document, _ = asyncio.run(document_of(etcd))
    return a_set.number_at(document.members[document.master].address)


@pytest.mark.mission("FO-05")
def test_planned_switches_give_a_stock_producer_no_error(java55: JavaShell, etcd: Etcd, a_set: RealSet) -> None:
    """Routes are read each 30 s, so all of this is forwarded."""
    faults = Faults(a_set, SEED)
    gaps: list[float] = []

    async def run(load: Load) -> None:
        for _ in range(length.count("COMETMQ_SET_SWITCHES", 3, 10, 50)):
            document = await healthy(etcd, load)
            began_s = time.monotonic()
            await faults.planned(document, load)
            await healthy(etcd, load)
            gaps.append(load.gap_after(began_s, time.monotonic()))

    load = asyncio.run(with_java_load(java55, a_set.name_server, run, poll_ms=STOCK_POLL_MS, retries=2))
    print(f"{len(gaps)} switches, longest gap between acks {max(gaps) * 1000:.0f} ms")
    assert not load.errors, load.errors[:3]
    assert not load.unknown
    judge(a_set, load, master_of(etcd, a_set))


@pytest.mark.mission("FO-05")
@pytest.mark.parametrize(
    "poll_ms", [QUICK_POLL_MS, pytest.param(STOCK_POLL_MS, marks=[pytest.mark.long, pytest.mark.reference])]
)
def test_a_rolling_restart_gives_a_stock_producer_no_error(
    java55: JavaShell, etcd: Etcd, a_set: RealSet, poll_ms: int
) -> None:
    """SIGTERM to each of the three, the master included, one after the other."""

    async def run(load: Load) -> None:
        for number in range(3):
            await healthy(etcd, load)
            child = a_set.brokers[number]
            assert child is not None
            child.send(signal.SIGTERM)
            assert await asyncio.to_thread(child.process.wait, 90) == 0
            a_set.kill(number)
            a_set.start(number)
            await asyncio.to_thread(a_set.ready, number)
        await healthy(etcd, load)

    load = asyncio.run(with_java_load(java55, a_set.name_server, run, poll_ms=poll_ms, retries=2))
    print(f"longest gap between acks {load.gap_after(0, time.monotonic()) * 1000:.0f} ms")
    assert not load.errors, load.errors[:3]
    assert not load.unknown
    judge(a_set, load, master_of(etcd, a_set))


@pytest.mark.repeated
@pytest.mark.mission("FO-07")
def test_faults_under_java_clients_lose_move_and_reorder_nothing(java55: JavaShell, etcd: Etcd, a_set: RealSet) -> None:
    """COMETMQ_SET_JAVA_FAULTS=300 pytest tests/compat/test_failover_java.py -k faults -s"""
    faults = Faults(a_set, SEED)

    async def run(load: Load) -> None:
        await faults.run(load, FAULTS)

    load = asyncio.run(with_java_load(java55, a_set.name_server, run, poll_ms=100, retries=0))
    for kind, gaps in sorted(faults.gaps.items()):
        middle, worst = (percentile(gaps, part) * 1000 for part in (0.5, 0.99))
        print(f"  {kind}: n={len(gaps)} p50={middle:.0f} ms p99={worst:.0f} ms")
    judge(a_set, load, master_of(etcd, a_set))


@pytest.mark.long
@pytest.mark.reference
@pytest.mark.mission("FO-07")
def test_unavailability_beside_that_of_rocketmq_with_its_controller(
    java55: JavaShell, etcd: Etcd, a_set: RealSet, tmp_path: Path
) -> None:
    """The same program for both, in one run: kill, freeze, planned switch. Two copies before an ack at both."""
    rounds = length.count("COMETMQ_SET_ANCHOR", 1, 1, 5)
    ours = Faults(a_set, SEED)
    theirs: dict[str, list[float]] = {}

    async def run_ours(load: Load) -> None:
        await ours.run(load, rounds, ["kill", "freeze", "planned"])

    load = asyncio.run(with_java_load(java55, a_set.name_server, run_ours, poll_ms=100, retries=0))
    judge(a_set, load, master_of(etcd, a_set))
    other = RocketMqSet(tmp_path / "rocketmq")

    async def run_theirs(load: Load) -> None:
        for kind, act in (("kill", other.kill), ("freeze", other.freeze), ("planned", other.planned)) * rounds:
            await other.healthy(load)
            began_s = time.monotonic()
            await act(load)
            if not await other.healthy(load):
                print(f"  RocketMQ's set was not back in sync {HEALTHY_S:g} s after {kind}")
            theirs.setdefault(kind, []).append(load.gap_after(began_s, time.monotonic()))

    try:
        asyncio.run(with_java_load(java55, other.name_server, run_theirs, poll_ms=100, retries=0))
    finally:
        other.stop()
    for kind, gaps in theirs.items():
        mine, its = percentile(ours.gaps[kind], 0.5) * 1000, percentile(gaps, 0.5) * 1000
        print(f"  {kind}: ours {mine:.0f} ms, RocketMQ's {its:.0f} ms, ratio {its / max(1.0, mine):.1f}")
    assert set(theirs) == set(ours.gaps)
