"""What one broker of a set does next: what it knows in, one step out. No I/O, no clock, no memory of its own.

    document ─┐
    promises ─┼──> next_step() ──> Follow | Lead | Rest | Seal | Unseal | Change | nothing
    seen ─────┘

`Promises` are on this broker's disk and outlive it:

    joined    the newest epoch whose master it has agreed with and whose start it has on its disk
    sealed    it reports nothing to the master of this epoch or of an older one
    led       the newest epoch that it has led; a process that starts never goes on in it

`Seen` is what this process sees and forgets with its end. Whoever calls does the step and asks again when anything has
changed: the step is computed anew from all there is, so none is lost by an error, and none comes too late to be wrong.
Steps are only ever reasons to act sooner or later; that no acked message is lost follows from the document, the
promises and the reports (docs/failover.md), whatever order the steps come in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cometmq.failover import document as documents
from cometmq.failover.document import Document


@dataclass(slots=True)
class Promises:
    """On disk. `id` 0: not a member yet."""

    id: int = 0
    joined: int = 0
    sealed: int = 0
    led: int = 0


@dataclass(slots=True)
class Progress:
    """What a master knows of its members. `ends` are of those that have joined and report; `caught_up` are members that
    have been near the end of the log of late, `committed` is on k disks, `start` is where the epoch began."""

    start: int = 0
    end: int = 0
    committed: int = -1
    ends: dict[int, int] = field(default_factory=dict)
    caught_up: frozenset[int] = frozenset()
    reporting: frozenset[int] = frozenset()


@dataclass(slots=True)
class Seen:
    """Of `epoch`, the one that this process leads or follows; 0: neither.

    `is_refused`: the master's machine refuses connections, so the process is gone. `is_silent`: nothing was heard for
    too long. `is_master_gone`: its key in the store has vanished. `pending`: the (S, k) that a master has asked for
    without knowing what became of it: until the document changes it asks for nothing else.
    """

    epoch: int = 0
    is_leading: bool = False
    end: int = 0
    is_refused: bool = False
    is_silent: bool = False
    is_master_gone: bool = False
    copies: int = 0
    pending: tuple[frozenset[int], int] | None = None
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True, slots=True)
class Follow:
    epoch: int
    master: int


@dataclass(frozen=True, slots=True)
class Lead:
    epoch: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Neither lead nor follow: the epoch is sealed, or this broker led it before."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Stop reporting, flush, and remember it durably. Telling the others comes after."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Unseal:
    """The master has dropped this member, so its seal counts for nobody: it may follow again."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Change:
    """Compare and swap. `kind` is one of: seal, elect, suspect, trust, resize, hand over, wish."""

    kind: str
    document: Document


Step: TypeAlias = Follow | Lead | Rest | Seal | Unseal | Change

SEAL: Final = "seal"
ELECT: Final = "elect"
SUSPECT: Final = "suspect"
TRUST: Final = "trust"
RESIZE: Final = "resize"
HAND_OVER: Final = "hand over"


def next_step(document: Document, promises: Promises, seen: Seen) -> Step | None:
    """None: nothing to do until something changes."""
    epoch, me = document.epoch, promises.id
    if me not in document.members:
        return _rest(epoch, seen)
    if document.has_enough_seals:
        return _elect(document, promises, seen)
    if document.master == me:
        return _as_master(document, promises, seen)
    if promises.sealed >= epoch:
        return _as_sealed(document, promises, seen)
    if seen.epoch != epoch or seen.is_leading:
        return Follow(epoch, document.master)
    return _as_replica(document, promises, seen)


def _rest(epoch: int, seen: Seen) -> Step | None:
    return Rest(epoch) if seen.epoch else None


def _elect(document: Document, promises: Promises, seen: Seen) -> Step | None:
    """A master whose seals are full has no right any more; it stops before it helps to find the next one."""
    if seen.is_leading:
        return Rest(document.epoch)
    return Change(ELECT, documents.elected(document))


# The master


def _as_master(document: Document, promises: Promises, seen: Seen) -> Step | None:
    epoch = document.epoch
    if seen.is_leading and seen.epoch == epoch:
        return _lead_on(document, promises, seen)
    if promises.led < epoch and promises.sealed < epoch:
        return Lead(epoch)
    # It led this epoch before it was started, and does not know what it acked: it seals, and may be elected again.
    if promises.sealed < epoch:
        return Seal(epoch)
    return _as_sealed(document, promises, seen)


def _lead_on(document: Document, promises: Promises, seen: Seen) -> Step | None:
    if promises.sealed >= document.epoch:
        return Rest(document.epoch)
    if seen.pending is not None:
        return Change(RESIZE, documents.resized(document, promises.id, document.epoch, *seen.pending))
    if document.wish and document.wish != promises.id:
        step = _hand_over(document, promises, seen)
        if step is not None:
            return step
    wanted = wanted_set(document, promises.id, seen)
    if wanted is not None:
        after = documents.resized(document, promises.id, document.epoch, *wanted)
        if after != document:
            return Change(RESIZE, after)
    if document.seals and not _can_ack(document, seen):
        # Who sealed does not come back by itself, and without it there are too few to ack: let an election decide.
        return Seal(document.epoch)
    return None


def _hand_over(document: Document, promises: Promises, seen: Seen) -> Step | None:
    """Only to one that has all of it: whoever calls has stopped acking by then."""
    if document.wish in document.seals or document.wish not in seen.progress.ends:
        return None
    if seen.progress.ends[document.wish] < seen.progress.end:
        return None
    return Change(HAND_OVER, documents.handed_over(document, promises.id, document.epoch))


def _can_ack(document: Document, seen: Seen) -> bool:
    members = set(document.in_sync) - document.seals.keys()
    return len(members & seen.progress.ends.keys()) >= document.copies


def wanted_set(document: Document, me: int, seen: Seen) -> tuple[tuple[int, ...], int] | None:
    """The S and k that the master would rather have and may ask for; None: it may not change anything now.

    All that is committed, and the epoch's start, must be on k joined members of what comes.
    """
    progress = seen.progress
    copies = seen.copies or document.copies
    stay = {number for number in document.in_sync if number == me or _stays(document, number, progress)}
    may_enter = document.members.keys() - document.seals.keys() - set(document.leaving)
    new = progress.caught_up & may_enter
    for members in (stay | new, set(document.in_sync) | new):
        if len(members) < len(document.in_sync) and len(members) < max(copies, 2):
            continue
        if may_resize(members, copies, progress):
            return tuple(sorted(members)), copies
    return None


def _stays(document: Document, number: int, progress: Progress) -> bool:
    if number in document.leaving:
        return False
    return number not in document.seals and number in progress.caught_up


def may_resize(members: set[int], copies: int, progress: Progress) -> bool:
    needed = max(progress.committed, progress.start)
    have = sum(progress.ends.get(number, -1) >= needed for number in members)
    return have >= min(copies, len(members))


# Everybody else


def _as_sealed(document: Document, promises: Promises, seen: Seen) -> Step | None:
    epoch, me = document.epoch, promises.id
    if seen.epoch:
        return Rest(epoch)
    if me not in document.in_sync:
        return Unseal(epoch) if document.master != me else None
    if me not in document.seals:
        return Change(SEAL, documents.sealed(document, me, epoch, promises.joined, seen.end))
    return None


def _as_replica(document: Document, promises: Promises, seen: Seen) -> Step | None:
    me = promises.id
    if me not in document.in_sync:
        return None
    if seen.is_refused:
        return Seal(document.epoch)
    if not seen.is_silent:
        return Change(TRUST, documents.trusted(document, me)) if me in document.suspects else None
    votes = (set(document.suspects) | document.seals.keys()) & set(document.in_sync)
    if me in document.suspects and (len(votes) >= document.quorum > 1 or seen.is_master_gone):
        return Seal(document.epoch)
    if me not in document.suspects:
        return Change(SUSPECT, documents.suspected(document, me))
    return None


# What a stopping master asks for


def successor(document: Document, me: int, seen: Seen) -> int:
    """Who can take over at once; 0: nobody."""
    able = [
        number
        for number in document.in_sync
        if number != me and number in seen.progress.caught_up and number not in {*document.seals, *document.leaving}
    ]
    return max(able, key=lambda number: (seen.progress.ends.get(number, -1), -number), default=0)


