"""When a family of requests refuses, and in whose words."""

from cometmq.net.family import Family


def test_a_full_family_refuses() -> None:
    family = Family("send", 2)
    family.waiting = 1
    assert family.refusal() is None
    family.waiting = 2
    assert family.refusal() == "[OVERLOAD]2 send requests are waiting, the bound is 2"


def test_what_rejects_goes_first_and_may_set_its_own_mark() -> None:
    family = Family("send", 0)
    family.reject_when(lambda: "the disk is slow")
    assert family.refusal() == "[REJECTREQUEST]the disk is slow"
    family.reject_when(lambda: "[TIMEOUT_CLEAN_QUEUE]broker busy")
    assert family.refusal() == "[TIMEOUT_CLEAN_QUEUE]broker busy"
    family.reject_when(lambda: None)
    assert (family.refusal() or "").startswith("[OVERLOAD]")
