"""Cutting a stream into commands, whatever the pieces it arrives in."""

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
