"""Hostile files: a store directory and an archive that somebody else has filled, against all that reads them.

    store dump, check, stats, rebuild     as real processes, with a limit on memory and on processor time
    cometmq_store, cometmq_archive        the readers of Spark, by their own classes

Whatever lies there, each ends within its limits, with an answer or with one line that says what is wrong, and no file
outside the directory is read or changed: beside each directory lie files of the same kinds, which must stay as they
are.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import StoreError
from cometmq.names import path_part, place_below
from tests.support.golden import copy_golden_store
from tests.support.length import SOAK, by_length

# What a process may map beside the files themselves, which are mapped too.
MEMORY_BYTES = 3 << 30
CPU_S = 60
RESIDENT_MIB_MAX = 400
UNIT = struct.Struct(">qiq")

Spoil = Callable[[Path], None]


def log_of(root: Path) -> Path:
    return min((root / "commitlog").iterdir())


def queue_file(root: Path) -> Path:
    return min((root / "consumequeue").glob("GoldenNormalA/*/*"))


def write_at(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def grow(path: Path, size: int) -> None:
    """Sparse: it takes no room."""
    with path.open("ab") as file:
        file.truncate(size)


def a_queue_unit_far_away(root: Path) -> None:
    write_at(queue_file(root), 40, UNIT.pack(1 << 62, 0x7FFFFFFF, -1))


def a_unit_in_every_place_of_a_queue(root: Path) -> None:
    path = queue_file(root)
    path.write_bytes(UNIT.pack(1 << 40, 1 << 30, 7) * (path.stat().st_size // 20))


def a_sparse_queue_file(root: Path) -> None:
    grow(queue_file(root), by_length(1 << 30, 8 << 30, 8 << 30))


def queue_files_with_gaps(root: Path) -> None:
    for start in (1 << 40, (1 << 62) - 20, 10**19 + 7):
        (queue_file(root).parent / f"{start:020d}").write_bytes(UNIT.pack(1, 91, 0) * 10)


def a_queue_with_a_strange_number(root: Path) -> None:
    for name in ("99999999999999999999999", "-1", "²", "00", "1e3", "x" * 200):
        shutil.copytree(queue_file(root).parent, root / "consumequeue" / "GoldenNormalA" / name)


def a_topic_with_a_strange_name(root: Path) -> None:
    for name in ("...", "a b", "a\nb", "é" * 60, "-rf"):
        shutil.copytree(queue_file(root).parent, root / "consumequeue" / name / "0")


def a_sparse_log_file(root: Path) -> None:
    grow(log_of(root), by_length(1 << 30, 4 << 30, 4 << 30))


def log_files_at_the_end_of_the_world(root: Path) -> None:
    for name in ("9" * 20, f"{(1 << 63) - 1:020d}", f"{1 << 62:020d}"):
        shutil.copy(log_of(root), root / "commitlog" / name)


def many_log_files(root: Path) -> None:
    size = log_of(root).stat().st_size
    for number in range(1, by_length(500, 2000, 2000)):
        path = root / "commitlog" / f"{number * size:020d}"
        path.touch()
        os.truncate(path, size)


def record_sizes(root: Path) -> None:
    for place, size in ((0, 0x7FFFFFFF), (4096, -1), (8192, 91)):
        write_at(log_of(root), place, struct.pack(">i", size))


def record_lengths(root: Path) -> None:
    """The first record says that its body, then its topic, is as long as can be."""
    write_at(log_of(root), 84, struct.pack(">i", 0x7FFFFFFF))


def a_log_of_heads(root: Path) -> None:
    """Every 91 bytes the beginning of a record of 2 GiB."""
    path = log_of(root)
    head = struct.pack(">ii", 0x7FFFFFFF, -626843481).ljust(91, b"\xff")
    path.write_bytes(head * (path.stat().st_size // 91))


def a_log_of_magics(root: Path) -> None:
    """Magic numbers one after the other: each looks like the beginning of a record."""
    path = log_of(root)
    path.write_bytes(struct.pack(">i", -626843481) * (path.stat().st_size // 4))


def a_topic_that_leaves_the_directory(root: Path) -> None:
    """The name of a topic in a record, of the same length: with slashes and dots, and a CRC that is right."""
    path = log_of(root)
    data = path.read_bytes()
    topic = b"GoldenNormalA"
    path.write_bytes(data.replace(topic, b"../../../evil"[: len(topic)]))


def index_with_absurd_counts(root: Path) -> None:
    for path in (root / "index").iterdir():
        write_at(path, 32, struct.pack(">ii", 0x7FFFFFFF, 0x7FFFFFFF))


def a_sparse_index(root: Path) -> None:
    for path in (root / "index").iterdir():
        grow(path, 1 << 40)


def an_index_whose_entries_are_a_ring(root: Path) -> None:
    for path in (root / "index").iterdir():
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[:40] + struct.pack(">iqii", 1, 1 << 62, -1, 1) * ((size - 40) // 20))


def what_is_no_file(root: Path) -> None:
    """Directories, pipes and loops of links where files are expected."""
    (root / "commitlog" / f"{1 << 30:020d}").mkdir()
    os.mkfifo(root / "commitlog" / f"{1 << 31:020d}")
    (root / "consumequeue" / "Loop").symlink_to(root / "consumequeue")
    os.mkfifo(queue_file(root).parent / f"{6_000_000 * 9:020d}")


def broken_tables(root: Path) -> None:
    config = root / "config"
    config.mkdir(exist_ok=True)
    for name in ("topics.json", "consumerOffset.json"):
        (config / name).write_bytes(b"[" * 200_000)


SPOILS: tuple[Spoil, ...] = (
    a_queue_unit_far_away, a_unit_in_every_place_of_a_queue, a_sparse_queue_file, queue_files_with_gaps,
    a_queue_with_a_strange_number, a_topic_with_a_strange_name, a_sparse_log_file, log_files_at_the_end_of_the_world,
    many_log_files, record_sizes, record_lengths, a_log_of_heads, a_log_of_magics, a_topic_that_leaves_the_directory,
    index_with_absurd_counts, a_sparse_index, an_index_whose_entries_are_a_ring, what_is_no_file, broken_tables,
)  # fmt: skip


def snapshot(folder: Path, without: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and without not in path.parents
    }


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def run_cli(*words: str) -> tuple[int, str, str, float]:
    """Exit code, output, errors, and resident memory in MiB at its most."""
    code = (
        "import resource, sys; from cometmq.cli.main import main; code = main(sys.argv[1:]); "
        "sys.stderr.write(f'\\npeak={resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}'); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, timeout=300, check=False, preexec_fn=limited
    )
    err, _, peak = ran.stderr.decode(errors="replace").rpartition("\npeak=")
    assert peak, f"{words} ended with {ran.returncode}: {ran.stderr[-2000:]!r}"
    return ran.returncode, ran.stdout[-2000:].decode(errors="replace"), err, int(peak) / 1024


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_the_commands_for_stores_end_with_an_answer(tmp_path: Path, spoil: Spoil) -> None:
    root = copy_golden_store("clean", tmp_path / "deep" / "er" / "store")
    for name in ("evil", "outside.parquet"):
        (tmp_path / name).write_text("outside")
    spoil(root)
    outside = snapshot(tmp_path, root)
    for verb in (["check"], ["stats"], ["dump", "-o", "json"], ["rebuild"], ["rebuild", "--yes"]):
        began_s = time.monotonic()
        code, _, err, peak_mib = run_cli("store", verb[0], str(root), *verb[1:])
        assert code in (0, 1, 3), (verb, code, err[-2000:])
        assert "Traceback" not in err, (verb, err[-3000:])
        assert peak_mib < RESIDENT_MIB_MAX, (verb, peak_mib)
        assert time.monotonic() - began_s < CPU_S * 2, verb
    assert snapshot(tmp_path, root) == outside


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_the_reader_of_stores_ends_with_rows_or_an_error(tmp_path: Path, spoil: Spoil) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    spoil(root)
    code = rf"""
import re, sys
from cometmq.errors import CometError
from cometmq.spark.columns import COLUMNS
from cometmq.spark.stores.source import StoreReader
peak_kib = 0
for bad in ("fail", "skip"):
    for split in ("queue", "log"):
        rows = 0
        try:
            given = {{"paths": {str(root)!r}, "badRecords": bad, "split": split}}
            reader = StoreReader(given, tuple(COLUMNS))
            for part in reader.partitions()[:40]:
                for batch in reader.read(part):
                    rows += batch.num_rows
                    # Pages of mapped files are the page cache's.
                    own = re.search(r"RssAnon:\s+(\d+)", open("/proc/self/status").read())
                    peak_kib = max(peak_kib, int(own[1]))
        except CometError as error:
            print(bad, split, rows, "error", str(error)[:300])
        else:
            print(bad, split, rows)
print("peak", peak_kib)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=300, check=False, preexec_fn=limited, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    *lines, last = ran.stdout.splitlines()
    assert len(lines) == 4, ran.stdout
    assert int(last.split()[1]) / 1024 < RESIDENT_MIB_MAX * 2, last


@pytest.mark.parametrize("seed", range(60 if SOAK else 6))
def test_random_bytes_in_random_files(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)  # to run it again: -k "[{seed}]"
    root = copy_golden_store("clean", tmp_path / "store")
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]
    for _ in range(random_.choice((1, 10, 200))):
        path = random_.choice(files)
        place = random_.randrange(path.stat().st_size)
        write_at(path, place, random_.randbytes(random_.choice((1, 4, 8, 20, 100))))
    from cometmq.cli.main import main

    for verb in ("check", "stats", "dump", "rebuild"):
        assert main(["store", verb, str(root)]) in (0, 1, 3), (seed, verb)


# Archives

OUTSIDE = (
    "../outside.parquet", "data/../../outside.parquet", "/etc/passwd", "data//outside.parquet", "data/./x.parquet",
    "data", "data/", "outside.parquet", "", "data/\0x", "data/" + "a" * 300, "data/" + "a/" * 4000, "data/..",
    "manifest/q/0000000000.json", "./data/x.parquet", "data/topic=T/../../../outside.parquet",
)  # fmt: skip
FILE: dict[str, Any] = {
    "path": "data/topic=T/day=2026-01-01/x.parquet", "topic": "T", "day": "2026-01-01", "rows": 1, "bytes": 1,
    "broker": "b", "queue": 0, "first": 0, "last": 1, "oldest_ms": 0, "newest_ms": 0,
}  # fmt: skip


def manifest(files: Any = (), replaces: Any = (), **more: Any) -> bytes:
    tree = {"version": 1, "query": "q", "batch": 0, "columns": ["body"], "files": files, "replaces": replaces, **more}
    return json.dumps(tree).encode()


ODD: list[Any] = [None, [], {}, True, 1.5]
BROKEN = {
    "a path": [manifest([{**FILE, "path": path}]) for path in OUTSIDE],
    "a replaced path": [manifest([], [path]) for path in OUTSIDE],
    "types": [
        manifest([{**FILE, name: value}])
        for name in FILE
        for value in (*ODD, 7 if isinstance(FILE[name], str) else "7")
    ],
    "form": [
        b"", b"{", b"[]", b"null", b"1", b'"x"', b"[" * 100_000, b"{\"a\":" * 100_000, b"\xff\xfe", b"1" * 10_000,
        manifest(7), manifest([7]), manifest(None), manifest([], 7), manifest([], [7]), manifest(columns=7),
        manifest(columns=[7]), manifest(version=2), manifest(batch="x"), manifest(query=7), manifest([[]]),
    ],
}  # fmt: skip


def archive_at(folder: Path, content: bytes) -> Path:
    root = folder / "lake"
    (root / "manifest" / "q").mkdir(parents=True)
    (root / "manifest" / "q" / "0000000000.json").write_bytes(content)
    data = root / "data" / "topic=T" / "day=2026-01-01"
    data.mkdir(parents=True)
    (data / "x.parquet").write_bytes(b"PAR1")
    (folder / "outside.parquet").write_bytes(b"PAR1 outside")
    return root


@pytest.mark.parametrize("kind", BROKEN)
def test_a_hostile_manifest_is_refused_by_all_that_read_it(tmp_path: Path, kind: str) -> None:
    from cometmq.spark.columns import COLUMNS
    from cometmq.spark.lake.archive import Lake, live_paths
    from cometmq.spark.lake.source import ArchiveReader

    for number, content in enumerate(BROKEN[kind]):
        folder = tmp_path / str(number)
        root = archive_at(folder, content)
        lake = Lake(root)
        outside = snapshot(folder, root / "nowhere")
        for read in (
            lake.live_files,
            lake.columns,
            lambda lake=lake: lake.orphans(-1.0),
            lambda lake=lake: lake.vacuum(-1.0),
            lake.compact,
            lake.write_file_list,
            lambda root=root: live_paths(root),
            lambda root=root: ArchiveReader({"root": str(root)}, tuple(COLUMNS)).partitions(),
        ):
            with pytest.raises(StoreError, match=r"0000000000.json is (no|of version)"):
                read()
        assert snapshot(folder, root / "nowhere") == outside


def test_a_manifest_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    from cometmq.spark.lake.archive import MANIFEST_BYTES_MAX, Lake

    root = archive_at(tmp_path, b"")
    grow(root / "manifest" / "q" / "0000000000.json", 1 << 40)
    with pytest.raises(StoreError, match=f"1099511627776 bytes, at most {MANIFEST_BYTES_MAX} are read"):
        Lake(root).live_files()


def test_a_plan_of_a_replay_and_keys_of_a_search_stay_below_the_archive(tmp_path: Path) -> None:
    from cometmq.spark.lake.archive import Lake
    from cometmq.spark.pipelines.replay import _planned
    from cometmq.spark.pipelines.search import _read_filter

    lake = Lake(archive_at(tmp_path, manifest([FILE])))
    (lake.root / "_replay").mkdir()
    for path in OUTSIDE:
        (lake.root / "_replay" / "again.json").write_text(json.dumps({"files": [path], "parts": 1}))
        with pytest.raises(StoreError, match=r"is not below|bytes"):
            _planned(lake, "again", None, None, None, 1)
    for run in ("../x", "/x", "a/../../x", ""):
        if run:
            with pytest.raises(StoreError, match="is not below"):
                _planned(lake, run, None, None, None, 1)
    with pytest.raises(StoreError, match="is not below"):
        _read_filter(str(lake.root), "../../outside.parquet")


STRANGE_BROKERS = ("../../../../evil", "/evil", "a/b", "..", ".", "a\0b", "a\nb", "b" * 4000, "é" * 200)


@pytest.mark.parametrize("broker", STRANGE_BROKERS)
def test_a_broker_of_any_name_is_archived_below_the_root(tmp_path: Path, broker: str) -> None:
    from cometmq.spark.columns import COLUMNS
    from cometmq.spark.live.offsets import Queue, Range
    from cometmq.spark.pipelines.archive import _Write

    write = _Write(str(tmp_path), {}, tuple(COLUMNS), "q", 0)
    path = write._path(Range(Queue("T", broker, 0), 0, 1), "2026-01-01")
    place = place_below(tmp_path, path)
    assert place.parent == tmp_path / "data" / "topic=T" / "day=2026-01-01"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"it can be made")


@pytest.mark.parametrize("topic", ["../../evil", "/evil", "a/b", "..", ".", "", "a\0b", "t" * 300])
def test_a_topic_that_is_no_name_makes_no_directory(tmp_path: Path, topic: str) -> None:
    """Names of topics come out of records in a store, which a peer may have written."""
    from cometmq.spark.lake.archive import data_path

    with pytest.raises(StoreError, match="cannot be a directory"):
        data_path(topic, "2026-01-01", "x.parquet")
    with pytest.raises(StoreError):
        path_part(topic)


def test_times_of_messages_far_apart_are_dealt_with_one_by_one() -> None:
    import pyarrow as pa

    from cometmq.spark.lake.parquet_writer import by_day

    times = [0, 1 << 62, -(1 << 62), 86_400_000_000, 5, -(1 << 63), (1 << 63) - 1]
    batch = pa.RecordBatch.from_arrays([pa.array(times, pa.timestamp("us"))], ["storeTimestamp"])
    began_s = time.process_time()
    found = by_day(batch)
    assert time.process_time() - began_s < 5
    assert sum(part.num_rows for _, part in found) == len(times)
    assert {day for day, _ in found} == {"1970-01-01", "1970-01-02", "0000-00-00"}


def parquets() -> dict[str, bytes]:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table({"topic": ["T"] * 1000, "body": [b"x" * 1000] * 1000}), sink, compression="zstd")
    good = sink.getvalue()
    random_ = random.Random(7)
    spoilt = {
        "nothing": b"",
        "marks only": b"PAR1" * 3,
        "a footer of 2 GiB": good[:-8] + struct.pack("<I", 0x7FFFFFFF) + b"PAR1",
        "a footer of nothing": good[:-8] + struct.pack("<I", 0) + b"PAR1",
        "cut": good[: len(good) // 2],
        "text": b"no parquet at all" * 100,
        "other columns": good,
    }
    for number in range(12):
        data = bytearray(good)
        for _ in range(20):
            data[random_.randrange(4, len(data) - 4)] = random_.randrange(256)
        spoilt[f"random bytes {number}"] = bytes(data)
    return spoilt


def test_hostile_parquet_is_an_error_with_the_name_of_the_file(tmp_path: Path) -> None:
    code = """
import resource, sys
from cometmq.errors import StoreError
from cometmq.spark.lake.source import ArchiveReader, FilesPartition
from cometmq.spark.columns import chosen
from cometmq.spark.lake.archive import Lake
for path in sys.argv[1:]:
    reader = ArchiveReader({"root": "."}, tuple(chosen(["topic", "queueId", "body"])))
    try:
        sum(batch.num_rows for batch in reader.read(FilesPartition((path,))))
    except StoreError as error:
        assert path in str(error), error
    else:
        raise SystemExit(f"{path} was read")
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    paths = []
    for number, (name, content) in enumerate(parquets().items()):
        path = tmp_path / f"{number} {name}.parquet"
        path.write_bytes(content)
        paths.append(str(path))
    ran = subprocess.run(
        [sys.executable, "-c", code, *paths], capture_output=True, timeout=300, check=False, preexec_fn=limited,
        text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert int(ran.stdout.split()[1]) / 1024 < RESIDENT_MIB_MAX * 2
