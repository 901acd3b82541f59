"""Checks cometmq.store.log.checkpoint by its bytes."""

import struct

from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.checkpoint import Checkpoint
from tests.support.golden import golden_store

PATH = "/store/checkpoint"


def test_a_missing_file_reads_as_zeros_and_is_made_with_4096_bytes() -> None:
    disk = FakeDisk()
    checkpoint = Checkpoint(disk, PATH)
    assert (checkpoint.physic_time_ms, checkpoint.confirm_offset, checkpoint.min_time_ms) == (0, 0, 0)
    assert disk.read_bytes(PATH) == bytes(4096)


def test_six_fields_at_their_places_and_zeros_behind_them() -> None:
    disk = FakeDisk()
    checkpoint = Checkpoint(disk, PATH)
    checkpoint.physic_time_ms = 1
    checkpoint.logics_time_ms = 2
    checkpoint.index_time_ms = 3
    checkpoint.master_flushed_offset = 4
    checkpoint.confirm_offset = 5
    checkpoint.logics_physical_offset = 1 << 40
    assert checkpoint.dirty
    checkpoint.flush()
    content = disk.read_bytes(PATH)
    assert content == struct.pack(">6q", 1, 2, 3, 4, 5, 1 << 40) + bytes(4096 - 48)
    assert disk.crash(0).read_bytes(PATH) == content
    again = Checkpoint(disk, PATH)
    assert (again.logics_time_ms, again.logics_physical_offset) == (2, 1 << 40)


def test_an_unchanged_checkpoint_costs_no_sync() -> None:
    disk = FakeDisk()
    checkpoint = Checkpoint(disk, PATH)
    checkpoint.flush()
    checkpoint.physic_time_ms = 7
    checkpoint.flush()
    checkpoint.flush()
    assert disk.calls["sync"] == 1


def test_the_earliest_time_has_a_margin_of_three_seconds() -> None:
    checkpoint = Checkpoint(FakeDisk(), PATH)
    checkpoint.physic_time_ms, checkpoint.logics_time_ms = 50_000, 40_000
    assert checkpoint.min_time_ms == 37_000
    checkpoint.logics_time_ms = 1000
    assert checkpoint.min_time_ms == 0


def test_the_checkpoint_of_rocketmq_is_read() -> None:
    checkpoint = Checkpoint(OsDisk(), str(golden_store("clean") / "checkpoint"))
    assert checkpoint.physic_time_ms > 1_600_000_000_000
    assert checkpoint.logics_physical_offset == 0
