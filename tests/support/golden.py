"""Golden stores and frames of RocketMQ 5.5.0, unpacked once per test run. What they are: tests/golden/README.md

`golden_store` gives a directory that every test of the run shares: read it, never write to it. A test that lets
a store open or change files takes `copy_golden_store` instead.
"""

import atexit
import functools
import json
import lzma
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Literal

StoreName = Literal["clean", "crash"]

_GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@functools.cache
def _unpacked(name: StoreName) -> Path:
    """Holds `store/`, `sent.jsonl` and `messages.jsonl`; removed when the run ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"cometmq-golden-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with lzma.open(_GOLDEN / f"java-store-{name}.tar.xz") as packed, tarfile.open(fileobj=packed) as archive:
        archive.extractall(folder, filter="data")
    return folder


def golden_store(name: StoreName) -> Path:
    """The store directory itself (with `commitlog/`, `consumequeue/`, ...), shared and read-only by agreement."""
    return _unpacked(name) / "store"


def copy_golden_store(name: StoreName, target: Path) -> Path:
    """A private copy at `target`, which must not exist yet."""
    return Path(shutil.copytree(golden_store(name), target))


def golden_commitlog(name: StoreName) -> list[tuple[int, bytes]]:
    """(start offset, bytes) of every commit log file, in order."""
    files = sorted((golden_store(name) / "commitlog").iterdir())
    return [(int(file.name), file.read_bytes()) for file in files]


def golden_messages(name: StoreName) -> list[dict[str, Any]]:
    """The messages of the user topics as the Java pull consumer read them."""
    return _read_lines(_unpacked(name) / "messages.jsonl")


def golden_sent(name: StoreName) -> list[dict[str, Any]]:
    """What the Java producer was told about each of its sends."""
    return _read_lines(_unpacked(name) / "sent.jsonl")


def golden_frames() -> list[dict[str, Any]]:
    """Frames as seen on the wire; `frame_hex` is the whole frame."""
    return _read_lines(_GOLDEN / "wire-frames.jsonl")


def golden_records() -> list[dict[str, Any]]:
    """Single records by RocketMQ's encoder, one per combination of host kinds, topic length and CRC."""
    return _read_lines(_GOLDEN / "java-records.jsonl")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
