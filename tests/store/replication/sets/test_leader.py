"""The master's side as a value: whose report counts."""

from types import SimpleNamespace

from cometmq.store.replication.sets import frames
from cometmq.store.replication.sets.epochs import EpochTable
from cometmq.store.replication.sets.leader import Leader, Member

OPTIONS = SimpleNamespace(segment_bytes=1 << 20, slave_timeout_ms=3000, ha_frame_bytes=32_768, ha_silence_ms=20_000)


def a_leader() -> Leader:
    log = SimpleNamespace(max_offset=100, flushed_offset=100, min_offset=0)
    return Leader(1, 1, EpochTable([(1, 0)]), log, OPTIONS)


def test_a_replica_that_reports_counts_though_an_older_connection_of_it_said_hello_last() -> None:
    """Found by the simulation, seed 7328: the set never took it in again."""
    leader = a_leader()
    old, new = Member("old", 0.0), Member("new", 0.0)
    leader.received(new, frames.hello(2, is_learner=False) + frames.report(100), 0.0)
    leader.received(old, frames.hello(2, is_learner=False), 0.0)
    leader.received(new, frames.report(100), 0.1)
    assert leader.ends() == {1: 100, 2: 100}


def test_a_replica_that_reports_counts_after_its_older_connection_was_lost() -> None:
    leader = a_leader()
    old, new = Member("old", 0.0), Member("new", 0.0)
    leader.received(new, frames.hello(2, is_learner=False) + frames.report(100), 0.0)
    leader.received(old, frames.hello(2, is_learner=False), 0.0)
    leader.lost(old)
    assert leader.ends() == {1: 100}
    leader.received(new, frames.report(100), 0.1)
    assert leader.ends() == {1: 100, 2: 100}
