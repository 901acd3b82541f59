"""Pages of a segment are fetched by writing zeros behind what was written, never over it."""

from pathlib import Path

from cometmq.store.disk import OsDisk
from cometmq.store.results import PutStatus
from cometmq.store.segments import TOUCH_BYTES, Segment
from tests.support.logs import message
from tests.support.parts import Parts


def segment(directory: Path, size: int) -> Segment:
    made = Segment(OsDisk().open(str(directory / "file"), size, create=True, allocate=True), 0)
    made.reserved = True
    return made


def test_what_was_written_stays(tmp_path: Path) -> None:
    made = segment(tmp_path, 4 * TOUCH_BYTES)
    made.view()[:5000] = b"x" * 5000
    made.wrote = 5000
    made.touch(6000)
    assert bytes(made.view()[:5000]) == b"x" * 5000
    assert 6000 <= made.touched <= 6000 + TOUCH_BYTES
    made.view()[5000:7000] = b"y" * 2000
    made.wrote = 7000
    made.touch(made.touched + 1)
    assert bytes(made.view()[:7000]) == b"x" * 5000 + b"y" * 2000
    assert not any(made.view()[7000:])


def test_nothing_is_written_behind_the_end_of_the_file(tmp_path: Path) -> None:
    made = segment(tmp_path, TOUCH_BYTES + 4096)
    made.touch(TOUCH_BYTES + 1000)
    assert made.touched == made.size == (tmp_path / "file").stat().st_size


def test_every_byte_that_an_append_writes_was_fetched_before(tmp_path: Path) -> None:
    parts = Parts(OsDisk(), root_dir=str(tmp_path), segment_bytes=1 << 20, queue_file_bytes=60_000)
    for size in (10, 1000, 3 * TOUCH_BYTES, 1, 70_000, 2 * TOUCH_BYTES + 7, 5000) * 3:
        assert parts.log.append(message(body=bytes(size))).status == PutStatus.OK
        last = parts.log.segments.last()
        assert last is not None
        assert last.wrote <= last.touched <= last.size
