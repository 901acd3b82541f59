"""plain_acl.yml of RocketMQ 4 becomes users and policies; nothing becomes more than it was."""

import pytest

from cometmq.auth.acls import info_of
from cometmq.auth.plain_acl import read_files
from cometmq.errors import ConfigError
from tests.support.auth_vectors import vectors

VECTOR = vectors("migrate")[0]
# What 5.5.0 takes: `bad` is left out there, `topicG*` kept as a literal that reads like a prefix. Both are errors here.
REFUSED = ("      - bad\n", "      - topicG*=PUB\n")


def recorded() -> bytes:
    text: str = VECTOR["yaml"]
    for line in REFUSED:
        assert line in text
        text = text.replace(line, "")
    return text.encode()


@pytest.mark.mission("AC-14")
def test_the_recorded_file_becomes_the_recorded_users() -> None:
    found = read_files([("plain_acl.yml", recorded())])
    users = [found.users[name].info(with_password=True) for name in sorted(found.users, key=str.encode)]
    shown = [
        {"username": u.username, "password": u.password, "userType": u.user_type, "userStatus": u.user_status}
        for u in users
    ]
    assert shown == VECTOR["users"]
    assert any("nosecret" in note for note in found.notes)


def test_the_recorded_file_becomes_the_recorded_policies_but_for_words_that_meant_deny() -> None:
    found = read_files([("plain_acl.yml", recorded())])
    for acl in VECTOR["acls"]:
        name = acl["subject"].removeprefix("User:")
        info = info_of(name, found.acls[name])
        assert info.policies is not None
        assert [policy.policy_type for policy in info.policies] == [policy["policyType"] for policy in acl["policies"]]
        for ours, theirs in zip(info.policies, acl["policies"], strict=True):
            rows = [(e.resource, e.actions, e.decision) for e in ours.entries or ()]
            assert rows == [_expected(e) for e in theirs["entries"] if e["resource"] != "Topic:topicG*"]
    assert sum("means DENY" in note for note in found.notes) == 2


def _expected(entry: dict[str, object]) -> tuple[object, object, object]:
    if entry["resource"] in ("Topic:topicE", "Topic:topicF"):  # ANY and pub: Allow All in 5.5.0, DENY in 4.9
        return entry["resource"], ["All"], "Deny"
    return entry["resource"], entry["actions"], entry["decision"]


@pytest.mark.parametrize("line", REFUSED)
def test_what_would_change_its_meaning_is_refused_by_name(line: str) -> None:
    heading = b"    topicPerms:\n"
    with pytest.raises(ConfigError, match=line.strip(" -\n").replace("*", r"\*")):
        read_files([("plain_acl.yml", recorded().replace(heading, heading + line.encode(), 1))])


def test_callers_without_a_key_are_listed_because_they_are_refused_now() -> None:
    notes = "\n".join(read_files([("plain_acl.yml", recorded())]).notes)
    assert "127.0.0.1" in notes
    assert "192.168.1.*" in notes
    assert "rocketmq2: is an administrator" in notes


def test_who_may_publish_anything_may_write_traces() -> None:
    text = b"accounts:\n  - accessKey: producer\n    secretKey: 12345678\n    defaultTopicPerm: PUB\n"
    acl = read_files([("a.yml", text)]).acls["producer"]
    assert [str(entry.resource) for entry in acl.custom] == ["Topic:RMQ_SYS_TRACE_TOPIC"]


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe", b"- a\n", b"accounts: 5\n", b"accounts: [a]\n", b"[" * 100_000,
     b"accounts: !!python/object:os.x {}\n", b"accounts:\n- {accessKey: a, secretKey: b, topicPerms: {x: 1}}\n",
     b"a: &a [*a]\naccounts: *a\n"],
)  # fmt: skip
def test_a_file_of_another_form_is_one_error(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"a\.yml"):
        read_files([("a.yml", text)])


def test_the_first_of_two_accounts_with_one_key_counts() -> None:
    one = b"accounts:\n- {accessKey: a, secretKey: first}\n"
    found = read_files([("acl/x.yml", one), ("plain_acl.yml", one.replace(b"first", b"second"))])
    assert found.users["a"].password == "first"
