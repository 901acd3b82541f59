"""Pages of a segment are fetched by writing zeros behind what was written, never over it; large appends need none."""

from pathlib import Path

import pytest

from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.commit_log import PWRITE_BYTES
from cometmq.store.log.segments import TOUCH_BYTES, Segment
from cometmq.store.results import PutStatus
from cometmq.wire.record.batch import encode_batch
from tests.support.logs import make_log, message, records
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


def test_records_stay_whole_whether_they_are_stored_through_the_map_or_written(tmp_path: Path) -> None:
    parts = Parts(OsDisk(), root_dir=str(tmp_path), segment_bytes=1 << 20, queue_file_bytes=60_000)
    bodies: list[bytes] = []
    for number, size in enumerate((10, 1000, 3 * TOUCH_BYTES, 1, 70_000, 2 * TOUCH_BYTES + 7, PWRITE_BYTES, 5000) * 4):
        members = [(0, bytes([number + 1]) * size, b""), (0, b"second", b"")]
        bodies += [body for _, body, _ in members]
        assert parts.log.append_batch(message(body=encode_batch(members))).status == PutStatus.OK
        last = parts.log.segments.last()
        assert last is not None
        if size < PWRITE_BYTES // 2:
            assert last.wrote <= last.touched <= last.size, "every byte that goes through the map was fetched before"
    assert [record.body for record in records(parts.log)] == bodies
    last = parts.log.segments.last()
    assert last is not None
    assert not any(last.view()[last.wrote :])


def test_records_that_cannot_be_written_whole_leave_nothing_behind_the_end() -> None:
    disk = FakeDisk()
    log = make_log(disk)
    log.append(message(body=b"first"))
    end = log.max_offset
    (last,) = log.segments.segments

    def torn(offset: int, data: bytes | bytearray | memoryview) -> None:
        last.view()[offset : offset + len(data) // 2] = data[: len(data) // 2]
        raise OSError("torn")

    whole, last.file.pwrite = last.file.pwrite, torn  # type: ignore[method-assign]
    members = [(0, b"x" * 9000, b"")] * 4
    with pytest.raises(OSError, match="torn"):
        log.append_batch(message(body=encode_batch(members)))
    assert not any(last.view()[end:])
    last.file.pwrite = whole  # type: ignore[method-assign]
    assert log.append_batch(message(body=encode_batch(members))).physical_offset == end
    assert [record.body[:5] for record in records(log)] == [b"first", *[b"xxxxx"] * 4]
