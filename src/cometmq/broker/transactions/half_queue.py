"""One queue of halves: how far the walk over it is, what became of halves lately, and what to do with the next one.

    judge        give up   asked for too often, or older than the log keeps messages
                 keep      its own time to decide is not over: copied, nobody is asked
                 wait      younger than the broker's time: so are all behind it, the walk ends here
                 ask       copied, and a producer is asked for the copy

A half that is copied lives on at the end of the queue, and the walk is past the old one. But its producer may still
end it under the old offset: because it was slow, because it was asked twice, or because it has set its own time and
knows no other offset. So a queue remembers the copies of halves that are open, and what became of those that have
ended; then the first word of a producer counts, and a message is committed once. Both memories are bounded and not
saved: what was copied is found again by reading the queue after a restart.

A half that a crash left without its op is asked for again; so a message that was committed within seconds before a
crash may be committed twice.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple, TypeVar

from cometmq.broker.transactions.half import Half
from cometmq.broker.transactions.ops import OpBatch, OpQueue

K = TypeVar("K")
V = TypeVar("V")

# Both cost some 150 bytes each.
ENDED_KEPT_MAX: Final = 100_000
COPIED_KEPT_MAX: Final = 100_000
FORGOTTEN_SHARE: Final = 16


class Fate:
    COMMITTED: Final = 1
    ROLLED_BACK: Final = 2
    GIVEN_UP: Final = 3


FATE_NAMES: Final = {Fate.COMMITTED: "committed", Fate.ROLLED_BACK: "rolled back", Fate.GIVEN_UP: "given up"}


class Verdict:
    ASK: Final = 1
    KEEP: Final = 2
    WAIT: Final = 3
    GIVE_UP: Final = 4


class Rules(NamedTuple):
    timeout_ms: int
    checks_max: int
    age_ms_max: int


def judge(half: Half, now_ms: int, rules: Rules) -> int:
    """A born time in the future, by a producer's clock, is no reason to wait until then."""
    age_ms = now_ms - half.message.born_timestamp_ms
    if half.checks >= rules.checks_max or age_ms > rules.age_ms_max:
        return Verdict.GIVE_UP
    own_time_ms = half.own_time_ms
    if own_time_ms is not None:
        return Verdict.KEEP if abs(age_ms) < own_time_ms else Verdict.ASK
    return Verdict.WAIT if 0 <= age_ms < rules.timeout_ms else Verdict.ASK


class Mark(NamedTuple):
    """Progress that may be saved as soon as the log is on disk up to `log_offset`: copies and committed messages that
    it relies on are before that."""

    log_offset: int
    half_offset: int
    op_offset: int


class HalfQueue:
    """`offset`: the next half to look at. `first_new`: the first half that was put after the start.

    `copies_known`: whether copies from before the start have been looked for.
    """

    def __init__(self, queue_id: int, half_offset: int, op_offset: int, first_new: int) -> None:
        self.queue_id = queue_id
        self.offset = half_offset
        self.first_new = first_new
        self.ops = OpQueue(queue_id, op_offset)
        self.batch = OpBatch(queue_id)
        self.copies_known = False
        self.mark: Mark | None = None
        self._ended: dict[int, int] = {}
        self._copied: dict[str, list[int]] = {}
        self._ended_early: dict[str, int] = {}

    def move_within(self, low: int, high: int) -> bool:
        """Halves may be gone by age, and a log may have been cut. True if the walk goes on elsewhere than it was."""
        offset = min(max(self.offset, low), high)
        if offset == self.offset:
            return False
        self.offset = offset
        self.ops.jumped(offset)
        return True

    def fate(self, offset: int) -> int | None:
        """What became of a half; None if it is open, or was ended too long ago to remember."""
        return self._ended.get(offset)

    def has_ended(self, offset: int) -> bool:
        """As far as ops have been read."""
        return offset in self._ended or self.ops.names(offset)

    def is_superseded(self, half: Half) -> bool:
        """Whether there is a later copy, which lives on instead."""
        offsets = self._copied.get(half.key)
        return offsets is not None and offsets[-1] > half.message.queue_offset

    def copied(self, half: Half, offset: int) -> None:
        """A copy of `half` is at `offset`."""
        offsets = self._copied.pop(half.key, None) or [half.message.queue_offset]
        if offset > offsets[-1]:
            offsets.append(offset)
        bound(self._copied, COPIED_KEPT_MAX)
        self._copied[half.key] = offsets

    def found_copy(self, copy: Half) -> list[int]:
        """A copy from before the start. Gives its offset, for an op, if the half was ended since."""
        fate = self._ended_early.get(copy.key)
        if fate is not None:
            self.end(copy, fate)
            return [copy.message.queue_offset]
        self.copied(copy, copy.message.queue_offset)
        return []

    def found_copies(self) -> None:
        """That was the last one."""
        self.copies_known = True
        self._ended_early.clear()

    def end(self, half: Half, fate: int) -> list[int]:
        """Remember the end of a half and its copies; gives the offsets for which an op must be written."""
        offset = half.message.queue_offset
        if not self.copies_known:
            bound(self._ended_early, ENDED_KEPT_MAX)
            self._ended_early[half.key] = fate
        offsets = self._copied.pop(half.key, [offset])
        for known in {offset, *offsets}:
            bound(self._ended, ENDED_KEPT_MAX)
            self._ended[known] = fate
        return [offset] if offsets[-1] == offset else [offset, offsets[-1]]


def bound(table: dict[K, V], count_max: int) -> None:
    """Make room by forgetting the oldest: a share of them at once, because a search for the first key passes all that
    were forgotten before it. One by one, that takes up to 42 us in a table of 100,000."""
    if len(table) >= count_max:
        for key in list(islice(table, count_max // FORGOTTEN_SHARE + 1)):
            del table[key]
