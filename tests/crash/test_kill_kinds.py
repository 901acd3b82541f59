"""kill -9 under a load of all kinds of messages: plain, delayed by level, timers, transactions of both ends.

A broker process is killed at random moments, some of them while it starts, and started again on the same directory. In
the end everything that was acked must be in its topic: delayed messages once or more but never early, committed ones,
and no message that was rolled back. What was delivered twice is counted: delivery is at least once.

    COMETMQ_KIND_KILLS=100       how many kills (6; 20 in make verify, 100 in make soak)
    COMETMQ_KIND_SEED=123        choose like this; moments differ, because the machine is not seeded
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.processes import Process, broker_process, command_line, small
from tests.support.aio import run
from tests.support.brokers import Peer
from tests.support.length import count
from tests.support.mixing import KINDS, LEVELS_S, Mix, read_queue

KILLS = count("COMETMQ_KIND_KILLS", 6, 20, 100)
SEED = int(os.environ.get("COMETMQ_KIND_SEED", random.SystemRandom().randrange(1_000_000)))
LIFE_S_MAX = 1.2
ARRIVAL_S = 90.0
# So long nobody asked about a transaction: nothing is open any more.
QUIET_S = 2.0

# Short times, so that each of these happens at some of the deaths.
SETTINGS: dict[str, object] = {
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in LEVELS_S),
    "flushDelayOffsetInterval": 300,
    "timerPrecisionMs": 100,
    "timerRollWindowSlot": 20,
    "timerFlushIntervalMs": 200,
    "mappedFileSizeTimerLog": 5_300,
    "transactionCheckInterval": 400,
    "transactionTimeOut": 300,
    "transactionCheckMax": 10_000,
    "transactionOpBatchInterval": 100,
    "flushConsumerOffsetInterval": 200,
}


@contextmanager
def serving(home: Path) -> Iterator[Process]:
    with broker_process(home, **SETTINGS) as process:
        yield process


def die_while_starting(home: Path, delay_s: float) -> None:
    with (home / "stderr").open("a") as log:
        child = subprocess.Popen(
            command_line("broker", *small(home, **SETTINGS)), stdout=subprocess.DEVNULL, stderr=log
        )
    time.sleep(delay_s)
    child.kill()
    child.wait()


async def live_and_die(mix: Mix, process: Process, seconds: float) -> None:
    async with Peer.at(process.address) as peer:
        load = asyncio.create_task(mix.load(peer))
        await asyncio.wait([load], timeout=seconds)
        process.child.kill()
        process.child.wait()
        load.cancel()
        await asyncio.wait([load])
        if not load.cancelled():
            load.result()


async def settle(mix: Mix, process: Process) -> dict[str, list[int]]:
    """Until all has arrived and nobody is asked any more. Gives what is in the topic."""
    end_s = time.monotonic() + ARRIVAL_S
    quiet_s = time.monotonic()
    async with Peer.at(process.address) as peer:
        while True:
            await peer.heartbeat()
            if await mix.answer_questions(peer):
                quiet_s = time.monotonic()
            found = await read_queue(peer)
            missing = mix.missing(found)
            now_s = time.monotonic()
            if not missing and now_s - quiet_s > QUIET_S:
                return found
            assert now_s < end_s, f"{len(missing)} acked messages did not arrive: {missing[:10]}"
            await asyncio.sleep(0.1)


@pytest.mark.repeated
def test_kills_lose_no_kind_of_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(SEED)
    mix = Mix(chance)
    home = tmp_path / "home"
    home.mkdir()
    began_s = time.monotonic()
    starting = 0
    try:
        for number in range(KILLS):
            if number % 4 == 3:
                starting += 1
                die_while_starting(home, 0.2 + chance.random())
                continue
            with serving(home) as process:
                run(live_and_die(mix, process, chance.random() * LIFE_S_MAX))
        with serving(home) as process:
            found = run(settle(mix, process), timeout_s=ARRIVAL_S + 30)
    except BaseException:
        print(f"seed={SEED} replay: COMETMQ_KIND_SEED={SEED} pytest tests/crash/test_kill_kinds.py\n{_log_tail(home)}")
        raise
    faults = mix.faults(found)
    assert not faults, f"seed={SEED} {len(faults)} faults: {faults[:10]}"
    acked = Counter(fate.kind for fate in mix.fates.values() if fate.is_acked)
    twice = Counter(mix.fates[body].kind for body, times in found.items() if len(times) > 1)
    with capsys.disabled():
        print(
            f"\nkill -9: {KILLS} kills, {starting} while starting; 0 of {sum(acked.values())} acked messages lost, "
            f"none early; acked {dict(acked)}, delivered twice {dict(twice)}, {mix.asked} questions; "
            f"{time.monotonic() - began_s:.0f} s, seed {SEED}"
        )
    assert all(acked[kind] for kind in KINDS)
    assert mix.asked > 0


def _log_tail(home: Path) -> str:
    return "\n".join((home / "stderr").read_text().splitlines()[-30:])
