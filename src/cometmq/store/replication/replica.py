"""A replica as a value: bytes of its master go in, its log grows, reports come out.

    connected() ──> first report ──> frames ──> checked against the own tail ──> appended ──> reported when flushed

What is reported is on this replica's disk, not just in its memory: that is what the master promises to producers.

The first report asks for the last `CHECKED_BYTES` of the own log once more, and what comes is compared with them
before anything is appended. A log that went another way (of a former master, or behind a master that lost its tail in
a power cut) would otherwise be continued in the middle of a record, and nobody would know until a consumer
stumbles. To the master this is a replica that is a little behind.
"""

from __future__ import annotations

from typing import Final, Protocol

from cometmq.errors import StoreError, WireError
from cometmq.store.replication.frames import HEADER_BYTES, REPORT, Frames
from cometmq.store.replication.rate import Pace
from cometmq.store.replication.record_cutter import WholeRecords

CHECKED_BYTES: Final = 32 << 10
# 0 asks for the last segment, wherever it begins.
FIRST_REQUEST: Final = 1
# An exbibyte: what says that it has written more is no broker.
OFFSET_MAX: Final = 1 << 60
# The bytes of a long frame are received where records are looked for, so many at a time at most.
LONG_FRAME_BYTES: Final = 256 << 10
LANDING_BYTES: Final = 1 << 20


class GrowingLog(Protocol):
    """What a replica needs of its log."""

    max_offset: int

    @property
    def min_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None: ...

    def read_from(self, physical_offset: int) -> tuple[int, memoryview] | None: ...


class ReplicaOptions(Protocol):
    segment_bytes: int
    ha_heartbeat_ms: int
    ha_silence_ms: int


class Diverged(StoreError):
    """This log and the master's are different logs. Retrying does not help, an operator must choose."""


class Replica:
    """One connection to a master, from `connected` on; make a new one for the next."""

    def __init__(
        self, log: GrowingLog, options: ReplicaOptions, now_s: float, long_frame_bytes: int = LONG_FRAME_BYTES
    ) -> None:
        self.reported_offset: int = -1
        self.pace = Pace(now_s)
        self.heard_s: float = now_s
        self.reported_s: float = now_s
        self._log = log
        self._options = options
        self._long_frame_bytes = long_frame_bytes
        self._frames = Frames(options.segment_bytes)
        self._records = WholeRecords(options.segment_bytes)
        self._taken: list[memoryview] = []
        self._taken_at: int = 0
        self._landing: memoryview = memoryview(b"")
        self._header: memoryview = memoryview(bytearray(HEADER_BYTES))
        # What comes next; bytes before it are in both logs. An empty log may begin anywhere.
        self._position: int = _first_request(log)
        self._anywhere: bool = log.max_offset == 0
        # Up to here this log was written before; it ends with a whole record.
        self._known_until: int = log.max_offset

    @property
    def is_checked(self) -> bool:
        """The whole of this log is in the master's."""
        return self._position >= self._known_until

    def connected(self, now_s: float) -> bytes:
        """The first report, to be sent at once: it says where the master is to begin."""
        return self._report(self._position, now_s)

    def received(self, data: memoryview, now_s: float) -> bool:
        """Take bytes of the master; True if the log grew.

        WireError: the master breaks the protocol. Diverged: it has another log. StoreError, OSError: the disk.
        In all these cases the connection is of no more use.
        """
        self._heard(len(data), now_s)
        return self._take_frames(data)

    def landing(self) -> memoryview | None:
        """Where to put what comes next, while frames are long; then `landed` takes it. None: anywhere, for `received`.

        Not more of it than this frame and the next header, which lies behind what is looked through then.
        """
        frames = self._frames
        if frames.length < self._long_frame_bytes or self._anywhere or not self.is_checked:
            return None
        if self._position != frames.offset:
            return None  # `received` refuses it
        header = frames.header_bytes_left
        if frames.left:
            count = frames.left + header if frames.left <= LANDING_BYTES else LANDING_BYTES
            self._landing = self._records.landing(self._position, count)
        else:
            self._landing = self._header[:header]
        return self._landing

    def landed(self, count: int, now_s: float) -> bool:
        """As `received`, of bytes that were put where `landing` said."""
        self._heard(count, now_s)
        grew = False
        body_bytes = min(count, self._frames.left)
        if body_bytes:
            self._frames.skip(body_bytes)
            self._position += body_bytes
            grew = self._append(*self._records.landed(body_bytes))
        if body_bytes < count:
            self._take_frames(self._landing[body_bytes:count])
        return grew

    def _heard(self, count: int, now_s: float) -> None:
        self.heard_s = now_s
        self.pace.count(count, now_s)

    def _take_frames(self, data: memoryview) -> bool:
        try:
            for offset, piece in self._frames.feed(data):
                if offset != self._position:
                    self._check_begin(offset)
                if len(piece):
                    self._take(offset, piece)
                elif not self.is_checked:
                    raise Diverged(
                        f"the master's log ends at {offset}, this replica's at {self._log.max_offset}: the master lost "
                        "its tail; let this replica take over, or empty its store to copy the log anew"
                    )
        finally:
            grew = self._append_taken()
        return grew

    def _check_begin(self, offset: int) -> None:
        """An empty log begins where one of its files would. (A heartbeat may say anything before.)"""
        if not self._anywhere:
            raise WireError(f"the master sends offset {offset}, but this replica goes on at {self._position}")
        if self._frames.length and (offset % self._options.segment_bytes or offset > OFFSET_MAX):
            raise WireError(
                f"the master begins at offset {offset}: this empty log begins at a multiple of "
                f"{self._options.segment_bytes} (mappedFileSizeCommitLog, the same on both) up to {OFFSET_MAX}"
            )

    def _take(self, offset: int, piece: memoryview) -> None:
        self._anywhere = False
        self._position = offset + len(piece)
        known = min(len(piece), self._known_until - offset)
        if known > 0:
            self._check(offset, piece[:known])
            offset += known
            piece = piece[known:]
        if len(piece):
            if not self._taken:
                self._taken_at = offset
            self._taken.append(piece)

    def _append_taken(self) -> bool:
        """The whole records of all that was taken: many frames, one write."""
        if not self._taken:
            return False
        taken, self._taken = self._taken, []
        return self._append(*self._records.feed(self._taken_at, taken))

    def _append(self, offset: int, records: memoryview) -> bool:
        if not len(records):
            return False
        self._log.append_raw(offset, records)
        return True

    def _check(self, offset: int, piece: memoryview) -> None:
        while len(piece):
            found = self._log.read_from(offset)
            own = found[1][: len(piece)] if found is not None and found[0] == offset else memoryview(b"")
            if not len(own) or own != piece[: len(own)]:
                raise Diverged(
                    f"this replica's log differs from the master's near offset {offset}: one of them went on without "
                    "the other; decide which one counts and empty the other's store"
                )
            offset += len(own)
            piece = piece[len(own) :]

    # Reports

    def report(self, now_s: float) -> bytes:
        """The report that is due now; empty if none is."""
        offset = self._reportable()
        if offset > self.reported_offset or now_s - self.reported_s >= self._options.ha_heartbeat_ms / 1000:
            return self._report(max(offset, self.reported_offset), now_s)
        return b""

    def _reportable(self) -> int:
        """What is in both logs, and on disk here."""
        return min(self._position, self._log.flushed_offset) if self._log.max_offset else 0

    def _report(self, offset: int, now_s: float) -> bytes:
        self.reported_offset = offset
        self.reported_s = now_s
        return REPORT.pack(offset)

    # Time

    def is_silent(self, now_s: float) -> bool:
        return now_s - self.heard_s >= self._options.ha_silence_ms / 1000

    def due_s(self) -> float:
        """When to ask for a report, or whether the master is silent, even if nothing happens."""
        return min(
            self.reported_s + self._options.ha_heartbeat_ms / 1000, self.heard_s + self._options.ha_silence_ms / 1000
        )


def _first_request(log: GrowingLog) -> int:
    end = log.max_offset
    return max(FIRST_REQUEST, log.min_offset, end - CHECKED_BYTES) if end else 0
