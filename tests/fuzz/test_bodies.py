"""Mutated bodies and ext fields: garbage decodes or is refused in one of two ways, and what decodes encodes again.

COMETMQ_FUZZ_BODIES sets the number of inputs, COMETMQ_FUZZ_SEED the seed; both are printed by a failure.
"""

import os
import random

import pytest

from cometmq.errors import WireError
from cometmq.wire import bodies
from cometmq.wire.bodies import Body, RegisterBrokerBody
from cometmq.wire.command import decode
from cometmq.wire.fastjson.dialect import loads
from cometmq.wire.headers import REQUEST_HEADERS, HeaderError
from tests.support.golden import golden_frames
from tests.support.length import count

INPUTS = count("COMETMQ_FUZZ_BODIES", 10000, 40000, 1000000)
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED", "20261115"))
REPLAY = f"COMETMQ_FUZZ_SEED={SEED} COMETMQ_FUZZ_BODIES={INPUTS} pytest tests/fuzz/test_bodies.py"
FRAGMENTS = (
    b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"null", b"true", b"0", b"-1", b"1.5", b"1e400", b"9" * 30,
    b'{"$ref":"$"}', b'{"$ref":".."}', b'{"$ref":"$.offsetTable"}', b"\xff", b"\\ud800", b'{"a":1}:', b"\x00",
)  # fmt: skip
TEXTS = ("", "-1", "1", "2147483648", "9" * 25, " 1", "true", "x", "\x00", "😀")

KINDS = [
    kind for kind in vars(bodies).values() if isinstance(kind, type) and issubclass(kind, Body) and kind is not Body
]


def mutate(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            changed[at:at] = chance.choice(FRAGMENTS)
        elif kind == 1:
            del changed[at : at + chance.randint(1, 12)]
        elif kind == 2:
            end = chance.randrange(at, len(changed) + 1)
            changed[at:at] = changed[at:end][:200]
        elif changed:
            changed[at % len(changed)] = chance.randrange(256)
    return bytes(changed)


def golden_bodies() -> list[bytes]:
    commands = [decode(frame, 4, len(frame)) for row in golden_frames() if (frame := bytes.fromhex(row["frame_hex"]))]
    found = {command.body for command in commands if command.body[:1] in (b"{", b"[")}
    return sorted({*found, *(kind.decode(b"{}").encode() for kind in KINDS)})


@pytest.mark.repeated
def test_mutated_bodies_decode_or_are_refused() -> None:
    chance = random.Random(SEED)
    seeds = golden_bodies()
    decoded = 0
    for number in range(INPUTS):
        data = mutate(chance.choice(seeds), chance)
        kind = chance.choice(KINDS)
        try:
            value = kind.decode(data)
            assert kind.decode(value.encode()) == value
            decoded += 1
        except WireError:
            pass
        except Exception as error:
            raise AssertionError(f"{kind.__name__} input {number} {data!r}; replay: {REPLAY}") from error
        try:
            loads(data)
        except WireError:
            pass
        except Exception as error:
            raise AssertionError(f"loads input {number} {data!r}; replay: {REPLAY}") from error
    assert decoded > INPUTS // 100, "mutations are too strong to reach what lies behind the parser"


@pytest.mark.repeated
def test_mutated_compressed_registrations_decode_or_are_refused() -> None:
    chance = random.Random(SEED)
    packed = RegisterBrokerBody(["f:1"]).encode_compressed()
    for number in range(INPUTS // 10):
        data = mutate(packed, chance)
        try:
            RegisterBrokerBody.decode(data, version=chance.choice((30, 407, 513)), compressed=chance.random() < 0.8)
        except WireError:
            pass
        except Exception as error:
            raise AssertionError(f"input {number} {data!r}; replay: {REPLAY}") from error


@pytest.mark.repeated
def test_mutated_ext_fields_decode_or_are_refused() -> None:
    chance = random.Random(SEED)
    requests = [row for row in golden_frames() if row["kind"] == "request" and row["request_code"] in REQUEST_HEADERS]
    for number in range(INPUTS):
        row = chance.choice(requests)
        code = chance.choice(list(REQUEST_HEADERS)) if chance.random() < 0.2 else row["request_code"]
        ext = dict(row["header"]["extFields"])
        for _ in range(chance.randint(1, 3)):
            ext[chance.choice(list(ext))] = chance.choice(TEXTS)
        if chance.random() < 0.3:
            del ext[chance.choice(list(ext))]
        try:
            header = REQUEST_HEADERS[code].decode(ext)
            REQUEST_HEADERS[code].decode(REQUEST_HEADERS[code].encode(header))
        except HeaderError:
            pass
        except Exception as error:
            raise AssertionError(f"code {code} input {number} {ext!r}; replay: {REPLAY}") from error
