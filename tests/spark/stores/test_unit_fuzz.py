"""Units of queues with bytes of every kind: a reader gives each message once, or says that it does not.

    badRecords=fail    all rows of the log, or an error that names the store
    badRecords=skip    all rows but those whose units were changed, and a line in the log of the worker for each

The same files go through `cometmq store check`, which must find something wrong, and `store dump`, which must end.
"""

from __future__ import annotations

import logging
import random
import re
import struct
from collections import Counter
from pathlib import Path

import pytest

from cometmq.cli.main import main
from cometmq.errors import StoreError
from cometmq.spark.columns import COLUMNS
from cometmq.spark.stores.partitions import StoreDirectory
from cometmq.spark.stores.source import Reading
from tests.support.golden import copy_golden_store, golden_messages
from tests.support.length import by_length

UNIT = struct.Struct(">qiq")
SEEDS = range(by_length(20, 100, 400))
OFFSETS = (1 << 62, (1 << 63) - 1, -1, -(1 << 63), 1 << 40, 1 << 20, 7, 0)
SIZES = (0x7FFFFFFF, 0, -1, -(1 << 31), 90, 91, 1 << 30, 1)

Row = tuple[str, int, int]


def rows_of(store: StoreDirectory, skip_bad: bool, bytes_max: int) -> Counter[Row]:
    reading = Reading(COLUMNS, True, skip_bad, False, 64, 16 << 20)
    found: Counter[Row] = Counter()
    for share in store.queue_shares(lambda topic: True, bytes_max):
        for batch in store.read_queues(share, reading):
            found.update((row["topic"], row["queueId"], row["queueOffset"]) for row in batch.to_pylist())
    return found


def skipped(records: list[logging.LogRecord]) -> int:
    told = [re.search(r"skip units .*count=(\d+)", record.getMessage()) for record in records]
    return sum(int(one[1]) for one in told if one is not None)


def change(random_: random.Random, unit: bytes, others: list[bytes]) -> bytes:
    """Another unit, which is not one of zeros: such a one is the end of a queue. `others` have another queue's number
    or place: that a record is of another topic is told by `store check`, not by a reader."""
    offset, size, tag = UNIT.unpack(unit)
    kind = random_.randrange(5)
    if kind == 0:
        changed = UNIT.pack(random_.choice(OFFSETS), size, tag)
    elif kind == 1:
        changed = UNIT.pack(offset, random_.choice(SIZES), tag)
    elif kind == 2:
        changed = UNIT.pack(random_.choice(OFFSETS), random_.choice(SIZES), tag)
    elif kind == 3:
        changed = random_.choice(others)
    else:
        changed = random_.randbytes(12) + unit[12:]
    if changed == unit or not any(changed[:12]) or UNIT.unpack(changed)[:2] == (0, 0x7FFFFFFF):
        return UNIT.pack(1 << 62, size, tag)
    return changed


def test_the_two_units_that_were_dropped_silently_are_errors(tmp_path: Path) -> None:
    for changed in (UNIT.pack(1 << 62, 210, 0), UNIT.pack(0, 0x7FFFFFFF, 0)):
        root = copy_golden_store("clean", tmp_path / f"store{changed[0]}")
        file = max((root / "consumequeue").glob("*/*/*"), key=lambda path: path.read_bytes().rstrip(b"\0").__len__())
        data = bytearray(file.read_bytes())
        data[20:40] = changed
        file.write_bytes(data)
        for bytes_max in (1000, 1 << 30):
            with pytest.raises(StoreError, match="badRecords=skip"):
                rows_of(StoreDirectory.at(str(root), "b"), False, bytes_max)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_row_is_lost_without_a_word(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    random_ = random.Random(seed)  # to run it again: -k "[{seed}]"
    root = copy_golden_store("clean", tmp_path / "store")
    everything = Counter({(one["topic"], one["queueId"], one["queueOffset"]): 1 for one in golden_messages("clean")})
    units: dict[Row, bytes] = {}
    files: dict[tuple[str, int], tuple[Path, bytearray]] = {}
    for file in sorted((root / "consumequeue").glob("*/*/*")):
        topic, queue_id = file.parent.parent.name, int(file.parent.name)
        data = bytearray(file.read_bytes())
        files[topic, queue_id] = file, data
        for number in range(len(data) // UNIT.size):
            unit = bytes(data[number * UNIT.size : (number + 1) * UNIT.size])
            if any(unit):
                units[topic, queue_id, number] = unit
    everything |= Counter(dict.fromkeys(units, 1))
    store = StoreDirectory.at(str(root), "broker-a")
    assert rows_of(store, False, 1 << 30) == everything
    chosen = random_.sample(sorted(units), random_.choice((1, 1, 2, 5, 20)))
    for name in chosen:
        topic, queue_id, number = name
        file, data = files[topic, queue_id]
        data[number * UNIT.size : (number + 1) * UNIT.size] = change(
            random_, units[name], [unit for other, unit in units.items() if other[1:] != name[1:]]
        )
    for file, data in files.values():
        file.write_bytes(data)
    bytes_max = random_.choice((500, 5000, 1 << 30))
    with pytest.raises(StoreError):
        rows_of(store, False, bytes_max)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "cometmq.spark"):
        found = rows_of(store, True, bytes_max)
    assert found == everything - Counter(dict.fromkeys(chosen, 1)), f"seed {seed}: {chosen}"
    assert found.total() + skipped(caplog.records) >= everything.total(), f"seed {seed}: {chosen}"
    assert main(["store", "check", str(root)]) == 1
    assert main(["store", "dump", str(root)]) in (0, 1)
    capsys.readouterr()
