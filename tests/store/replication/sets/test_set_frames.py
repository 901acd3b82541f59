"""The auto-switch frames: bytes of a real 5.5.0 set, pieces of any length, and bytes that mean nothing."""

import random
from contextlib import suppress

import pytest

from cometmq.errors import WireError
from cometmq.store.replication.sets import frames
from cometmq.store.replication.sets.epochs import EpochTable
from cometmq.store.replication.sets.frames import Epochs, Frame, FromLeader, FromReplicas, Hello

# Taken from the wire between two RocketMQ 5.5.0 brokers of a fresh set.
JAVA_HELLO = bytes.fromhex("00000001 0000 0000 0000000000000002")
JAVA_EPOCHS = bytes.fromhex("00000001 0000000c 0000000000000000 00000001 00000001 0000000000000000")
JAVA_REPORT = bytes.fromhex("00000002 0000000000000000")
JAVA_PING = bytes.fromhex("00000002 00000000 ffffffffffffffff 00000001 0000000000000000 0000000000000000")


def test_what_is_written_is_what_rocketmq_writes() -> None:
    assert frames.hello(2) == JAVA_HELLO
    assert frames.epochs(EpochTable([(1, 0)]), 0) == JAVA_EPOCHS
    assert frames.report(0) == JAVA_REPORT
    assert frames.frame(0, -1, 1, 0, 0) == JAVA_PING


def test_what_rocketmq_writes_is_understood() -> None:
    assert list(FromReplicas().feed(JAVA_HELLO + JAVA_REPORT)) == [Hello(2, False, False), 0]
    said = list(FromLeader(1 << 20).feed(memoryview(JAVA_EPOCHS + JAVA_PING)))
    assert isinstance(said[0], Epochs)
    assert (said[0].table.entries, said[0].end, said[0].last) == ([(1, 0)], 0, 1)
    assert said[1] == Frame(-1, 1, 0, 0, memoryview(b""))


def test_pieces_of_any_length_give_the_same_bytes() -> None:
    table = EpochTable([(1, 0), (4, 900)])
    bodies = [b"a" * 700, b"b" * 3, b"c" * 40]
    stream, offset = frames.epochs(table, 5000), 0
    for body in bodies:
        stream += frames.frame(len(body), offset, 4, 900, 17) + body
        offset += len(body)
    chance = random.Random(3)
    for _ in range(200):
        reader, taken, at = FromLeader(1 << 10), b"", 0
        while at < len(stream):
            end = at + chance.choice((1, 2, 5, 36, 400))
            for said in reader.feed(memoryview(stream[at:end])):
                if isinstance(said, Frame):
                    assert said.offset == len(taken), "a piece says where it lies"
                    taken += bytes(said.data)
            at = end
        assert taken == b"".join(bodies)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0" + bytes(40),
        b"\0\0\0\3" + bytes(40),
        frames.EPOCHS.pack(1, 12_012, 0, 1) + bytes(12_012),
        frames.EPOCHS.pack(1, 13, 0, 1) + bytes(13),
        frames.EPOCHS.pack(1, -12, 0, 1),
        frames.EPOCHS.pack(1, 24, 0, 1) + frames.EPOCH.pack(2, 0) + frames.EPOCH.pack(1, 5),
        frames.frame(2000, 0, 1, 0, 0),
        frames.frame(-1, 0, 1, 0, 0),
        frames.frame(10, -1, 1, 0, 0),
    ],
)
def test_a_master_that_says_what_cannot_be_is_left(data: bytes) -> None:
    with pytest.raises(WireError):
        list(FromLeader(1024).feed(memoryview(data)))


@pytest.mark.parametrize("data", [b"\0\0\0\0" + bytes(12), bytes(8), frames.report(-1)])
def test_a_replica_that_says_what_cannot_be_is_closed(data: bytes) -> None:
    with pytest.raises(WireError):
        list(FromReplicas().feed(data))


def test_garbage_raises_nothing_else() -> None:
    chance = random.Random(9)
    good = frames.epochs(EpochTable([(1, 0)]), 9) + frames.frame(5, 0, 1, 0, 0) + b"abcde" + frames.frame(0, 5, 1, 0, 5)
    for _ in range(3_000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(WireError):
            list(FromLeader(64).feed(memoryview(data)))
        with suppress(WireError):
            list(FromReplicas().feed(bytes(data)))
