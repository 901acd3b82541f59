"""Thousands of transactions of every kind, with restarts in between: each has one fate, and it is the right one.

COMETMQ_SEED=123 pytest tests/broker/transactions/test_transaction_mix.py        replays a failure
"""

import asyncio
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.server import Broker
from cometmq.clock import ManualClock, ManualTimer
from cometmq.names import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from cometmq.store.fake_disk import FakeDisk
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker
from tests.support.net import until
from tests.support.transacting import COMMIT, ROLLBACK, UNKNOWN, HalfSent, be_asked, end, killed, send_half, unique_ids

WAVES = 10
WAVE_HALVES = 500
CHECKS_MAX = 4
QUEUES = 4
TURN_S = 0.5

SETTINGS = {"transactionCheckMax": CHECKS_MAX, "mappedFileSizeCommitLog": 8 << 20, "maxIndexNum": 20_000}


class TurnClock(ManualClock):
    """A turn of a round takes some time, so that a test can stop in the middle of one."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualTimer:
        return super().call_later(delay_s or TURN_S, callback)


@dataclass
class Plan:
    """What the producer of one transaction will say, and what must come of it."""

    fate: str
    at_once: list[int] = field(default_factory=list)
    late: int | None = None
    answers: list[int] = field(default_factory=list)
    own_time_s: int | None = None


def make_plan(chance: random.Random) -> Plan:
    word, fate = chance.choice([(COMMIT, "committed"), (ROLLBACK, "removed")])
    other = ROLLBACK if word == COMMIT else COMMIT
    kinds = {"once": 50, "twice": 5, "contrary": 5, "asked": 15, "late": 10, "patient": 5, "slow": 5, "never": 5}
    (kind,) = chance.choices(list(kinds), list(kinds.values()))
    if kind == "once":
        return Plan(fate, [word])
    if kind == "twice":
        return Plan(fate, [word, word])
    if kind == "contrary":
        return Plan(fate, [word, other])
    if kind == "asked":
        return Plan(fate, answers=[UNKNOWN] * chance.randint(0, CHECKS_MAX - 1) + [word])
    if kind == "late":
        return Plan(fate, late=word, answers=[UNKNOWN] * CHECKS_MAX)
    if kind == "patient":
        return Plan(fate, late=word, answers=[UNKNOWN] * CHECKS_MAX, own_time_s=chance.randint(120, 200))
    if kind == "slow":
        return Plan(fate, answers=[UNKNOWN, word], own_time_s=chance.randint(1, 60))
    return Plan("given up", answers=[UNKNOWN] * CHECKS_MAX)


class Mix:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = TurnClock()
        self.plans: dict[str, Plan] = {}
        self.late: list[tuple[int, HalfSent]] = []
        self.asked: Counter[str] = Counter()

    async def send_wave(self, peer: Peer, wave: int) -> None:
        for _ in range(WAVE_HALVES // 50):
            await asyncio.gather(*(self.send_one(peer, wave) for _ in range(50)))
            self.clock.advance(self.chance.choice([0, 0.1, 0.5]))

    async def send_one(self, peer: Peer, wave: int) -> None:
        plan = make_plan(self.chance)
        own: dict[str, Any] = {}
        if plan.own_time_s is not None:
            own["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(plan.own_time_s)
        half = await send_half(peer, self.clock, queue_id=self.chance.randrange(QUEUES), **own)
        self.plans[half.unique_id] = plan
        for word in plan.at_once:
            await end(peer, half, word)
        if plan.late is not None:
            # One that its producer has told to wait is ended before that, any other one after a round or two.
            self.late.append((wave + (1 if plan.own_time_s is not None else self.chance.randint(1, 2)), half))

    async def send_late_ends(self, peer: Peer, wave: int) -> None:
        for due, half in [it for it in self.late if it[0] <= wave]:
            self.late.remove((due, half))
            plan = self.plans[half.unique_id]
            assert plan.late is not None
            assert await end(peer, half, plan.late) == 0, plan

    async def answer(self, peer: Peer) -> None:
        for question in await be_asked(peer):
            plan = self.plans[question.unique_id]
            word = plan.answers.pop(0)
            self.asked[question.unique_id] += 1
            if word != UNKNOWN:
                assert await end(peer, question, word, from_check=True) == 0

    async def pass_time(self, peer: Peer, seconds: float) -> None:
        for _ in range(round(seconds / 5)):
            self.clock.advance(5)
            await self.answer(peer)

    def check(self, broker: Broker) -> None:
        committed = Counter(unique_ids(broker, "Pay", QUEUES))
        given_up = Counter(unique_ids(broker, GIVEN_UP_TOPIC))
        fates = Counter[str]()
        for unique_id, plan in self.plans.items():
            found = (committed[unique_id], given_up[unique_id])
            expected = {"committed": (1, 0), "removed": (0, 0), "given up": (0, 1)}[plan.fate]
            assert found == expected, (unique_id, plan, found, self.asked[unique_id])
            fates[plan.fate] += 1
        assert min(fates.values()) > 50, fates
        assert {self.asked[it] for it, plan in self.plans.items() if plan.fate == "given up"} == {CHECKS_MAX}
        assert committed.keys() | given_up.keys() <= self.plans.keys()
        assert broker.rooms.transactions.transactions.counts.table["Pay"].count == 0


@pytest.mark.mission("TX-06")
def test_five_thousand_transactions_meet_one_fate_each(tmp_path: Path) -> None:
    seed = int(os.environ.get("COMETMQ_SEED") or random.randrange(1 << 32))
    print(f"replay with COMETMQ_SEED={seed}")
    mix = Mix(seed)

    async def live(directory: Path, waves: range, *, is_last: bool) -> None:
        async with running_broker(directory, mix.clock, **SETTINGS) as broker, Peer.of(broker) as peer:
            add_topic(broker, "Pay", QUEUES)
            await peer.heartbeat()
            for wave in waves:
                await mix.send_late_ends(peer, wave)
                await mix.send_wave(peer, wave)
                await mix.pass_time(peer, 35)
            if is_last:
                await mix.send_late_ends(peer, WAVES + 2)
                await mix.pass_time(peer, (CHECKS_MAX + 5) * 30)
                mix.check(broker)
                await until(lambda: _all_is_saved(broker, mix.clock))
                return
            await _stop_in_a_round(broker, mix, peer)
            if mix.chance.random() < 0.5:
                broker.rooms.transactions.transactions.tend(save_progress=False)
                await killed(broker, directory, _next(directory))

    async def main() -> None:
        directory = tmp_path / "0"
        cuts = sorted(mix.chance.sample(range(1, WAVES), 3))
        for first, end_wave in zip([0, *cuts], [*cuts, WAVES], strict=True):
            await live(directory, range(first, end_wave), is_last=end_wave == WAVES)
            if _next(directory).exists():  # it was killed; what it did after that never happened
                directory = _next(directory)
        assert len(mix.plans) == WAVES * WAVE_HALVES

    run(main(), timeout_s=300)


def _next(directory: Path) -> Path:
    return directory.parent / f"{int(directory.name) + 1}"


async def _stop_in_a_round(broker: Broker, mix: Mix, peer: Peer) -> None:
    """Until a round has begun and has not ended."""
    for _ in range(200):
        mix.clock.advance(TURN_S / 2)
        await mix.answer(peer)
        if broker.rooms.transactions.transactions._round is not None:
            return
    raise AssertionError("no round began")


def _all_is_saved(broker: Broker, clock: ManualClock) -> bool:
    """Progress is at the end of both queues."""
    clock.advance(1)
    return all(
        broker.tables.offsets.query("CID_RMQ_SYS_TRANS", topic, 0) == broker.store.queue_bounds(topic, 0)[1]
        for topic in (HALF_TOPIC, OP_TOPIC)
    )


@pytest.mark.parametrize("seed", range(5))
async def test_a_power_cut_takes_no_half_away(tmp_path: Path, seed: int) -> None:
    """Copies that are not on disk are gone; so must be the progress that relies on them."""
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    goes_on = threading.Event()
    settings = {"flushDiskType": "SYNC_FLUSH", **SETTINGS}
    async with running_broker(tmp_path / "a", clock, disk, **settings) as broker, Peer.of(broker) as peer:
        sent = [await send_half(peer, clock) for _ in range(50)]
        for half in sent[:10]:
            assert await end(peer, half, COMMIT) == 0
        clock.advance(3)
        await until(lambda: broker.store.log.flushed_offset == broker.store.log.max_offset)
        disk.on_call = lambda operation, _path: _hold(goes_on, operation)
        clock.advance(40)
        await killed(broker, tmp_path / "a", tmp_path / "b")
        left = disk.crash(seed)
        goes_on.set()
    config = tmp_path / "a" / "store" / "config"
    shutil.rmtree(config)
    shutil.copytree(tmp_path / "b" / "store" / "config", config)
    async with running_broker(tmp_path / "a", clock, left, **settings) as broker, Peer.of(broker) as peer:
        await peer.heartbeat()
        clock.advance(60)
        asked = {it.unique_id for it in await be_asked(peer)}
        assert asked == {it.unique_id for it in sent[10:]}
        assert sorted(unique_ids(broker, "Pay")) == sorted(it.unique_id for it in sent[:10])


def _hold(goes_on: threading.Event, operation: str) -> None:
    if operation == "sync":
        goes_on.wait(20)
