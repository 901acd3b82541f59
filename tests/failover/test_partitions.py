"""Networks that part: each broker in a network namespace of its own, links that drop what is sent, one way or both.

    COMETMQ_SET_PARTITIONS=300 pytest tests/failover/test_partitions.py -s
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq import Client
from cometmq.failover.document import Document, Refused
from tests.failover.real_set import Judged, Load, RealSet, with_load
from tests.failover.test_processes import document_of, healthy, percentile
from tests.support import length
from tests.support.etcd import Etcd
from tests.support.namespaces import Network

PARTITIONS = length.count("COMETMQ_SET_PARTITIONS", 10, 50, 300)
SEED = int(os.environ.get("COMETMQ_SET_SEED", "1"))
CUT_OFF_S = 2.0
ACKS_S = 30.0


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network(3)
    yield made
    made.stop()


class Partitions:
    """One of each kind after the other. `goes_on`: kinds in which messages are acked while the network is parted."""

    def __init__(self, a_set: RealSet, network: Network, seed: int) -> None:
        self.gaps: dict[str, list[float]] = {}
        self.epochs: dict[str, list[int]] = {}
        self._set = a_set
        self._network = network
        self._chance = random.Random(seed)
        self._acts = {
            "from its replicas": self.from_replicas,
            "from etcd": self.from_etcd,
            "from clients": self.from_clients,
            "one way, out": self.one_way_out,
            "one way, in": self.one_way_in,
            "with a replica": self.with_a_replica,
            "alone, then killed": self.from_replicas,
        }

    async def run(self, load: Load, count: int) -> None:
        kinds: list[str] = []
        for _ in range(count):
            if not kinds:
                kinds = list(self._acts)
                self._chance.shuffle(kinds)
            kind = kinds.pop()
            document = await healthy(self._set.etcd, load)
            master = self._index(document, document.master)
            others = [number for number in range(3) if number != master]
            began_s = time.monotonic()
            self._acts[kind](master, others)
            if kind == "from clients":
                await asyncio.sleep(CUT_OFF_S)
            elif kind == "alone, then killed":
                await self._acks(load)
                await self._come_back(master, document.master)
            else:
                await self._acks(load)
            self._network.heal()
            after = await healthy(self._set.etcd, load)
            self.gaps.setdefault(kind, []).append(load.gap_after(began_s, time.monotonic()))
            self.epochs.setdefault(kind, []).append(after.epoch - document.epoch)

    def _index(self, document: Document, number: int) -> int:
        return [self._network.address(each) for each in range(3)].index(
            document.members[number].address.rpartition(":")[0]
        )

    async def _acks(self, load: Load) -> None:
        wanted = len(load.acked) + 50
        end_s = time.monotonic() + ACKS_S
        while len(load.acked) < wanted:
            assert time.monotonic() < end_s, f"no acks within {ACKS_S:g} s: {load.errors[-3:]}"
            await asyncio.sleep(0.01)

    async def _come_back(self, broker: int, member: int) -> None:
        """A master that has what nobody else has is killed; it cuts that, and leads again as soon as it may."""
        self._set.kill(broker)
        self._network.heal()
        self._set.start(broker)
        await asyncio.to_thread(self._set.ready, broker)
        end_s = time.monotonic() + ACKS_S
        while (await document_of(self._set.etcd))[0].master != member:
            assert time.monotonic() < end_s, f"member {member} did not lead again within {ACKS_S:g} s"
            with contextlib.suppress(Refused):
                await asyncio.to_thread(self._set.elect, member)

    def from_replicas(self, master: int, others: list[int]) -> None:
        for other in others:
            self._network.part(master, other)

    def from_etcd(self, master: int, others: list[int]) -> None:
        self._network.cut(master, self._network.store)

    def from_clients(self, master: int, others: list[int]) -> None:
        self._network.cut(master, self._network.clients)

    def one_way_out(self, master: int, others: list[int]) -> None:
        for other in others:
            self._network.cut(master, self._network.address(other))

    def one_way_in(self, master: int, others: list[int]) -> None:
        for other in others:
            self._network.cut(other, self._network.address(master))

    def with_a_replica(self, master: int, others: list[int]) -> None:
        """A master and one replica on one side, without etcd: they have k copies, and go on."""
        self._network.part(master, others[1])
        self._network.part(others[0], others[1])
        for number in (master, others[0]):
            self._network.cut(number, self._network.store)


@pytest.mark.repeated
@pytest.mark.mission("FO-08")
def test_a_parted_network_loses_moves_and_reorders_nothing(tmp_path: Path, network: Network) -> None:
    etcd = Etcd(tmp_path / "etcd", 1, host=network.store)
    a_set = RealSet(tmp_path / "set", etcd, network=network)
    partitions = Partitions(a_set, network, SEED)

    async def run(load: Load, client: Client) -> None:
        await partitions.run(load, PARTITIONS)

    try:
        load = asyncio.run(with_load(a_set, run))
        document, _ = asyncio.run(document_of(etcd))
        master = a_set.number_at(document.members[document.master].address)
    finally:
        a_set.stop()
        etcd.stop()
    judged = Judged(load, a_set.log_of(master))
    print(f"{PARTITIONS} partitions, {judged} unknown={load.unknown + len(load.errors)} seen={len(load.seen)}")
    for kind, gaps in sorted(partitions.gaps.items()):
        middle, worst = (percentile(gaps, part) * 1000 for part in (0.5, 0.99))
        print(f"  {kind}: n={len(gaps)} p50={middle:.0f} ms p99={worst:.0f} ms epochs={partitions.epochs[kind]}")
    assert judged.is_good, f"{judged}; seed {SEED}"
    assert len(load.seen) > judged.acked / 2, "the consumer saw too little to say anything"
    assert not any(partitions.epochs.get("from etcd", [])), "a master that lost etcd was replaced"
