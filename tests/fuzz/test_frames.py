"""Mutated golden frames: garbage parses or raises WireError, nothing else, and chunking changes nothing.

COMETMQ_FUZZ_INPUTS sets the number of inputs, COMETMQ_FUZZ_SEED the seed; both are printed by a failure.
"""

import os
import random
from pathlib import Path

import pytest

from cometmq.errors import WireError
from cometmq.wire.command import encode
from cometmq.wire.frame import FrameSplitter
from tests.support.golden import golden_frames
from tests.support.length import count

INPUTS = count("COMETMQ_FUZZ_INPUTS", 40000, 200000, 2000000)
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED", "20261115"))
REPLAY = f"COMETMQ_FUZZ_SEED={SEED} COMETMQ_FUZZ_INPUTS={INPUTS} pytest tests/fuzz/test_frames.py"
INTERESTING = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF, ord('"'), ord("{"), ord("}"), ord("\\"))

Outcome = tuple[list[bytes], str | None, int]


def mutate(frame: bytes, chance: random.Random) -> bytes:
    """One to four small injuries, mostly in the words and the header, where parsing happens."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(6)
        at = chance.randrange(min(len(data), chance.choice((8, 32, 400, len(data)))) or 1) if data else 0
        if not data or kind == 0:
            data[at:at] = bytes(chance.choices(INTERESTING, k=chance.randint(1, 4)))
        elif kind == 1:
            del data[at : at + chance.randint(1, 8)]
        elif kind == 2:
            data[at] = chance.choice(INTERESTING)
        elif kind == 3:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 4:
            del data[at:]
        else:
            data[at : at + 4] = chance.randrange(2**32).to_bytes(4, "big")
    return bytes(data)


def consume(data: bytes, piece_bytes: int) -> Outcome:
    """What a connection would see: the commands, what broke the stream, what is left over."""
    splitter = FrameSplitter()
    commands: list[bytes] = []
    for start in range(0, len(data), piece_bytes):
        try:
            commands += [encode(command) for command in splitter.feed(data[start : start + piece_bytes])]
        except WireError:
            assert splitter.broken is not None
        if splitter.broken is not None:
            return commands, splitter.broken, 0
    return commands, None, splitter.pending_bytes


@pytest.mark.repeated
@pytest.mark.mission("RM-02")
def test_mutated_frames_raise_only_wire_errors_and_agree_in_every_chunking() -> None:
    chance = random.Random(SEED)
    frames = [bytes.fromhex(row["frame_hex"]) for row in golden_frames()]
    broken = 0
    settled_bytes = 0
    for number in range(INPUTS):
        data = mutate(chance.choice(frames), chance)
        whole = consume(data, len(data) or 1)
        assert whole == consume(data, 1), f"input {number} {data.hex()}\nreplay: {REPLAY}"
        broken += whole[1] is not None
        if number == INPUTS // 10:
            settled_bytes = resident_bytes()
    grown_bytes = resident_bytes() - settled_bytes
    assert INPUTS // 5 < broken < INPUTS, f"{broken} of {INPUTS} inputs were malformed: mutations too mild or too wild"
    assert grown_bytes < 8 << 20, f"memory grew by {grown_bytes} bytes; replay: {REPLAY}"
    print(f"{INPUTS} mutated frames, {broken} malformed, memory grew by {grown_bytes} bytes")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
