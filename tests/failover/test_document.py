"""The document of a set: who may change what, and who wins."""

import pytest

from cometmq.failover import document as documents
from cometmq.failover.document import Document, Member, Refused

A = Member("a:1", "a:2", "x")
B = Member("b:1", "b:2", "y")
C = Member("c:1", "c:2", "z")


def a_set() -> Document:
    document = documents.created(A, 2)
    for member in (B, C):
        document, _ = documents.joined(document, member)
    return documents.resized(document, 1, 1, (1, 2, 3), 2)


def test_a_document_survives_its_json() -> None:
    document = documents.sealed(documents.suspected(a_set(), 2), 3, 1, 1, 4096)
    assert documents.decode(document.encode()) == document
    assert b'"inSync":[1,2,3]' in document.encode()
    assert b'"seals":{"3":[1,4096]}' in document.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b'{"epoch":1}', b"\xff" * 20, b"{" * 70_000,
        a_set().encode().replace(b'"format":1', b'"format":2'),
        a_set().encode().replace(b'"master":1', b'"master":9'),
        a_set().encode().replace(b'"epoch":1', b'"epoch":0'),
    ],
)  # fmt: skip
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        documents.decode(data)


@pytest.mark.parametrize(
    ("members", "copies", "needed"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (3, 3, 1), (5, 2, 4), (5, 3, 3)]
)
def test_so_many_seals_leave_too_few_to_ack(members: int, copies: int, needed: int) -> None:
    assert documents.quorum(members, copies) == needed
    assert members - needed < copies


def test_two_of_three_seals_elect_who_has_joined_the_newest_epoch_then_who_has_most() -> None:
    one = documents.sealed(a_set(), 2, 1, 1, 9_000)
    with pytest.raises(Refused, match="2 are needed"):
        documents.elected(one)
    assert documents.elected(documents.sealed(one, 3, 1, 1, 9_001)).master == 3
    assert documents.elected(documents.sealed(one, 3, 1, 0, 9_001)).master == 2
    after = documents.elected(documents.sealed(one, 3, 1, 1, 9_000))
    assert (after.master, after.epoch, after.seals, after.suspects, after.in_sync) == (2, 2, {}, (), (1, 2, 3))


def test_a_seal_is_for_the_epoch_of_the_document_and_of_a_member_in_sync() -> None:
    with pytest.raises(Refused, match="epoch 2"):
        documents.sealed(a_set(), 2, 2, 1, 0)
    shrunk = documents.resized(a_set(), 1, 1, (1, 2), 2)
    with pytest.raises(Refused, match="not in sync"):
        documents.sealed(shrunk, 3, 1, 1, 0)


def test_only_the_master_of_the_epoch_changes_the_in_sync_set() -> None:
    with pytest.raises(Refused, match="led by 1"):
        documents.resized(a_set(), 2, 1, (1, 2), 2)
    with pytest.raises(Refused, match="led epoch 2"):
        documents.resized(a_set(), 1, 2, (1, 2), 2)


def test_the_in_sync_set_never_falls_below_two_or_the_copies() -> None:
    with pytest.raises(Refused, match="never below 2"):
        documents.resized(a_set(), 1, 1, (1,), 2)
    with pytest.raises(Refused, match="never below 3"):
        documents.resized(a_set(), 1, 1, (1, 2), 3)


def test_who_leaves_the_in_sync_set_takes_its_votes_along() -> None:
    document = documents.sealed(documents.suspected(a_set(), 2), 3, 1, 1, 7)
    after = documents.resized(document, 1, 1, (1, 2), 2)
    assert (after.seals, after.suspects) == ({}, (2,))


def test_the_same_broker_gets_its_id_again_and_another_one_does_not() -> None:
    document = a_set()
    again, number = documents.joined(document, Member("elsewhere:1", "b:2", "y"))
    assert (number, again.members[2].address, again.next_id) == (2, "elsewhere:1", 4)
    with pytest.raises(Refused, match="another broker"):
        documents.moved(document, 2, Member("d:1", "d:2", "other"))


def test_a_member_in_sync_cannot_be_forgotten() -> None:
    with pytest.raises(Refused, match="its disk counts"):
        documents.forgotten(a_set(), 3)
    after = documents.forgotten(documents.resized(a_set(), 1, 1, (1, 2), 2), 3)
    assert sorted(after.members) == [1, 2]
    _, number = documents.joined(after, Member("d:1", "d:2", "new"))
    assert number == 4, "an id is never given twice"


def test_a_wish_is_for_a_member_in_sync_that_does_not_lead() -> None:
    for number in (1, 9):
        with pytest.raises(Refused):
            documents.wished(a_set(), number)
    wished = documents.wished(a_set(), 3)
    after = documents.handed_over(wished, 1, 1)
    assert (after.master, after.epoch, after.wish) == (3, 2, 0)


def test_a_forced_election_says_who_forced_it() -> None:
    after = documents.forced(a_set(), 3, "operator", 17)
    assert (after.master, after.in_sync, after.epoch) == (3, (3,), 2)
    assert after.forced == documents.Forced("operator", 17, 2, 3)


def test_a_set_has_a_bound() -> None:
    document = a_set()
    for number in range(13):
        document, _ = documents.joined(document, Member(f"m{number}:1", "m:2", f"c{number}"))
    with pytest.raises(Refused, match="at most 16"):
        documents.joined(document, Member("m:1", "m:2", "one more"))
