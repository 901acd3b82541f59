"""Three brokers as processes, etcd as a process, faults one after the other: nothing acked is lost, moved or reordered.

    COMETMQ_SET_FAULTS=300 pytest tests/failover/test_processes.py -k faults -s
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cometmq import Client
from cometmq.clock import SystemClock
from cometmq.failover import document as documents
from cometmq.failover.document import Document
from cometmq.failover.keeper import document_key
from cometmq.failover.stores import StoreUnknown, open_store
from tests.failover.real_set import Judged, Load, RealSet, with_load
from tests.support import length
from tests.support.etcd import Etcd

FAULTS = length.count("COMETMQ_SET_FAULTS", 8, 60, 300)
SEED = int(os.environ.get("COMETMQ_SET_SEED", "1"))
HEALTHY_S = 30.0


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    nodes = Etcd(tmp_path / "etcd", 3)
    yield nodes
    nodes.stop()


async def document_of(etcd: Etcd) -> tuple[Document, int]:
    store = open_store(etcd.address, SystemClock())
    try:
        while True:
            with contextlib.suppress(StoreUnknown):
                data, version = await store.get(document_key("DefaultCluster", "a"))
                if data is not None:
                    return documents.decode(data), version
            await asyncio.sleep(0.05)
    finally:
        await store.stop()


async def healthy(etcd: Etcd, load: Load) -> Document:
    """All three in sync, nobody sealed, and acks come."""
    end_s = time.monotonic() + HEALTHY_S
    while True:
        document, _ = await document_of(etcd)
        count = len(load.acked)
        await asyncio.sleep(0.1)
        if len(document.in_sync) == 3 and not document.seals and len(load.acked) > count:
            return document
        assert time.monotonic() < end_s, f"not healthy again in {HEALTHY_S:g} s: {document}, {load.errors[-2:]}"


class Faults:
    """One of each kind after the other, in an order by the seed; notes how long nothing was acked."""

    def __init__(self, a_set: RealSet, seed: int) -> None:
        self.gaps: dict[str, list[float]] = {}
        self._set = a_set
        self._chance = random.Random(seed)
        self._acts = {
            "kill": self.kill,
            "freeze": self.freeze,
            "planned": self.planned,
            "terminate": self.terminate,
            "kill a replica": self.kill_replica,
            "kill etcd's leader": self.kill_etcd_leader,
            "freeze etcd": self.freeze_etcd,
            "no etcd": self.no_etcd,
            "compact etcd": self.compact_etcd,
        }

    async def run(self, load: Load, count: int, only: Sequence[str] = ()) -> None:
        """`count` faults; with `only`, so many of each of these kinds."""
        kinds: list[str] = []
        for _ in range(count * len(only) if only else count):
            if not kinds:
                kinds = list(only or self._acts)
                self._chance.shuffle(kinds)
            kind = kinds.pop()
            document = await healthy(self._set.etcd, load)
            began_s = time.monotonic()
            await self._acts[kind](document, load)
            await healthy(self._set.etcd, load)
            self.gaps.setdefault(kind, []).append(load.gap_after(began_s, time.monotonic()))

    def _master(self, document: Document) -> int:
        return self._set.number_at(document.members[document.master].address)

    async def _restart(self, number: int) -> None:
        self._set.start(number)
        await asyncio.to_thread(self._set.ready, number)

    async def kill(self, document: Document, load: Load) -> None:
        number = self._master(document)
        self._set.kill(number)
        await self._acks(load)
        await self._restart(number)

    async def kill_replica(self, document: Document, load: Load) -> None:
        number = (self._master(document) + 1) % 3
        self._set.kill(number)
        await self._acks(load)
        await self._restart(number)

    async def freeze(self, document: Document, load: Load) -> None:
        number = self._master(document)
        self._set.signal(number, signal.SIGSTOP)
        await self._acks(load)
        self._set.signal(number, signal.SIGCONT)

    async def planned(self, document: Document, load: Load) -> None:
        store = open_store(self._set.etcd.address, SystemClock())
        try:
            while True:
                now, version = await document_of(self._set.etcd)
                if now.epoch > document.epoch:
                    return
                if not now.wish:
                    heir = next(number for number in now.in_sync if number != now.master)
                    with contextlib.suppress(StoreUnknown):
                        await store.swap(
                            document_key("DefaultCluster", "a"), version, documents.wished(now, heir).encode()
                        )
                await asyncio.sleep(0.02)
        finally:
            await store.stop()

    async def terminate(self, document: Document, load: Load) -> None:
        number = self._master(document)
        child = self._set.brokers[number]
        assert child is not None
        child.send(signal.SIGTERM)
        assert await asyncio.to_thread(child.process.wait, 90) == 0
        self._set.kill(number)
        await self._restart(number)

    async def kill_etcd_leader(self, document: Document, load: Load) -> None:
        etcd = self._set.etcd
        number = await asyncio.to_thread(etcd.leader)
        etcd.kill(number)
        await self._acks(load)
        etcd.start(number)
        await asyncio.to_thread(etcd.wait)

    async def freeze_etcd(self, document: Document, load: Load) -> None:
        etcd = self._set.etcd
        number = await asyncio.to_thread(etcd.leader)
        etcd.freeze(number)
        await self._acks(load)
        etcd.thaw(number)

    async def no_etcd(self, document: Document, load: Load) -> None:
        """Writes go on."""
        etcd = self._set.etcd
        for number in range(3):
            etcd.kill(number)
        before = len(load.acked)
        await asyncio.sleep(1.0)
        assert len(load.acked) > before + 10, "writes stopped with etcd"
        for number in range(3):
            etcd.start(number)
        await asyncio.to_thread(etcd.wait)

    async def compact_etcd(self, document: Document, load: Load) -> None:
        """Under the watches; then the master goes, so that somebody has to have seen the document."""
        await asyncio.to_thread(self._set.etcd.compact)
        await self.planned(document, load)

    async def _acks(self, load: Load) -> None:
        """Until messages are acked that were sent after this."""
        began_s = time.monotonic()
        while not load.goes_on_since(began_s):
            assert time.monotonic() < began_s + HEALTHY_S, f"no acks within {HEALTHY_S:g} s: {load.errors[-3:]}"
            await asyncio.sleep(0.01)


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


@pytest.mark.repeated
@pytest.mark.mission("FO-03")
def test_faults_lose_move_and_reorder_nothing(tmp_path: Path, etcd: Etcd) -> None:
    a_set = RealSet(tmp_path / "set", etcd)
    faults = Faults(a_set, SEED)

    async def run(load: Load, client: Client) -> None:
        await faults.run(load, FAULTS)

    try:
        load = asyncio.run(with_load(a_set, run))
        document, _ = asyncio.run(document_of(etcd))
        master = a_set.number_at(document.members[document.master].address)
    finally:
        a_set.stop()
    judged = Judged(load, a_set.log_of(master))
    print(f"{FAULTS} faults, {judged} unknown={load.unknown + len(load.errors)} seen={len(load.seen)}")
    for kind, gaps in sorted(faults.gaps.items()):
        middle, worst = (percentile(gaps, part) * 1000 for part in (0.5, 0.99))
        print(f"  {kind}: n={len(gaps)} p50={middle:.0f} ms p99={worst:.0f} ms")
    assert judged.is_good, f"{judged}; seed {SEED}"
    assert judged.acked > 50 * FAULTS
    assert len(load.seen) > judged.acked / 2, "the consumer saw too little to say anything"




@pytest.mark.mission("FO-03")
def test_messages_cost_no_request_to_etcd(tmp_path: Path) -> None:
    """Only what goes on each second: sessions are kept, and nothing else."""
    etcd = Etcd(tmp_path / "etcd", 1)
    a_set = RealSet(tmp_path / "set", etcd)
    counted: list[tuple[float, int, int]] = []

    async def run(load: Load, client: Client) -> None:
        await healthy(etcd, load)
        for wanted in (len(load.acked), len(load.acked) + 2_000):
            while len(load.acked) < wanted:  # noqa: ASYNC110 - beside this
                await asyncio.sleep(0.01)
            counted.append((time.monotonic(), len(load.acked), await asyncio.to_thread(etcd.requests)))

    try:
        asyncio.run(with_load(a_set, run))
    finally:
        a_set.stop()
        etcd.stop()
    (began_s, acked, before), (ended_s, more, after) = counted
    each_second = (after - before) / (ended_s - began_s)
    print(f"{more - acked} messages, {after - before} requests to etcd in {ended_s - began_s:.1f} s")
    assert each_second <= 2 * len(a_set.brokers), f"{each_second:.1f} requests a second of {len(a_set.brokers)} brokers"
