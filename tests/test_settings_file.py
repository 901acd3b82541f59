"""A settings file that is changed line by line."""

import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from cometmq import settings_file
from cometmq.settings_file import BACKUPS_MAX
from cometmq.wire import java_properties

NOW = datetime(2026, 11, 19, 21, 30, 0, tzinfo=UTC)
WRITTEN = """# our broker, see the wiki
brokerName = broker-a

! old way of comments
  fileReservedTime: 72
list=one,\\
     two
fileReservedTime=48
path=C:\\\\data"""


def edited(changes: dict[str, str]) -> Callable[[bytes], bytes]:
    return partial(java_properties.edited, changes=changes)


def test_only_the_lines_of_changed_keys_are_other_ones(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(WRITTEN)
    changes = {"fileReservedTime": "24", "list": "three", "deleteWhen": "04"}
    settings_file.change(path, edited(changes), NOW, private=False)
    assert path.read_text() == (
        WRITTEN.replace("fileReservedTime=48", "fileReservedTime=24").replace("one,\\\n     two", "three")
        + "\ndeleteWhen=04\n"
    )
    backup = tmp_path / "broker.conf.20261119T213000"
    assert backup.read_text() == WRITTEN
    assert settings_file.backups(path) == [backup]


@pytest.mark.parametrize(
    "text",
    [
        b"", b"k", b"k\\", b"a=1\r\nk=2\r\n", b"a=1\rk=2\r", b"k=\\\n", b"k:x\n\n", b"k x", b"#k=1", b"\xe9=1\nk=\xff",
        b"k=1\nk=2", b"  k  =  v", b"a\\\n b=1\nk=2", b"\\k=1",
    ],
)  # fmt: skip
def test_what_was_edited_reads_as_the_old_file_with_the_new_values(text: bytes) -> None:
    changes = {"k": "n\u00e4u = #\\", "other key": " x"}
    assert java_properties.parse(java_properties.edited(text, changes)) == java_properties.parse(text) | changes


def test_a_file_that_has_the_value_already_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"a: 1\n")
    settings_file.change(path, edited({"a": "1"}), NOW, private=False)
    assert [one.name for one in tmp_path.iterdir()] == ["broker.conf"]


def test_the_newest_backups_are_kept_and_the_oldest_content_of_a_second(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    for number in range(BACKUPS_MAX + 3):
        settings_file.change(path, edited({"a": str(number)}), NOW + timedelta(seconds=number // 2), private=False)
    kept = settings_file.backups(path)
    assert [one.read_bytes() for one in kept] == [b"a=%d\n" % number for number in (0, 1, 3, 5, 7, 9, 11)]
    for number in range(2 * BACKUPS_MAX):
        settings_file.change(path, edited({"b": str(number)}), NOW + timedelta(minutes=number), private=False)
    assert len(settings_file.backups(path)) == BACKUPS_MAX


def test_a_link_stays_a_link_and_secrets_stay_closed(tmp_path: Path) -> None:
    path, link = tmp_path / "real.conf", tmp_path / "broker.conf"
    path.write_text("a=1\n")
    link.symlink_to(path)
    settings_file.change(link, edited({"secret": "x"}), NOW, private=True)
    assert link.is_symlink()
    assert path.read_text() == "a=1\nsecret=x\n"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, *settings_file.backups(path))] == [0o600, 0o600]
