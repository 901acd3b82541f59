"""The state of a set of brokers: one value, changed only as a whole and only if nobody changed it meanwhile.

    {"format": 1, "epoch": 7, "master": 2, "copies": 2, "inSync": [1, 2, 3], "seals": {"3": [6, 8192]},
     "suspects": [], "wish": 0, "nextId": 4, "members": {"1": {"address": ..., "ha": ..., "check": ...}, ...}}

    epoch      counts masters. Whatever begins a new one goes through `elected`, `handed_over` or `forced`
    inSync     S: the members without whose agreement nobody becomes master
    copies     k: on so many disks of S a message is before it is acked
    seals      member -> [joined epoch, end]: it reports nothing more to the master of this epoch
    suspects   members that do not hear the master; a vote before the vote, never a right
    wish       the member that shall lead next, by an operator or by a master that stops; 0: none
    leaving    members that an operator takes away: they follow, and do not enter S again

q = |S| - min(k, |S|) + 1 seals stop a master: each ack needs k members of S, so one of the sealed has all that is
acked, and no k are left to ack more. The winner is the sealed member with the largest (joined epoch, end).

Every function takes a document and gives a new one, or raises `Refused` with the reason. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from cometmq.errors import CometError

FORMAT: Final = 1
DOCUMENT_BYTES_MAX: Final = 64 << 10
MEMBERS_MAX: Final = 16
TEXT_CHARS_MAX: Final = 256


class Refused(CometError):
    """This change may not be made to this document."""


class Member(msgspec.Struct, frozen=True):
    """`check` tells a broker that comes back from another one that was given its id."""

    address: str
    ha: str
    check: str = ""


class Forced(msgspec.Struct, frozen=True, rename="camel"):
    """An election that an operator forced: who, when, and what was given up. Kept until the next one."""

    by: str
    at_ms: int
    epoch: int
    master: int


class Document(msgspec.Struct, frozen=True, rename="camel"):
    epoch: int
    master: int
    copies: int
    in_sync: tuple[int, ...]
    members: dict[int, Member]
    format: int = FORMAT
    suspects: tuple[int, ...] = ()
    seals: dict[int, tuple[int, int]] = {}
    wish: int = 0
    next_id: int = 1
    forced: Forced | None = None
    leaving: tuple[int, ...] = ()

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def quorum(self) -> int:
        return quorum(len(self.in_sync), self.copies)

    @property
    def has_enough_seals(self) -> bool:
        return len(self.seals.keys() & set(self.in_sync)) >= self.quorum


def quorum(members: int, copies: int) -> int:
    """So many of the in-sync members can stop their master."""
    return members - min(copies, members) + 1


def decode(data: bytes) -> Document:
    """Refused: it is none, or one of a newer release."""
    if len(data) > DOCUMENT_BYTES_MAX:
        raise Refused(f"the document of the set has {len(data)} bytes, at most {DOCUMENT_BYTES_MAX} are read")
    try:
        document = msgspec.json.decode(data, type=Document)
    except msgspec.MsgspecError as error:
        raise Refused(f"what the store has under the key of the set is not its document: {error}") from None
    if document.format != FORMAT:
        raise Refused(f"the document of the set has format {document.format}, this release knows {FORMAT}: upgrade")
    if document.epoch < 1 or document.copies < 1 or len(document.members) > MEMBERS_MAX:
        raise Refused(
            f"the document of the set is damaged: epoch {document.epoch}, copies {document.copies}, "
            f"{len(document.members)} members"
        )
    if not set(document.in_sync) <= document.members.keys() or document.master not in document.in_sync:
        raise Refused("the document of the set is damaged: its master or in-sync set are not among its members")
    return document


# Members


def created(member: Member, copies: int, epoch: int = 1) -> Document:
    """A new set: whoever makes it is its first member and master. `epoch`: above all that its log has seen."""
    _check_member(member)
    return Document(epoch=epoch, master=1, copies=copies, in_sync=(1,), members={1: member}, next_id=2)


def joined(document: Document, member: Member) -> tuple[Document, int]:
    """With one more member, and its id. The same `check` gets the same id again: a lost answer does no harm."""
    _check_member(member)
    for number, known in document.members.items():
        if member.check and known.check == member.check:
            return moved(document, number, member), number
    if len(document.members) >= MEMBERS_MAX:
        raise Refused(f"the set has {len(document.members)} members, at most {MEMBERS_MAX}: forget one that is gone")
    number = document.next_id
    members = document.members | {number: member}
    return msgspec.structs.replace(document, members=members, next_id=number + 1), number


def moved(document: Document, number: int, member: Member) -> Document:
    """A member came back, maybe at another address."""
    _check_member(member)
    known = document.members.get(number)
    if known is None:
        raise Refused(f"member {number} was forgotten: empty the store of this broker, it joins as a new one")
    if known.check != member.check:
        raise Refused(f"member {number} is another broker ({known.address}): empty the store of this one")
    return msgspec.structs.replace(document, members=document.members | {number: member})


def forgotten(document: Document, number: int) -> Document:
    """Without a member that will not come back. It must be out of S, or its vote would be lost."""
    if number not in document.members:
        raise Refused(f"member {number} is not in the set: it has {sorted(document.members)}")
    if number in document.in_sync:
        raise Refused(f"member {number} is in sync, so its disk counts: stop it and wait until the master drops it")
    members = {each: member for each, member in document.members.items() if each != number}
    return msgspec.structs.replace(
        document,
        members=members,
        wish=0 if document.wish == number else document.wish,
        leaving=_without(document.leaving, [number]),
    )


def leaves(document: Document, number: int) -> Document:
    """`number` is to leave the set: its master takes it out of S as soon as it may, and it does not come back."""
    if number not in document.members:
        raise Refused(f"member {number} is not in the set: it has {sorted(document.members)}")
    if number == document.master:
        raise Refused(f"member {number} leads the set: elect another one first")
    stay = set(document.in_sync) - {number, *document.leaving}
    if number in document.in_sync and len(stay) < max(document.copies, 2):
        raise Refused(
            f"without member {number} the in-sync set has {len(stay)} members, {max(document.copies, 2)} are needed: "
            "add one first"
        )
    return msgspec.structs.replace(document, leaving=(*_without(document.leaving, [number]), number))


def stays(document: Document, number: int) -> Document:
    """It may come back."""
    return msgspec.structs.replace(document, leaving=_without(document.leaving, [number]))


def _check_member(member: Member) -> None:
    for text in (member.address, member.ha, member.check):
        if len(text) > TEXT_CHARS_MAX:
            raise Refused(f"an address of {len(text)} characters, at most {TEXT_CHARS_MAX}: check brokerIP1")


# Votes


def suspected(document: Document, number: int) -> Document:
    """`number` does not hear the master."""
    if number not in document.in_sync or number in document.suspects or number in document.seals:
        raise Refused(f"member {number} has no vote to give")
    return msgspec.structs.replace(document, suspects=(*document.suspects, number))


def trusted(document: Document, number: int) -> Document:
    """`number` hears the master again."""
    if number not in document.suspects:
        raise Refused(f"member {number} suspects nobody")
    return msgspec.structs.replace(document, suspects=_without(document.suspects, [number]))


def sealed(document: Document, number: int, epoch: int, joined_epoch: int, end: int) -> Document:
    """`number` reports nothing more to the master of `epoch`; it has joined `joined_epoch` and has the log up to `end`
    on its disk. The promise must be on its disk too before this is asked."""
    if epoch != document.epoch:
        raise Refused(f"the seal is for epoch {epoch}, the set is in {document.epoch}")
    if number not in document.in_sync:
        raise Refused(f"member {number} is not in sync: its seal says nothing")
    if number in document.seals:
        raise Refused(f"member {number} has sealed")
    return msgspec.structs.replace(
        document,
        seals=document.seals | {number: (joined_epoch, end)},
        suspects=_without(document.suspects, [number]),
    )


# New masters


def winner(document: Document) -> int:
    """Of the sealed members of S the one with the most; the smallest id among equals."""
    votes = {number: seal for number, seal in document.seals.items() if number in document.in_sync}
    if len(votes) < document.quorum:
        raise Refused(
            f"{len(votes)} of {len(document.in_sync)} in-sync members have sealed epoch {document.epoch}, "
            f"{document.quorum} are needed"
        )
    return max(votes, key=lambda number: (*votes[number], number == document.wish, -number))


def elected(document: Document) -> Document:
    """Anybody may ask for this once there are enough seals: who it is follows from the document alone."""
    return _next_epoch(document, winner(document))


def handed_over(document: Document, master: int, epoch: int) -> Document:
    """`master` of `epoch` gives the lead to the member that is wished for. It acks nothing more before it asks, and
    that member has all on its disk: so no seals are needed."""
    _check_master(document, master, epoch)
    if document.wish not in document.in_sync or document.wish == master:
        raise Refused(f"nobody to hand over to: wish {document.wish}, in sync {list(document.in_sync)}")
    return _next_epoch(document, document.wish)


def forced(document: Document, number: int, by: str, at_ms: int) -> Document:
    """An operator's way out: what other members have and `number` has not is given up, acked or not."""
    if number not in document.members:
        raise Refused(f"member {number} is not in the set: it has {sorted(document.members)}")
    note = Forced(by[:TEXT_CHARS_MAX], at_ms, document.epoch + 1, number)
    after = msgspec.structs.replace(document, in_sync=(number,), forced=note)
    return _next_epoch(after, number)


def wished(document: Document, number: int) -> Document:
    """An operator, or a master that stops, wants `number` to lead."""
    if number not in document.in_sync:
        raise Refused(f"member {number} is not in sync: {list(document.in_sync)} are")
    if number == document.master:
        raise Refused(f"member {number} leads already")
    if number in document.leaving:
        raise Refused(f"member {number} is to leave the set")
    return msgspec.structs.replace(document, wish=number)


def unwished(document: Document) -> Document:
    return msgspec.structs.replace(document, wish=0)


def _next_epoch(document: Document, master: int) -> Document:
    return msgspec.structs.replace(document, epoch=document.epoch + 1, master=master, seals={}, suspects=(), wish=0)


# The in-sync set


def resized(document: Document, master: int, epoch: int, in_sync: Iterable[int], copies: int) -> Document:
    """`master` of `epoch` changes S or k. It has made sure that all that is committed, and the start of the epoch, is
    on `copies` joined members of the new S. Seals of those who go do not count any more."""
    _check_master(document, master, epoch)
    after = tuple(sorted(set(in_sync)))
    if master not in after or not set(after) <= document.members.keys():
        raise Refused(f"the new in-sync set {list(after)} lacks the master, or has members that the set does not know")
    if len(after) < len(document.in_sync) and len(after) < max(copies, 2):
        raise Refused(f"the in-sync set would fall to {len(after)}: never below {max(copies, 2)} while copies={copies}")
    gone = set(document.in_sync) - set(after)
    return msgspec.structs.replace(
        document,
        in_sync=after,
        copies=copies,
        seals={number: seal for number, seal in document.seals.items() if number not in gone},
        suspects=_without(document.suspects, gone),
        wish=0 if document.wish in gone else document.wish,
    )


def _check_master(document: Document, master: int, epoch: int) -> None:
    if (master, epoch) != (document.master, document.epoch):
        raise Refused(
            f"member {master} led epoch {epoch}, but the set is in {document.epoch} and led by {document.master}"
        )


def _without(numbers: Iterable[int], gone: Iterable[int]) -> tuple[int, ...]:
    left_out = set(gone)
    return tuple(number for number in numbers if number not in left_out)


