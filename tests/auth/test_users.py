"""Users and policies: what requests 3001 to 3010 do, with RocketMQ's answers, and the files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from cometmq.auth.acls import Acls, info_of, read_subject
from cometmq.auth.policies import PolicyType
from cometmq.auth.resources import parse_resource
from cometmq.auth.users import User, Users
from cometmq.errors import RequestError, WireError
from cometmq.wire.bodies import AclPolicy, PolicyEntry, UserInfo

FLY = "the action 'Fly' is not known: All, Pub, Sub, Create, Update, Delete, Get, List"
ROOT = User("root", "root's secret", is_super=True)
CLERK = User("clerk", "clerk's secret")


def refused(act: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        act()
    return caught.value.code, caught.value.remark


def test_a_user_is_created_once() -> None:
    users = Users()
    users.create("alice", UserInfo(password="long enough"), CLERK)
    again = refused(lambda: users.create("alice", UserInfo(password="long enough"), CLERK))
    assert again == (16, "The user is existed")
    assert users.table["alice"] == User("alice", "long enough")


def test_names_and_passwords_are_bounded() -> None:
    users = Users()
    assert refused(lambda: users.create(" ", UserInfo(), None)) == (29, "The username is blank")
    assert refused(lambda: users.create("a", UserInfo(), None)) == (16, "password can not be blank")
    assert refused(lambda: users.create("a/b", UserInfo(password="long enough"), None))[0] == 29
    assert refused(lambda: users.create("a" * 129, UserInfo(password="long enough"), None))[0] == 29
    assert "7 characters" in refused(lambda: users.create("a", UserInfo(password="1234567"), None))[1]
    assert not users.table


def test_only_a_super_user_makes_changes_and_removes_super_users() -> None:
    users = Users()
    info = UserInfo(password="long enough", user_type="super")
    assert refused(lambda: users.create("a", info, CLERK)) == (1, "The super user can only be create by super user")
    users.create("a", info, ROOT)
    assert refused(lambda: users.update("a", UserInfo(user_status="disable"), CLERK))[0] == 16
    assert refused(lambda: users.delete("a", CLERK))[0] == 16
    users.create("b", UserInfo(password="long enough"), CLERK)
    assert refused(lambda: users.update("b", UserInfo(user_type="Super"), CLERK))[0] == 1
    assert users.delete("a", ROOT)
    assert not users.delete("a", ROOT)


def test_an_update_changes_only_what_it_names() -> None:
    users = Users()
    users.create("a", UserInfo(password="long enough"), None)
    users.update("a", UserInfo(user_status="DISABLE"), None)
    assert users.table["a"] == User("a", "long enough", is_enabled=False)
    users.update("a", UserInfo(password="another one", user_type="what"), None)
    assert users.table["a"] == User("a", "another one", is_enabled=False)
    assert refused(lambda: users.update("b", UserInfo(), None)) == (16, "The user is not exist")


def test_the_files_keep_everything() -> None:
    users, acls = Users(), Acls()
    users.create("a", UserInfo(password="pässword", user_type="Super"), None)
    users.update("a", UserInfo(password="next secret"), None, overlap_until_ms=77)
    entry = PolicyEntry(actions=["Sub", "pub"], decision="deny", resource="topic:x*", source_ips=["10.1.2.3/8"])
    acls.merge("a", [AclPolicy(entries=[entry], policy_type="Default")])
    again, policies = Users(), Acls()
    again.restore(users.snapshot()())
    policies.restore(acls.snapshot()())
    assert again.table == users.table
    assert policies.table == acls.table
    assert again.table["a"].secrets(76) == ("next secret", "pässword")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"version":9,"users":[],"acls":[]}', b'{"version":1,"users":3}', b"[]"]
)
def test_a_file_of_another_form_is_refused(content: bytes) -> None:
    for table in (Users(), Acls()):
        with pytest.raises(WireError):
            table.restore(content)


def test_merging_replaces_entries_of_the_same_resource() -> None:
    acls = Acls()
    acls.merge("a", [AclPolicy(entries=[entry("Topic:t", "Pub"), entry("Topic:u", "Pub")])])
    acls.merge("a", [AclPolicy(entries=[entry("Topic:t", "Sub"), entry("Group:g", "Sub")])])
    info = info_of("a", acls.of("a"))
    assert info.policies is not None
    assert [(e.resource, e.actions) for e in info.policies[0].entries or ()] == [
        ("Topic:t", ["Sub"]), ("Topic:u", ["Pub"]), ("Group:g", ["Sub"])
    ]  # fmt: skip


def entry(resource: str, *actions: str, decision: str = "Allow", sources: list[str] | None = None) -> PolicyEntry:
    return PolicyEntry(actions=list(actions), decision=decision, resource=resource, source_ips=sources)


@pytest.mark.parametrize(
    ("bad", "code", "remark"),
    [
        (entry("garbage", "Pub"), 16, "The resource is null."),
        (entry("Topic:t"), 16, "The actions is empty."),
        (entry("Topic:t", "Any"), 16, "The actions can not be Any."),
        (entry("Topic:t", "Pub", "Fly"), 29, FLY),
        (entry("Topic:t", "Pub", decision="Perhaps"), 16, "The decision is null or illegal."),
        (entry("Topic:t", "Pub", sources=["10.1.2.*"]), 16, "The source ip is invalid."),
        (entry("Topic:t", "Pub", sources=["host/24"]), 16, "The source ip is invalid."),
    ],
)  # fmt: skip
def test_a_bad_entry_is_refused_with_rocketmqs_words(bad: PolicyEntry, code: int, remark: str) -> None:
    acls = Acls()
    assert refused(lambda: acls.merge("a", [AclPolicy(entries=[bad])])) == (code, remark)
    assert refused(lambda: acls.merge("a", [AclPolicy(entries=[])])) == (16, "The policies is empty.")
    assert acls.changes == 0


def test_deleting_one_resource_leaves_the_others_and_deleting_all_leaves_nothing() -> None:
    acls = Acls()
    acls.merge("a", [AclPolicy(entries=[entry("Topic:t", "Pub"), entry("Topic:u", "Pub")])])
    acls.delete("a", parse_resource("Topic:t"), PolicyType.CUSTOM)
    assert [str(e.resource) for e in acls.of("a").custom] == ["Topic:u"]
    acls.delete("a", None)
    assert not acls.table
    assert refused(lambda: acls.delete("a", None)) == (16, "The acl is not exist.")


def test_lists_are_filtered_by_parts_of_subject_and_resource() -> None:
    acls = Acls()
    acls.merge("bob", [AclPolicy(entries=[entry("Topic:t", "Pub"), entry("Group:g", "Sub")])])
    acls.merge("alice", [AclPolicy(entries=[entry("Topic:x", "Pub")])])
    assert [info.subject for info in acls.matching()] == ["User:alice", "User:bob"]
    assert [info.subject for info in acls.matching("bo")] == ["User:bob"]
    assert [info.subject for info in acls.matching("", "Group")] == ["User:bob"]


def test_a_subject_is_a_user() -> None:
    assert read_subject("User:a") == "a"
    for text in (None, "", "a", "User:", "Role:a"):
        assert refused(partial(read_subject, text))[0] == 29


def test_a_replica_keeps_the_overlap_of_passwords_it_knows() -> None:
    users = Users()
    users.create("a", UserInfo(password="old secret"), None)
    users.update("a", UserInfo(password="new secret"), None, overlap_until_ms=99)
    users.replace_all([User("a", "new secret"), User("b", "other secret")])
    assert users.table["a"].secrets(98) == ("new secret", "old secret")
    users.replace_all([User("a", "third secret")])
    assert users.table["a"].secrets(98) == ("third secret",)
    assert list(users.table) == ["a"]
