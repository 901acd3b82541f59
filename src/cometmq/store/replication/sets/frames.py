"""The bytes of RocketMQ's auto-switch replication. Integers are big endian.

    replica -> master   | state 1 i32 | from last file i16 | learner i16 | own id i64 |                  hello
    master -> replica   | state 1 i32 | bytes of epochs i32 | log end i64 | last epoch i32 |
                        then for each epoch | epoch i32 | start i64 |                                    epochs
    master -> replica   | state 2 i32 | bytes i32 | offset i64 | epoch i32 | its start i64 | committed i64 | bytes
    replica -> master   | state 2 i32 | offset i64 |                                                     report

A frame lies within one epoch and one segment; one without bytes says that the master lives. All may arrive in any
pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from cometmq.errors import WireError
from cometmq.store.replication.sets.epochs import ENTRIES_MAX, EpochTable

HANDSHAKE: Final = 1
TRANSFER: Final = 2
HELLO: Final = Struct(">ihhq")
EPOCHS: Final = Struct(">iiqi")
EPOCH: Final = Struct(">iq")
FRAME: Final = Struct(">iiqiqq")
REPORT: Final = Struct(">iq")
_STATE: Final = Struct(">i")
# What a heartbeat of a log without a byte says.
OFFSET_MIN: Final = -1


class Hello(NamedTuple):
    id: int
    from_last_file: bool
    is_learner: bool


class Epochs(NamedTuple):
    """What a master says of its log."""

    table: EpochTable
    end: int
    last: int


class Frame(NamedTuple):
    """`data` is a piece of the frame's bytes, valid until the next call; a heartbeat has none."""

    offset: int
    epoch: int
    start: int
    committed: int
    data: memoryview


FromReplica: TypeAlias = Hello | int
FromMaster: TypeAlias = Epochs | Frame


def hello(own_id: int, *, from_last_file: bool = False, is_learner: bool = False) -> bytes:
    return HELLO.pack(HANDSHAKE, from_last_file, is_learner, own_id)


def epochs(table: EpochTable, end: int) -> bytes:
    """The newest as many as fit."""
    entries = table.entries[-ENTRIES_MAX:]
    head = EPOCHS.pack(HANDSHAKE, EPOCH.size * len(entries), end, table.last)
    return head + b"".join(EPOCH.pack(*entry) for entry in entries)


def frame(count: int, offset: int, epoch: int, start: int, committed: int) -> bytes:
    return FRAME.pack(TRANSFER, count, offset, epoch, start, committed)


def report(offset: int) -> bytes:
    return REPORT.pack(TRANSFER, offset)


class FromReplicas:
    """Pieces of what a replica sends -> hellos and reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[FromReplica]:
        """WireError: it is neither."""
        data = self._rest + data
        at = 0
        while len(data) - at >= _STATE.size:
            state: int = _STATE.unpack_from(data, at)[0]
            if state not in (HANDSHAKE, TRANSFER):
                raise WireError(
                    f"a replica sends state {state}: it does not speak the protocol of sets; set "
                    "enableControllerMode=true on it"
                )
            size = HELLO.size if state == HANDSHAKE else REPORT.size
            if len(data) - at < size:
                break
            if state == HANDSHAKE:
                _, last_file, learner, number = HELLO.unpack_from(data, at)
                yield Hello(number, last_file == 1, learner == 1)
            else:
                offset: int = REPORT.unpack_from(data, at)[1]
                if offset < 0:
                    raise WireError(f"a replica reports offset {offset}, which is below 0")
                yield offset
            at += size
        self._rest = data[at:]


class FromLeader:
    """Pieces of what a master sends -> its epochs, then frames as they arrive; none is gathered."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._left = 0
        self._frame = Frame(0, 0, 0, 0, memoryview(b""))

    def feed(self, data: memoryview) -> Iterator[FromMaster]:
        """WireError: a header that cannot be one."""
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                known = self._frame
                self._frame = known._replace(offset=known.offset + len(piece))
                yield known._replace(data=piece)
                continue
            missing = self._wanted() - len(self._held)
            self._held += data[at : at + missing]
            at += missing
            if len(self._held) == self._wanted():
                found = self._begin()
                if found is not None:
                    yield found

    def _wanted(self) -> int:
        """How long what is being held will be, as far as that is known."""
        held = self._held
        if len(held) < _STATE.size:
            return _STATE.size
        if self._state() == TRANSFER:
            return FRAME.size
        if len(held) < EPOCHS.size:
            return EPOCHS.size
        count: int = EPOCHS.unpack_from(held)[1]
        if not 0 <= count <= EPOCH.size * ENTRIES_MAX or count % EPOCH.size:
            raise WireError(f"a master sends {count} bytes of epochs, at most {EPOCH.size * ENTRIES_MAX} are taken")
        return EPOCHS.size + count

    def _state(self) -> int:
        state: int = _STATE.unpack_from(self._held)[0]
        if state not in (HANDSHAKE, TRANSFER):
            raise WireError(f"a master sends state {state}: it does not speak the protocol of sets")
        return state

    def _begin(self) -> FromMaster | None:
        held = bytes(self._held)
        self._held.clear()
        if _STATE.unpack_from(held)[0] == HANDSHAKE:
            _, count, end, last = EPOCHS.unpack_from(held)
            try:
                table = EpochTable([EPOCH.unpack_from(held, EPOCHS.size + at) for at in range(0, count, EPOCH.size)])
            except ValueError as error:
                raise WireError(f"a master sends epochs that cannot be: {error}") from None
            return Epochs(table, end, last)
        _, count, offset, epoch, start, committed = FRAME.unpack_from(held)
        if not 0 <= count <= self._bytes_max or offset < (0 if count else OFFSET_MIN):
            raise WireError(f"a frame of {count} bytes at offset {offset}: a frame has 0 to {self._bytes_max} bytes")
        self._left = count
        self._frame = Frame(offset, epoch, start, committed, memoryview(b""))
        return None if count else self._frame
