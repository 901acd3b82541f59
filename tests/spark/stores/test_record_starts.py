"""Records are found as if each were looked at in turn, whatever bodies hold and wherever the run breaks off."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cometmq.spark.stores.record_starts import chained
from cometmq.wire.record.layout import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN


def stepped(data: bytes, position: int, end: int) -> tuple[list[int], int]:
    """One after the other."""
    found = []
    while position < end and position + RECORD_BYTES_MIN <= len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        magic = int.from_bytes(data[position + 4 : position + 8], "big", signed=True)
        if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_BYTES_MIN <= size <= len(data) - position:
            break
        found.append(position)
        position += size
    return found, position


def run_of_records(chance: random.Random) -> bytes:
    """Records whose insides look like records, or parts of them, now and then."""
    run = bytearray()
    for number in range(chance.randrange(1, 60)):
        size = chance.choice([RECORD_BYTES_MIN, 100, 450, 2000]) + chance.randrange(9)
        magic = chance.choice([MAGIC_V1, MAGIC_V1, MAGIC_V2])
        record = bytearray(size.to_bytes(4, "big") + (magic & 0xFFFFFFFF).to_bytes(4, "big"))
        while len(record) < size:
            pieces: list[bytes | bytearray] = [
                record[:8],
                run[-60:],
                run[:100],
                chance.randbytes(20),
                b"\xda" * 3,
                bytes(9),
            ]
            record += chance.choice(pieces)
        run += record[:size]
        if number and chance.random() < 0.02:
            run += chance.randbytes(chance.randrange(1, 300))
    return bytes(run[: len(run) - chance.choice([0, 0, 1, 50])])


@pytest.mark.parametrize("seed", range(80))
def test_the_same_records_are_found_as_by_looking_at_each(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    data = run_of_records(chance)
    octets = np.frombuffer(data, np.uint8)
    for end in (len(data), *(chance.randrange(len(data) + 1) for _ in range(4))):
        found, position = chained(octets, 0, end)
        assert (found.tolist(), position) == stepped(data, 0, end)


def test_no_bytes_have_no_records() -> None:
    for data in (b"", b"\xda", bytes(90), bytes(200)):
        found, position = chained(np.frombuffer(data, np.uint8), 0, len(data))
        assert (found.tolist(), position) == ([], 0)
