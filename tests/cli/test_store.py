"""Checks `cometmq store`: what it prints, that it changes nothing, and that it finds what is wrong."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli.store import main
from cometmq.clock import ManualClock
from cometmq.store.disk import OsDisk
from cometmq.store.log.append import AppendRequest
from cometmq.wire.record.sysflag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.support.golden import StoreName, copy_golden_store, golden_messages, golden_store
from tests.support.whole_store import open_store


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, list[str], str]:
    """Exit code, lines of stdout, stderr."""
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


def fingerprint(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(file): (file.read_bytes() if file.stat().st_size < 1 << 20 else b"", file.stat().st_mtime_ns)
        for file in directory.rglob("*")
        if file.is_file()
    }


def flip(file: Path, at: int) -> None:
    with file.open("r+b") as content:
        content.seek(at)
        byte = content.read(1)[0]
        content.seek(at)
        content.write(bytes([byte ^ 0x01]))


@pytest.mark.mission("ST-03")
@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_dump_of_a_golden_store_is_what_the_java_consumer_read(
    name: StoreName, capsys: pytest.CaptureFixture[str]
) -> None:
    before = fingerprint(golden_store(name))
    code, lines, errors = run(capsys, "dump", golden_store(name), "-o", "json")
    assert (code, errors) == (0, "")
    dumped = {message["commitLogOffset"]: message for message in map(json.loads, lines)}
    golden = golden_messages(name)
    for message in golden:
        for added_by_client in ("MIN_OFFSET", "MAX_OFFSET"):
            message["properties"].pop(added_by_client, None)
        ours = dumped.pop(message["commitLogOffset"])
        assert ours == message
        assert list(ours) == list(message)
    assert len(golden) == 311
    assert {message["topic"] for message in dumped.values()} == {
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
    }
    assert fingerprint(golden_store(name)) == before


def test_a_dump_of_one_topic_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(capsys, "dump", golden_store("clean"), "--topic", "GoldenOrderA")
    assert code == 0
    assert len(lines) == sum(message["topic"] == "GoldenOrderA" for message in golden_messages("clean"))
    assert all(" GoldenOrderA " in line for line in lines)


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_golden_stores_are_well(name: StoreName, capsys: pytest.CaptureFixture[str]) -> None:
    before = fingerprint(golden_store(name))
    code, lines, _ = run(capsys, "check", golden_store(name))
    assert (code, lines[-1]) == (0, "all is well")
    assert fingerprint(golden_store(name)) == before


SIZES: dict[str, Any] = {"segment_bytes": 16_384, "queue_file_bytes": 400, "index_slots": 100, "index_entries": 400}


def fill(root: Path, **options: Any) -> Any:
    clock = ManualClock()
    store = open_store(OsDisk(), clock, root=str(root), **{**SIZES, **options})
    for number in range(200):
        clock.advance(1)
        flag = {7: TRANSACTION_PREPARED, 8: TRANSACTION_ROLLBACK}.get(number % 20, 0)
        properties = f"KEYS\x01k{number} all\x02TAGS\x01t{number % 5}\x02"
        store.put(AppendRequest(f"Topic{number % 3}", number % 2, b"%d" % number, properties, sys_flag=flag))
    return store


def test_a_store_in_use_can_be_dumped_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fill(tmp_path)
    before = fingerprint(tmp_path)
    code, lines, _ = run(capsys, "dump", tmp_path, "-o", "json")
    assert (code, len(lines)) == (0, 200)
    code, lines, _ = run(capsys, "check", tmp_path)
    assert (code, lines[-1]) == (0, "all is well")
    assert any(line.startswith("note: ") and "not in their queues yet" in line for line in lines)
    assert fingerprint(tmp_path) == before
    store.close()
    code, lines, _ = run(capsys, "check", tmp_path, "-o", "json")
    report = json.loads(lines[0])
    assert (code, report["records"], report["units"], report["problem_count"]) == (0, 200, 180, 0)
    assert report["notes"] == []


def test_a_store_without_messages_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_store(OsDisk(), root=str(tmp_path), **SIZES).close()
    assert run(capsys, "check", tmp_path)[0] == 0
    assert run(capsys, "dump", tmp_path)[:2] == (0, [])


@pytest.mark.mission("ST-03")
def test_a_flipped_byte_of_a_body_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    victim = golden_messages("clean")[17]
    flip(root / "commitlog" / f"{0:020d}", victim["commitLogOffset"] + 100)
    code, lines, _ = run(capsys, "check", root)
    assert code == 1
    assert any(f"no record at {victim['commitLogOffset']}," in line and "CRC" in line for line in lines)
    code, lines, errors = run(capsys, "dump", root, "-o", "json")
    assert (code, len(lines)) == (1, 344)
    assert f"no record from {victim['commitLogOffset']} to" in errors


def test_any_flipped_byte_of_a_unit_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path).close()
    file = tmp_path / "consumequeue/Topic1/1" / f"{400:020d}"
    for at in range(40):
        flip(file, at)
        code, lines, _ = run(capsys, "check", tmp_path)
        assert code == 1, f"byte {at}"
        assert any("consumequeue/Topic1/1" in line for line in lines)
        flip(file, at)
    assert run(capsys, "check", tmp_path)[0] == 0


def test_missing_and_surplus_units_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path).close()
    folder = tmp_path / "consumequeue/Topic1/1"
    last = sorted(folder.iterdir())[-1]
    content = last.read_bytes()
    used = len(content.rstrip(b"\0")) // 20 * 20
    last.write_bytes(content[: used - 20] + bytes(420 - used))
    _, lines, _ = run(capsys, "check", tmp_path)
    assert any("the last 1 units are missing" in line or "the last 2 units are missing" in line for line in lines)
    last.write_bytes(content[:used] + bytes(20) + b"\1" * 20 + content[used + 40 :])
    _, lines, _ = run(capsys, "check", tmp_path)
    assert any("where no record of this queue is" in line for line in lines)
    last.write_bytes(content)
    (folder / f"{0:020d}").unlink()
    _, lines, _ = run(capsys, "check", tmp_path)
    assert any("units before number" in line for line in lines)


def test_any_flipped_byte_of_an_index_entry_or_slot_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path).close()
    file = sorted((tmp_path / "index").iterdir())[0]
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    entries_at = 40 + 4 * 100
    # Not the time of an entry, which is whole seconds and has nothing to be compared with.
    places = [at for at in range(entries_at + 20, entries_at + 20 * 399) if (at - entries_at) % 20 not in range(12, 16)]
    for at in [*chance.sample(places, 40), *chance.sample(range(40, 440), 10)]:
        flip(file, at)
        code, lines, _ = run(capsys, "check", tmp_path)
        assert code == 1, f"seed {seed} byte {at}"
        assert any("index" in line for line in lines)
        flip(file, at)
    assert run(capsys, "check", tmp_path)[0] == 0


def test_a_missing_segment_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, segment_bytes=4096).close()
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    code, lines, _ = run(capsys, "check", tmp_path)
    assert code == 1
    assert "wrong: commitlog: a file is missing from 4096 to 8192" in lines


def test_what_is_no_store_has_its_own_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run(capsys, "dump", tmp_path)
    assert (code, lines) == (3, [])
    assert f"{tmp_path} is no store directory" in errors
    assert run(capsys, "dump")[0] == 2
    assert run(capsys, "burn", tmp_path)[0] == 2


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "cometmq.cli.main", "store", "dump", str(golden_store("clean")), "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
