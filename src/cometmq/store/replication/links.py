"""The replicas that are connected to a master, and what is known of each.

    born_offset    end of the log when the connection came
    acked_offset   the log up to here is on the replica, as it says; -1 before its first report
    next_offset    what is sent to it next; before that it was written to this very connection
    proven_offset  what it reports once that is more than it began with; -1 before

A report beyond `next_offset` speaks of bytes that nobody has sent: it ends the connection. The first report is where
the replica wishes to begin. That it has all before is its word only, so no producer is answered by it: a replica that
was cut off has to take something on the new connection first. (Ours asks for the end of its log once more; a replica of
RocketMQ has to wait for the next message, and producers that wait meanwhile get FLUSH_SLAVE_TIMEOUT.)

How many replicas have the log up to an offset? Connections say nothing about who is at their other end, and two of
them may belong to one replica: it was cut off, came back, and the master has not noticed the end of the old connection.
Counting both would promise a copy that is not there. But a replica opens a connection only after it closed the one
before, and nothing that was written to the log later than that can be reported on the old one. So two connections
belong to different replicas for certain if the older one has reported an offset beyond the `born_offset` of the
younger one, and

    offset E is on k replicas at least   if   born_offset < E <= acked_offset   holds for k connections

A single report counts as soon as it is proven: one replica is one replica.

An empty replica is sent the last segment only: `first_offset` says where that begins. It has nothing of what lies
before, whatever it reports, so who waits for that when it comes is not answered by any report any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from cometmq.errors import WireError
from cometmq.store.replication.frames import HEADER, Reports
from cometmq.store.replication.rate import Pace

_NOTHING: Final = memoryview(b"")
# Headers of heartbeats.
SLACK_BYTES: Final = 1 << 10
# A replica so far behind gets long frames: it can receive one straight to where it looks for records, and neither side
# has a step to make for every 32 KiB. RocketMQ's replicas take frames of nearly 4 MiB.
BACKLOG_BYTES: Final = 8 << 20
BACKLOG_FRAME_BYTES: Final = 1 << 20
# Whoever sets haTransferBatchSize to less than RocketMQ's default wants short frames.
LONG_FRAMES_FROM_BYTES: Final = 32 << 10


class SentLog(Protocol):
    """What a master needs of its log."""

    max_offset: int

    @property
    def min_offset(self) -> int: ...

    @property
    def confirm_offset(self) -> int:
        """Up to here replicas may have it: what a power cut of the master would take is not sent."""

    def read_from(self, physical_offset: int) -> tuple[int, memoryview] | None: ...


class LinkOptions(Protocol):
    """Settings, read when they are needed: they may change."""

    segment_bytes: int
    ha_heartbeat_ms: int
    ha_silence_ms: int
    ha_frame_bytes: int
    ha_gap_bytes_max: int
    ha_pace_enabled: bool
    ha_pace_bytes: int


class Link:
    """One connection as the master sees it."""

    def __init__(self, name: str, log: SentLog, options: LinkOptions, now_s: float) -> None:
        self.name = name
        self.born_offset: int = log.max_offset
        self.first_offset: int = 0
        self.acked_offset: int = -1
        self.proven_offset: int = -1
        self.next_offset: int = -1
        self.born_s: float = now_s
        # Of what was output, how much its socket has not taken yet; headers of frames are counted too.
        self.unsent_bytes: Callable[[], int] = _none
        self.pace = Pace(now_s)
        self._log = log
        self._options = options
        self._begun_at: int = 0
        self._reports = Reports()
        self._heard_s = now_s
        self._spoke_s = now_s

    # What comes

    def received(self, data: bytes, now_s: float) -> bool:
        """Take what the replica sent; True if its report moved. WireError: it says what cannot be true."""
        self._heard_s = now_s
        offset = self._reports.feed(data)
        if offset is None:
            return False
        if offset > self._log.max_offset:
            raise WireError(
                f"the replica reports offset {offset}, but this log ends at {self._log.max_offset}: it follows another "
                "master, or this one lost its tail; let the replica take over, or empty its store to copy the log anew"
            )
        if self.next_offset < 0:
            self._begin(offset)
        elif offset > (sent := self._sent_offset(offset)):
            raise WireError(
                f"the replica reports offset {offset}, but on this connection it was sent the log up to "
                f"{sent} only: nothing that it says is believed"
            )
        elif offset > self._begun_at:
            self.proven_offset = offset
        moved = offset != self.acked_offset
        self.acked_offset = offset
        return moved

    def _sent_offset(self, offset: int) -> int:
        """Up to here the socket has taken the log, or a little less far."""
        if self.acked_offset < offset <= self.next_offset:
            unsent_bytes = self.unsent_bytes()
            if unsent_bytes:
                # Records have 91 bytes at least and a header 12, so less than an eighth of it is headers.
                return min(self.next_offset, self.next_offset - unsent_bytes + unsent_bytes // 8 + SLACK_BYTES)
        return self.next_offset

    def _begin(self, offset: int) -> None:
        """Where the replica asks; one without a log gets the last segment."""
        if offset == 0:
            end = self._log.max_offset
            offset = self.first_offset = end - end % self._options.segment_bytes
        self.next_offset = self._begun_at = offset

    # What goes

    def output(self, frames_max: int, now_s: float) -> list[bytes | memoryview]:
        """Buffers to be written now: frames, or a heartbeat if it is time for one. Empty: nothing to say.

        WireError: the replica asked for what this log does not have any more.
        """
        if self.next_offset < 0:
            return []
        buffers: list[bytes | memoryview] = []
        frame_bytes = self._options.ha_frame_bytes
        bytes_max = frames_max * frame_bytes
        if frame_bytes >= LONG_FRAMES_FROM_BYTES and self._log.confirm_offset - self.next_offset >= BACKLOG_BYTES:
            frame_bytes = bytes_max = max(frame_bytes, BACKLOG_FRAME_BYTES)
        view = self._next_bytes(bytes_max, now_s)
        for at in range(0, len(view), frame_bytes):
            piece = view[at : at + frame_bytes]
            buffers += (HEADER.pack(self.next_offset + at, len(piece)), piece)
        if len(view):
            self.next_offset += len(view)
            self.pace.count(len(view), now_s)
        elif now_s - self._spoke_s >= self._options.ha_heartbeat_ms / 1000:
            buffers.append(HEADER.pack(self.next_offset, 0))
        if buffers:
            self._spoke_s = now_s
        return buffers

    def _next_bytes(self, bytes_max: int, now_s: float) -> memoryview:
        """Of one segment; none if there is nothing new, or nothing more may go in this second."""
        log, options = self._log, self._options
        room = min(log.confirm_offset - self.next_offset, bytes_max)
        if options.ha_pace_enabled:
            room = min(room, self.pace.room(options.ha_pace_bytes, now_s))
        if room <= 0:
            return _NOTHING
        found = log.read_from(self.next_offset)
        if found is None or found[0] != self.next_offset:
            if self.next_offset < log.min_offset:
                raise WireError(
                    f"the replica asks for offset {self.next_offset}, but this log begins at {log.min_offset}: what "
                    "lay before has expired; empty the replica's store to copy the log anew"
                )
            return _NOTHING
        return found[1][:room]

    # Time

    def is_silent(self, now_s: float) -> bool:
        """Nothing was heard for so long that the other end must be gone."""
        heard_s = self.born_s if self.next_offset < 0 else self._heard_s  # parts of a report are not heard
        return now_s - heard_s >= self._options.ha_silence_ms / 1000

    def due_s(self) -> float:
        """When to ask for output, or whether it is silent, even if nothing happens."""
        silence_s = self._options.ha_silence_ms / 1000
        if self.next_offset < 0:
            return self.born_s + silence_s
        silent_s = self._heard_s + silence_s
        due_s = min(silent_s, self._spoke_s + self._options.ha_heartbeat_ms / 1000)
        if self._options.ha_pace_enabled and self.next_offset < self._log.confirm_offset:
            return min(due_s, self.pace.window_end_s)
        return due_s

    def in_sync(self) -> bool:
        """It has reported, and is not too far behind to be waited for."""
        return self.acked_offset >= 0 and self._log.max_offset - self.acked_offset < self._options.ha_gap_bytes_max


def _none() -> int:
    return 0


def replicated_offset(links: list[Link], count: int) -> int:
    """Up to where at least `count` different replicas have the log; -1: nowhere."""
    if count == 1:
        return max((link.proven_offset for link in links), default=-1)
    best = -1
    for link in links:
        offset = link.acked_offset
        if offset > best and sum(other.born_offset < offset <= other.acked_offset for other in links) >= count:
            best = offset
    return best
