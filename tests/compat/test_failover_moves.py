"""A set moves to a fourth machine under a Java producer and an ordered consumer: 0 lost, 0 out of order."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.broker.processes import command_line
from tests.compat.harness.shell import JavaShell
from tests.failover.java_load import with_java_load
from tests.failover.real_set import Judged, Load, RealSet
from tests.failover.test_processes import document_of, healthy
from tests.support.etcd import Etcd

pytestmark = pytest.mark.interop
POLL_MS = 1_000


@pytest.mark.mission("FO-09")
def test_a_set_moves_to_a_fourth_machine_under_load_and_the_first_goes(java55: JavaShell, tmp_path: Path) -> None:
    etcd = Etcd(tmp_path / "etcd", 1)
    a_set = RealSet(tmp_path / "set", etcd)

    async def run(load: Load) -> None:
        document = await healthy(etcd, load)
        source = document.master
        number = await asyncio.to_thread(a_set.add)
        move = await asyncio.create_subprocess_exec(
            *command_line("cluster", "move", "a", "--store", etcd.address, "--from", str(source)),
            "--to", f"127.0.0.1:{a_set.ports[number]}", "--yes",
        )  # fmt: skip
        assert await asyncio.wait_for(move.wait(), 60) == 0
        old = a_set.number_at(document.members[source].address)
        child = a_set.brokers[old]
        assert child is not None
        child.send(signal.SIGTERM)
        assert await asyncio.to_thread(child.process.wait, 90) == 0
        a_set.kill(old)
        after = await healthy(etcd, load)
        assert after.master != source
        assert source not in after.members

    try:
        load = asyncio.run(with_java_load(java55, a_set.name_server, run, poll_ms=POLL_MS, retries=2))
        document, _ = asyncio.run(document_of(etcd))
        master = a_set.number_at(document.members[document.master].address)
    finally:
        a_set.stop()
        etcd.stop()
    judged = Judged(load, a_set.log_of(master))
    longest_ms = load.gap_after(0, time.monotonic()) * 1000
    print(f"{judged} errors={len(load.errors)} longest gap between acks {longest_ms:.0f} ms")
    assert judged.is_good, str(judged)
    assert not load.back, load.back[:3]
    assert not load.errors, load.errors[:3]
