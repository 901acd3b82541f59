"""Replication under a bad network and crashes: no acked message is lost, whoever dies.

A seed makes one run of tests/support/simulated_replication.py. At its end all nodes lose power at once, and every
4 KiB page that was not synced is kept, dropped or torn. Then

    every acked message is on as many replicas as its producer was promised
    a replica that was there from the start and has the longest log, which takes over, has all of them
    under SYNC_FLUSH the master has all of them, too

    COMETMQ_REPLICATION_SEEDS=100000   how many seeds (500; 2,000 in make verify, 50,000 in make soak)
    COMETMQ_REPLICATION_SEED=123       begin with this seed
"""

import os

import pytest

from tests.support.length import count
from tests.support.simulated_replication import World

SEEDS = count("COMETMQ_REPLICATION_SEEDS", 500, 2000, 50000)
FIRST_SEED = int(os.environ.get("COMETMQ_REPLICATION_SEED", "1"))
STEPS = 80
PARTS = 4


@pytest.mark.repeated
@pytest.mark.mission("HA-05")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_acked_message_is_lost_by_a_bad_network_and_crashes(part: int) -> None:
    acked = sent = with_three = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEEDS, PARTS):
        replay = f"replay with COMETMQ_REPLICATION_SEED={seed} COMETMQ_REPLICATION_SEEDS=1"
        world = World(seed)
        try:
            world.run(STEPS)
            master, replicas = world.power_off()
        except Exception as error:
            raise AssertionError(f"seed {seed} failed; {replay}") from error
        acked += len(world.acked)
        sent += world.sent
        with_three += world.copies == 3 and bool(world.acked)
        assert world.diverged == 0, f"a replica could not follow its master any more; {replay}"
        for body in world.acked:
            assert sum(body in replica for replica in replicas) >= world.copies - 1, f"{body[:9]!r} lost; {replay}"
        if world.heir is not None:
            assert world.acked <= replicas[world.heir], f"lost by takeover; {replay}"
        if world.sync_flush:
            assert world.acked <= master, f"lost by the master; {replay}"
    print(f"sent={sent} acked={acked} runs_with_three_copies={with_three}")
    if SEEDS >= 2000:
        assert acked > sent // 5, "the simulation acks too little to show anything"
