"""A store stays as large as its settings say: not with the messages that went through it, hardly with its queues.

Each test measures a process of its own (tests/support/growing.py) through /proc.

    COMETMQ_LONG_RUN_S=28800    how long the long run takes (8; 15 in make verify, 60 in make soak)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.length import count

LONG_RUN_S = float(count("COMETMQ_LONG_RUN_S", 8, 15, 60))
REPO = Path(__file__).parents[2]
GROWTH_KIB_MAX = 4096
QUEUES = 10_000
QUEUE_KIB_MAX = 2
# Buffers that a store has once, whatever the number of its queues.
STORE_KIB_MAX = 4096
DESCRIPTORS_MAX = 300

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="sizes are read from /proc")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[str]:
    """In memory if there is enough: ten thousand files that are synced one by one wear out a disk and patience."""
    shared = "/dev/shm"
    is_roomy = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 256 << 20
    with tempfile.TemporaryDirectory(dir=shared if is_roomy else tmp_path) as directory:
        yield directory


def grow(what: str, directory: str, size: float) -> list[dict[str, int]]:
    source = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPO / "src"), str(REPO)]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.growing", what, directory, f"{size:g}"],
        env={**os.environ, "PYTHONPATH": source},
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=size + 300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_memory_does_not_grow_with_the_number_of_messages(directory: str) -> None:
    samples = grow("messages", directory, 200_000)
    warm, last = samples[1], samples[-1]
    assert (warm["messages"], last["messages"]) == (50_000, 200_000)
    assert last["anonymous_kib"] - warm["anonymous_kib"] < GROWTH_KIB_MAX, samples
    assert last["resident_kib"] - warm["resident_kib"] < GROWTH_KIB_MAX, samples
    assert last["files"] <= warm["files"] + 10, samples
    assert last["descriptors"] <= warm["descriptors"] + 10, samples
    assert last["maps"] <= warm["maps"] + 3, samples


def test_ten_thousand_queues_cost_little_memory_and_no_files_held_open(directory: str) -> None:
    empty, filled, opened_again = grow("queues", directory, QUEUES)
    for full in (filled, opened_again):
        assert full["queues"] == QUEUES
        assert full["descriptors"] < DESCRIPTORS_MAX
        assert full["queue_maps"] == 0
        assert full["anonymous_kib"] - empty["anonymous_kib"] < QUEUES * QUEUE_KIB_MAX + STORE_KIB_MAX


@pytest.mark.repeated
def test_a_long_run_is_flat(directory: str) -> None:
    """Threads and timers run, topics and light queues come and go, readers read, segments expire in seconds."""
    samples = grow("run", directory, LONG_RUN_S)
    warm, rest = samples[5], samples[6:]
    assert rest[-1]["messages"] > 2 * warm["messages"] > 0, "hardly anything was taken"
    assert rest[-1]["topics"] > warm["topics"]
    for name, room in (
        ("anonymous_kib", GROWTH_KIB_MAX),
        ("resident_kib", 5 * GROWTH_KIB_MAX),  # the pages of up to 20 segments are part of it
        ("files", 250),
        ("descriptors", 250),
        ("maps", 20),
        ("threads", 0),
        ("tasks", 0),
    ):
        assert max(sample[name] for sample in rest) <= warm[name] + room, f"{name}: {samples}"
