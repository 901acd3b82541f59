"""The check of every request: who sent it, and may they."""

from __future__ import annotations

import pytest

from cometmq.auth import access, signature
from cometmq.auth.access import Access, AccessRules, Refusal
from cometmq.auth.acls import Acls
from cometmq.auth.needs import half_decided
from cometmq.auth.users import Users
from cometmq.clock import ManualClock
from cometmq.wire.bodies import AclPolicy, PolicyEntry, UserInfo
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, request

HERE = "10.0.0.1"
PASSWORD = "alice's secret"


def signed(code: int, ext: dict[str, str], user: str = "alice", secret: str = PASSWORD, body: bytes = b"") -> Command:
    command = request(code, {**ext, "AccessKey": user}, body)
    values = signature.signed_values(command.ext, command.version)
    command.ext["Signature"] = signature.key_of(secret).sign(values, body)
    return command


def make(
    *entries: PolicyEntry, authorization: bool = True, unauthenticated: frozenset[int] = frozenset()
) -> tuple[Access, ManualClock]:
    clock = ManualClock()
    users, acls = Users(), Acls()
    users.create("alice", UserInfo(password=PASSWORD), None)
    users.create("root", UserInfo(password="root's secret", user_type="Super"), None)
    if entries:
        acls.merge("alice", [AclPolicy(entries=list(entries))])
    rules = AccessRules("DefaultCluster", True, authorization, unauthenticated)
    return Access(rules, users, acls, clock), clock


def allow(resource: str, *actions: str, sources: list[str] | None = None) -> PolicyEntry:
    return PolicyEntry(actions=list(actions), decision="Allow", resource=resource, source_ips=sources)


def refusal(checked: Access, command: Command, source: str = HERE) -> str:
    with pytest.raises(Refusal) as caught:
        checked.check(command, source)
    assert caught.value.code == 16
    return caught.value.remark


def test_a_user_may_what_the_policy_says_and_nothing_else() -> None:
    checked, _ = make(allow("Topic:orders", "Pub"))
    checked.check(signed(Request.SEND_MESSAGE_V2, {"b": "orders"}), HERE)
    assert refusal(checked, signed(Request.SEND_MESSAGE_V2, {"b": "bills"})) == (
        "User:alice has no permission to access Topic:bills from 10.0.0.1, no matched policies."
    )
    assert "no matched policies" in refusal(checked, signed(Request.QUERY_MESSAGE, {"topic": "orders"}))


def test_a_send_needs_the_topic_that_is_stored_not_another_field() -> None:
    checked, _ = make(allow("Topic:orders", "Pub"))
    assert "Topic:bills" in refusal(checked, signed(Request.SEND_MESSAGE_V2, {"b": "bills", "topic": "orders"}))


def test_a_super_user_needs_no_policy() -> None:
    checked, _ = make()
    checked.check(signed(Request.UPDATE_BROKER_CONFIG, {}, "root", "root's secret"), HERE)


def test_without_authorisation_every_user_may_everything() -> None:
    checked, _ = make(authorization=False)
    checked.check(signed(Request.UPDATE_BROKER_CONFIG, {}), HERE)


@pytest.mark.parametrize("ext", [{}, {"AccessKey": ""}])
def test_a_request_without_a_name_is_refused(ext: dict[str, str]) -> None:
    checked, _ = make()
    assert refusal(checked, request(Request.SEND_MESSAGE_V2, dict(ext))) == "username cannot be null."


def test_an_unknown_user_reads_the_words_of_a_wrong_signature() -> None:
    checked, _ = make()
    unknown = refusal(checked, signed(Request.QUERY_MESSAGE, {}, "bob"))
    wrong = refusal(checked, signed(Request.QUERY_MESSAGE, {}, "alice", "wrong"))
    assert unknown == wrong == "check signature failed."


def test_a_field_that_was_added_after_signing_is_noticed() -> None:
    checked, _ = make(allow("*", "All"))
    command = signed(Request.SEND_MESSAGE_V2, {"b": "orders"})
    command.ext["z"] = "1"
    assert refusal(checked, command) == "check signature failed."


def test_a_disabled_user_learns_it_only_with_a_right_signature() -> None:
    checked, _ = make()
    checked.users.update("alice", UserInfo(user_status="disable"), None)
    assert refusal(checked, signed(Request.QUERY_MESSAGE, {})) == "User:alice is disabled."
    assert refusal(checked, signed(Request.QUERY_MESSAGE, {}, "alice", "wrong")) == "check signature failed."


def test_a_revocation_and_a_grant_count_at_the_next_request() -> None:
    checked, _ = make(allow("Topic:orders", "Pub"))
    send = signed(Request.SEND_MESSAGE_V2, {"b": "orders"})
    checked.check(send, HERE)
    checked.acls.delete("alice", None)
    refusal(checked, send)
    checked.acls.merge("alice", [AclPolicy(entries=[allow("Topic:*", "Pub")])])
    checked.check(send, HERE)


def test_the_source_counts() -> None:
    checked, _ = make(allow("Topic:orders", "Pub", sources=["10.0.0.0/8"]))
    send = signed(Request.SEND_MESSAGE_V2, {"b": "orders"})
    checked.check(send, HERE)
    assert "from 192.0.2.1" in refusal(checked, send, "192.0.2.1")


def test_codes_on_the_white_list_need_no_signature() -> None:
    checked, _ = make(unauthenticated=frozenset((Request.HEART_BEAT,)))
    checked.check(request(Request.HEART_BEAT), HERE)
    assert checked.caller(request(Request.HEART_BEAT, {"AccessKey": "root"})) is None


def test_an_unreadable_body_is_refused_not_passed() -> None:
    checked, _ = make(allow("*", "All"))
    assert refusal(checked, signed(Request.HEART_BEAT, {}, body=b"{")) == "parse authorization context error."


def test_what_a_handler_finds_out_is_asked_for_too() -> None:
    checked, _ = make(allow("Topic:orders", "Pub"))
    command = signed(Request.END_TRANSACTION, {})
    checked.check(command, HERE)
    checked.require(command, HERE, half_decided("orders"))
    with pytest.raises(Refusal, match="Topic:bills"):
        checked.require(command, HERE, half_decided("bills"))


def test_both_passwords_work_until_the_overlap_ends() -> None:
    checked, clock = make(allow("*", "All"))
    until_ms = clock.now_ms() + 60_000
    checked.users.update("alice", UserInfo(password="alice's next secret"), None, overlap_until_ms=until_ms)
    old, new = signed(Request.QUERY_MESSAGE, {}), signed(Request.QUERY_MESSAGE, {}, secret="alice's next secret")
    checked.check(old, HERE)
    checked.check(new, HERE)
    clock.advance(61)
    assert refusal(checked, old) == "check signature failed."
    checked.check(new, HERE)


def test_many_wrong_signatures_are_answered_late_and_right_ones_never() -> None:
    checked, clock = make(allow("*", "All"))

    def delay() -> float:
        with pytest.raises(Refusal) as caught:
            checked.check(signed(Request.QUERY_MESSAGE, {}, secret="wrong"), HERE)
        return caught.value.delay_s

    assert [delay() for _ in range(access.WRONG_MAX)] == [0.0] * access.WRONG_MAX
    assert delay() == access.WRONG_DELAY_S
    checked.check(signed(Request.QUERY_MESSAGE, {}), HERE)
    clock.advance(access.WRONG_WINDOW_S + 1)
    assert delay() == 0.0


def test_what_is_remembered_of_peers_is_bounded() -> None:
    checked, _ = make()
    for number in range(access.PAIRS_MAX + 10):
        with pytest.raises(Refusal):
            checked.check(request(Request.QUERY_MESSAGE, {"AccessKey": f"user{number}", "Signature": "x"}), HERE)
    assert len(checked._wrong) <= access.PAIRS_MAX


def test_no_refusal_and_no_value_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    checked, _ = make()
    command = signed(Request.QUERY_MESSAGE, {"topic": "t"})
    refusal(checked, command)
    shown = caplog.text + repr(checked.users.table["alice"])
    assert "refuse request" in caplog.text
    assert PASSWORD not in shown
    assert command.ext["Signature"] not in shown
