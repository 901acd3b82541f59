"""Checks what is found out about a store's place, from files as Linux writes them."""

import logging
from pathlib import Path

import pytest

from cometmq.machine import Storage, log_storage, storage_of

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:41 / /proc rw - proc proc rw
51 22 8:17 / /data rw,noatime shared:5 - xfs /dev/sdb1 rw
52 51 0:50 / /data/net\\040share rw - nfs4 server:/x rw
"""


def fake_system(directory: Path, scheduler: str = "mq-deadline kyber [bfq] none") -> tuple[Path, Path]:
    (directory / "mountinfo").write_text(MOUNTS)
    for number, name in (("8:1", "sda"), ("8:17", "sdb")):
        queue = directory / "devices" / name / "queue"
        queue.mkdir(parents=True)
        (queue / "scheduler").write_text(scheduler + "\n")
        (queue / "rotational").write_text("1\n")
        (directory / "devices" / name / (name + "1")).mkdir()
        (directory / "block").mkdir(exist_ok=True)
        (directory / "block" / number).symlink_to(directory / "devices" / name / (name + "1"))
    return directory / "mountinfo", directory / "block"


def test_the_longest_mount_point_above_a_path_is_its_file_system(tmp_path: Path) -> None:
    system = fake_system(tmp_path)
    found = storage_of("/data/store", *system)
    assert (found.file_system, found.mount_point, found.device) == ("xfs", "/data", "/dev/sdb1")
    assert (found.scheduler, found.rotational) == ("bfq", True)
    assert storage_of("/database", *system).mount_point == "/"
    assert storage_of("/data/net share/x", *system).file_system == "nfs4"


def test_a_poor_place_is_complained_about_and_a_good_one_is_not(tmp_path: Path) -> None:
    system = fake_system(tmp_path)
    assert ["bfq" in text for text in storage_of("/data", *system).complaints()] == [True]
    assert ["nfs4" in text for text in storage_of("/data/net share", *system).complaints()] == [True]
    assert Storage("/x", "ext4", "/", "/dev/sda", "mq-deadline").complaints() == []
    assert Storage("/x").complaints() == [], "what is not known is not poor"


def test_a_system_that_does_not_tell_is_unknown(tmp_path: Path) -> None:
    assert storage_of("/data", tmp_path / "none", tmp_path / "none") == Storage("/data")


def test_the_start_of_a_broker_logs_it_and_warns_when_it_is_poor(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "cometmq.machine"):
        log_storage("/data", Storage("/data", "nfs4", "/data", "server:/x", "cfq"))
        log_storage("/fine", Storage("/fine", "xfs", "/fine", "/dev/sda1", "none"))
    levels = [(record.levelname, record.args[0]) for record in caplog.records if isinstance(record.args, tuple)]
    assert levels == [("INFO", "/data"), ("WARNING", "/data"), ("WARNING", "/data"), ("INFO", "/fine")]
    assert "file_system=nfs4" in caplog.text
    assert "scheduler=cfq" in caplog.text
