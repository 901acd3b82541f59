"""Cutting a stream into commands, whatever the pieces it arrives in."""

import random
import tracemalloc

import pytest

from cometmq.errors import WireError
from cometmq.wire.command import ROCKETMQ, Command, encode, request
from cometmq.wire.frame import FRAME_BYTES_MAX, FrameSplitter
from tests.support.golden import golden_frames

FRAMES = [bytes.fromhex(row["frame_hex"]) for row in golden_frames()]


def feed_in_pieces(stream: bytes, piece_bytes: int) -> list[Command]:
    splitter = FrameSplitter()
    commands: list[Command] = []
    for start in range(0, len(stream), piece_bytes):
        commands += splitter.feed(stream[start : start + piece_bytes])
    assert splitter.pending_bytes == 0
    return commands


@pytest.mark.mission("RM-01")
@pytest.mark.parametrize("piece_bytes", [1, 10, 100_000_000], ids=["byte by byte", "ten at a time", "whole"])
def test_all_golden_frames_come_out_of_one_stream_and_encode_back(piece_bytes: int) -> None:
    commands = feed_in_pieces(b"".join(FRAMES), piece_bytes)
    assert len(commands) == len(FRAMES)
    for frame, command in zip(FRAMES, commands, strict=True):
        again = encode(command)
        if command.form == ROCKETMQ:
            assert again == frame
        else:  # JSON leaves the order of members and an empty set of ext fields to the writer
            [reread] = FrameSplitter().feed(again)
            assert repr(reread) == repr(command)
            assert reread.body == command.body


@pytest.mark.parametrize("seed", range(30))
def test_large_frames_come_out_whole_whatever_the_pieces(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    sent = [
        request(chance.randrange(400), {"k": "v" * chance.choice([1, 30_000])}, chance.randbytes(size), opaque=number)
        for number, size in enumerate(chance.choices([0, 100, 20_000, 300_000, 1_000_000], k=8))
    ]
    stream = b"".join(encode(command) for command in sent)
    splitter = FrameSplitter()
    came: list[Command] = []
    position = 0
    while position < len(stream):
        size = chance.choice([1, 3, 500, 16_384, 70_000, 262_144])
        came += splitter.feed(stream[position : position + size])
        position += size
    assert [(one.opaque, one.ext, one.body) for one in came] == [(one.opaque, one.ext, one.body) for one in sent]
    assert splitter.pending_bytes == 0


def test_a_bad_head_of_a_large_frame_is_told_when_the_frame_is_there() -> None:
    frame = bytearray(encode(request(10, body=bytes(100_000))))
    frame[4] = 9
    splitter = FrameSplitter()
    assert splitter.feed(bytes(frame[:50_000])) == []
    with pytest.raises(WireError, match="serialize type 9"):
        splitter.feed(bytes(frame[50_000:]))
    assert splitter.broken is not None


def test_a_peer_that_drips_costs_no_more_than_its_bytes() -> None:
    splitter = FrameSplitter()
    splitter.feed((8 << 20).to_bytes(4, "big"))
    tracemalloc.start()
    try:
        for _ in range(100_000):
            splitter.feed(b"drip drop")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert splitter.pending_bytes == 900_004
    assert held < 2 * splitter.pending_bytes


def test_memory_follows_what_arrived_and_not_what_was_announced() -> None:
    splitter = FrameSplitter()
    assert splitter.feed((FRAME_BYTES_MAX - 4).to_bytes(4, "big") + b"x" * 100) == []
    assert splitter.pending_bytes == 104


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    head = len(encode(request(10)))
    largest = encode(request(10, body=bytes(FRAME_BYTES_MAX - head)))
    assert len(largest) == FRAME_BYTES_MAX
    [command] = FrameSplitter().feed(largest)
    assert len(command.body) == FRAME_BYTES_MAX - head
    with pytest.raises(WireError, match="frame length word"):
        FrameSplitter().feed(encode(request(10, body=bytes(FRAME_BYTES_MAX - head + 1)))[:8])


@pytest.mark.parametrize("word", ["ffffffff", "80000000", "00000003", "00000000"])
def test_an_impossible_length_breaks_the_stream(word: str) -> None:
    with pytest.raises(WireError, match="frame length word"):
        FrameSplitter().feed(bytes.fromhex(word))


def test_commands_before_a_bad_frame_are_delivered_and_the_stream_stays_broken() -> None:
    good = encode(request(34, opaque=1))
    splitter = FrameSplitter()
    assert [command.opaque for command in splitter.feed(good + b"\0\0\0\x05\x09\0\0\0x" + good)] == [1]
    assert splitter.broken is not None
    assert "serialize type 9" in splitter.broken
    with pytest.raises(WireError, match="already broken"):
        splitter.feed(good)
