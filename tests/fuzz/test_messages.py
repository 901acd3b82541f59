"""Mutated records, answers and batches: they parse or raise WireError, and a scan never raises at all.

COMETMQ_FUZZ_MESSAGES sets the number of inputs, COMETMQ_FUZZ_SEED the seed; both are printed by a failure.
"""

import contextlib
import os
import random
import struct

import pytest

from cometmq.errors import WireError
from cometmq.wire.compression import decompress
from cometmq.wire.record.batch import encode_batch, split_batch
from cometmq.wire.record.crc import reserve_crc
from cometmq.wire.record.message import decode_record, decode_records, encode_blank
from cometmq.wire.record.plain_scan import PlainScan
from cometmq.wire.record.properties import decode, find
from cometmq.wire.record.scan import BAD, HALF, OK, scan_record
from tests.support.golden import golden_commitlog, golden_frames, golden_records
from tests.support.length import count
from tests.support.records import SCANNED

INPUTS = count("COMETMQ_FUZZ_MESSAGES", 10000, 40000, 1000000)
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED", "20261115"))
REPLAY = f"COMETMQ_FUZZ_SEED={SEED} COMETMQ_FUZZ_MESSAGES={INPUTS} pytest tests/fuzz/test_messages.py"

# Where lengths, flags and magic are, for hosts of both kinds; a change there goes deeper than one anywhere.
TELLING = (0, 3, 4, 7, 36, 38, 39, 48, 55, 68, 84, 87, 88, 96, 99, 100, 108, 111)
NUMBERS = (0, 1, -1, 90, 91, 127, 128, 32767, 32768, 65535, 2**31 - 1, -(2**31))


def seeds() -> list[bytes]:
    found = [bytes.fromhex(row["record_hex"]) for row in golden_records()]
    _, data = golden_commitlog("clean")[0]
    position = 0
    while (scan := scan_record(data, position, len(data), True)).kind == OK:
        found.append(data[position : position + scan.size])
        position += scan.size
    message = decode_record(found[0])
    message.properties = reserve_crc(b"INNER_NUM\x012\x02INNER_BASE\x010\x02")
    message.topic = "SCHEDULE_TOPIC_XXXX"
    return [*found, message.encode(), encode_blank(100) + bytes(92)]


def mutate(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed)) if chance.random() < 0.5 else chance.choice(TELLING)
        kind = chance.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = chance.randrange(256)
        elif kind == 2 and at + 4 <= len(changed):
            struct.pack_into(">i", changed, at, chance.choice(NUMBERS))
        elif kind == 3 and len(changed) > 100:
            del changed[chance.randrange(8, len(changed)) :]
            struct.pack_into(">i", changed, 0, len(changed))
        else:
            changed[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(changed)


def check_plain(data: bytes, check_crc: bool) -> None:
    """What the scan for plain records takes, the scan for all records must read the same way."""
    plain = PlainScan()
    if plain.take(data, 0, check_crc):
        scan = scan_record(data, 0, len(data), check_crc)
        assert [getattr(plain.scan, name) for name in SCANNED] == [getattr(scan, name) for name in SCANNED]
        assert not scan.properties.endswith("\0")
        assert "\0" not in scan.topic
        assert plain.take(data, 0, check_crc, True)
        if plain.has_key_positions:
            positions = plain.key_positions
            assert data[positions.keys_at : positions.keys_end].decode() == (find(scan.properties, "KEYS") or "")
            assert data[positions.tag_at : positions.tag_end].decode() == (find(scan.properties, "TAGS") or "")
            unique_key = data[positions.unique_at : positions.unique_end].decode()
            assert unique_key == (find(scan.properties, "UNIQ_KEY") or "")


def check_record(data: bytes, chance: random.Random) -> bool:
    """True if the bytes were a record after all."""
    check_crc = chance.random() < 0.5
    scan = scan_record(data, 0, len(data), check_crc, chance.random() < 0.2)
    assert scan.kind not in (OK, HALF) or 0 < scan.size <= len(data)
    check_plain(data, check_crc)
    find(scan.properties, "TAGS")
    try:
        message = decode_record(data, 0, None, check_crc)
    except WireError:
        return False
    assert message.encode() == data[: message.record_bytes]
    assert scan.kind == BAD or scan.size == message.record_bytes
    decode(message.properties)
    with contextlib.suppress(WireError):
        assert len(decompress(message.body, message.sys_flag, 1_000_000)) <= 1_000_000
    return True


@pytest.mark.repeated
def test_mutated_records_parse_or_raise_the_peers_error() -> None:
    chance = random.Random(SEED)
    sources = seeds()
    parsed = refused = 0
    for number in range(INPUTS):
        data = mutate(chance.choice(sources), chance)
        try:
            if check_record(data, chance):
                parsed += 1
            else:
                refused += 1
        except Exception as error:
            raise AssertionError(f"input {number}, {data.hex()}: {error!r}; replay: {REPLAY}") from error
    assert min(parsed, refused) > INPUTS // 20, f"the mutations lost their bite: {parsed=} {refused=}"


@pytest.mark.repeated
def test_mutated_answers_and_batches_parse_or_raise_the_peers_error() -> None:
    chance = random.Random(SEED)
    answers = [b"".join(chance.sample(seeds()[:-1], 3)) for _ in range(20)]
    batches = [
        bytes.fromhex(row["frame_hex"])[-row["body_len"] :]
        for row in golden_frames()
        if row["request_code"] == 320 and row["kind"] == "request"
    ]
    for number in range(INPUTS // 4):
        answer, batch = mutate(chance.choice(answers), chance), mutate(chance.choice(batches), chance)
        try:
            check_answer(answer)
            check_batch(batch)
        except Exception as error:
            inputs = f"{answer.hex()} {batch.hex()}"
            raise AssertionError(f"input {number}, {inputs}: {error!r}; replay: {REPLAY}") from error


def check_answer(data: bytes) -> None:
    try:
        messages = decode_records(data, 10)
    except WireError:
        return
    assert b"".join(message.encode() for message in messages) == data


def check_batch(data: bytes) -> None:
    try:
        members = split_batch(data, 100)
    except WireError:
        return
    assert len(encode_batch(members)) == len(data)
