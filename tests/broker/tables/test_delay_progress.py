"""How far each delay level is delivered: what runs ahead, what may be saved, and its version."""

from cometmq.broker.tables.delay_progress import VERSION_STEP, DelayProgress
from cometmq.clock import ManualClock
from cometmq.wire.bodies import DataVersion, DelayOffsetTable


def test_the_file_has_what_is_confirmed_and_not_what_is_delivered() -> None:
    progress = DelayProgress(ManualClock())
    progress.advance(2, 7)
    progress.advance(1, 3)
    before = progress.changes
    assert DelayOffsetTable.decode(progress.snapshot()()).offset_table == {}
    unconfirmed = progress.unconfirmed()
    assert unconfirmed == {1: 3, 2: 7}
    progress.advance(1, 4)  # meanwhile
    progress.confirm(unconfirmed)
    assert progress.changes == before + 1
    assert DelayOffsetTable.decode(progress.snapshot()()).offset_table == {1: 3, 2: 7}
    assert progress.unconfirmed() == {1: 4, 2: 7}


def test_nothing_is_left_to_confirm_after_a_restart() -> None:
    saved = DelayProgress(ManualClock())
    saved.resume({3: 9})
    progress = DelayProgress(ManualClock())
    progress.restore(saved.snapshot()())
    assert (progress.offsets, progress.unconfirmed()) == ({3: 9}, None)
    assert progress.version == saved.version


def test_another_brokers_progress_comes_with_its_version() -> None:
    progress = DelayProgress(ManualClock())
    version = DataVersion(counter=5, timestamp=6)
    progress.follow(DelayOffsetTable(data_version=version, offset_table={1: 2}))
    assert (progress.offsets, progress.version, progress.changes) == ({1: 2}, version, 1)


def test_a_version_is_new_after_many_messages_and_not_after_a_move() -> None:
    progress = DelayProgress(ManualClock())
    first = progress.version
    for offset in range(1, VERSION_STEP):
        progress.advance(1, offset)
    progress.move(1, 0)
    assert progress.version == first
    progress.advance(1, 1)
    assert progress.version.counter == first.counter + 1
