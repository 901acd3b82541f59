"""Requests 3001 to 3010 over a socket: what they change, what they show, and to whom."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.access.requests import OVERLAP_MS_MAX
from cometmq.clock import ManualClock
from cometmq.wire.bodies import AclInfo, AclPolicy, PolicyEntry
from cometmq.wire.codes import Request
from tests.support.access import (
    INNER,
    ROOT,
    SECURED,
    SIGNING,
    add_user,
    allow,
    create_user,
    deny,
    grant,
    password_of,
    signed_peer,
)
from tests.support.brokers import Peer, running_broker

SUPER_ONLY = "The super user can only be {} by super user"


def acl(*entries: PolicyEntry, subject: str | None = "User:alice") -> bytes:
    return AclInfo(subject=subject, policies=[AclPolicy(entries=list(entries), policy_type="Custom")]).encode()


@pytest.mark.mission("AC-04")
async def test_a_user_lives(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
        await add_user(root, "alice", allow("Topic:orders", "Pub", "Sub", sources=["10.0.0.0/8"]))
        seen = await root.call(Request.AUTH_GET_USER, username="alice")
        assert seen.body == (
            b'{"password":"password of alice","userStatus":"enable","userType":"Normal","username":"alice"}'
        )
        policies = await root.call(Request.AUTH_GET_ACL, subject="User:alice")
        assert policies.body == (
            b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:orders",'
            b'"sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"}],"subject":"User:alice"}'
        )
        await root.call(Request.AUTH_UPDATE_USER, b'{"userStatus":"disable","userType":" "}', username="alice")
        user = broker.access.users.table["alice"]
        assert (user.is_enabled, user.is_super, user.password) == (False, False, password_of("alice"))
        assert (await root.call(Request.AUTH_DELETE_USER, username="alice")).code == 0
        assert (await root.call(Request.AUTH_GET_USER, username="alice")).body == b""
        assert (await root.call(Request.AUTH_LIST_ACL)).body == b""
        await add_user(root, "alice")
        assert (await root.call(Request.AUTH_GET_ACL, subject="User:alice")).body == b""


async def test_lists_are_in_the_order_of_names_and_can_be_narrowed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
        await add_user(root, "zoe", allow("Topic:a", "Pub"), allow("Topic:b", "Pub"))
        await add_user(root, "Bob", allow("Topic:a", "Sub"))
        users = json.loads((await root.call(Request.AUTH_LIST_USER)).body)
        assert [user["username"] for user in users] == ["Bob", ROOT, "zoe"]
        assert json.loads((await root.call(Request.AUTH_LIST_USER, filter="o")).body)[0]["username"] == "Bob"
        assert (await root.call(Request.AUTH_LIST_USER, filter="nobody")).body == b""
        found = json.loads((await root.call(Request.AUTH_LIST_ACL, resourceFilter="c:b")).body)
        assert [(it["subject"], len(it["policies"][0]["entries"])) for it in found] == [("User:zoe", 1)]
        found = json.loads((await root.call(Request.AUTH_LIST_ACL, subjectFilter="User:B")).body)
        assert [it["subject"] for it in found] == ["User:Bob"]


async def test_policies_are_merged_by_resource_and_deleted_one_by_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
        await add_user(root, "alice", allow("Topic:a", "Pub"), allow("Topic:b*", "Sub"))
        await root.call(Request.AUTH_UPDATE_ACL, acl(deny("Topic:a", "All"), allow("Group:g", "Sub")))
        entries = broker.access.acls.table["alice"].custom
        assert [(str(it.resource), it.effect.value) for it in entries] == [
            ("Topic:a", "Deny"), ("Topic:b*", "Allow"), ("Group:g", "Allow"),
        ]  # fmt: skip
        delete = Request.AUTH_DELETE_ACL
        for resource in ("garbage", "Unknown:x", "Topic"):
            refused = await root.call(delete, subject="User:alice", resource=resource)
            assert refused.code == 29
        assert len(broker.access.acls.table["alice"].custom) == 3
        for resource in ("Topic:a", "Topic:b*", "Group:g"):
            assert (await root.call(delete, subject="User:alice", resource=resource)).code == 0
        assert "alice" not in broker.access.acls.table
        again = await root.call(delete, subject="User:alice")
        assert (again.code, again.remark) == (16, "The acl is not exist.")


# Request, its body and fields; code and words of the answer. Nothing of it changes anything.
ANSWERS: list[tuple[int, bytes, dict[str, Any], int, str]] = [
    (3001, b'{"password":"12345678"}', {}, 29, "The username is blank"),
    (3001, b'{"password":"12345678"}', {"username": ROOT}, 16, "The user is existed"),
    (3001, b'{"password":" "}', {"username": "new"}, 16, "password can not be blank"),
    (3001, b'{"password":"short"}', {"username": "new"}, 29, "the password has 5"),
    (3001, b'{"password":"12345678"}', {"username": "a:b"}, 29, "the user name 'a:b'"),
    (3001, b"", {"username": "new"}, 29, "needs UserInfo"),
    (3001, b"[", {"username": "new"}, 29, "needs UserInfo"),
    (3002, b'{"password":"12345678"}', {"username": "nobody"}, 16, "The user is not exist"),
    (3002, b"", {"username": ROOT}, 29, "needs UserInfo"),
    (3002, b"{}", {"username": ROOT, "overlapMs": OVERLAP_MS_MAX + 1}, 29, "overlapMs"),
    (3002, b"{}", {"username": ROOT, "overlapMs": "1h"}, 29, "overlapMs"),
    (3003, b"", {"username": "nobody"}, 0, ""),
    (3003, b"", {}, 16, "username can not be blank"),
    (3004, b"", {"username": "nobody"}, 0, ""),
    (3006, acl(allow("Topic:t", "Pub"), subject="User:nobody"), {}, 16, "The subject of User:nobody is not exist."),
    (3006, acl(allow("Topic:t", "Pub"), subject="alice"), {}, 29, "the subject is 'alice'"),
    (3006, acl(allow("Topic:t", "Pub")), {"subject": "User:bob"}, 29, "in the header"),
    (3006, b'{"subject":"User:alice"}', {}, 29, "no policies"),
    (3007, b"", {"subject": "User:alice"}, 29, "needs AclInfo"),
    (3007, acl(), {}, 16, "The policies is empty."),
    (3007, acl(allow("garbage", "Pub")), {}, 16, "The resource is null."),
    (3007, acl(allow("Topic:t")), {}, 16, "The actions is empty."),
    (3007, acl(allow("Topic:t", "Any")), {}, 16, "The actions can not be Any."),
    (3007, acl(allow("Topic:t", "Pub", "Fly")), {}, 29, "the action 'Fly'"),
    (3007, acl(allow("Topic:t", "Pub", decision="Perhaps")), {}, 16, "The decision is null or illegal."),
    (3007, acl(allow("Topic:t", "Pub", sources=["host/24"])), {}, 16, "The source ip is invalid."),
    (3008, b"", {"subject": "User:nobody"}, 16, "The subject is not exist."),
    (3008, b"", {"subject": "User:alice"}, 16, "The acl is not exist."),
    (3008, b"", {"subject": "alice"}, 16, "The subject is null."),
    (3009, b"", {"subject": "User:nobody"}, 16, "The subject is not exist."),
    (3009, b"", {"subject": "User:alice"}, 0, ""),
    (3010, b"", {}, 0, ""),
]


@pytest.mark.mission("AC-04")
async def test_answers_are_rocketmqs(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
        await add_user(root, "alice")
        before = dict(broker.access.users.table)
        for code, body, ext, answer, remark in ANSWERS:
            got = await root.call(code, body, **ext)
            assert (got.code, got.body, remark in (got.remark or "")) == (answer, b"", True), (
                code,
                body,
                ext,
                got.remark,
            )
        assert (broker.access.users.table, broker.access.acls.table) == (before, {})


@pytest.mark.mission("AC-04")
async def test_who_administers_the_cluster_makes_no_super_user_and_sees_no_password(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED, **SIGNING) as broker, signed_peer(broker) as root:
        await add_user(root, "operator", allow("Cluster:*", "All"))
        await add_user(root, "alice")
        async with signed_peer(broker, "operator") as operator:
            for body, name, code, verb in (
                (b'{"userType":"Super"}', "alice", 1, "update"),
                (b'{"password":"12345678"}', ROOT, 16, "update"),
            ):
                refused = await operator.call(Request.AUTH_UPDATE_USER, body, username=name)
                assert (refused.code, refused.remark) == (code, SUPER_ONLY.format(verb))
            refused = await operator.call(Request.AUTH_DELETE_USER, username=INNER)
            assert (refused.code, refused.remark) == (16, SUPER_ONLY.format("update"))
            refused = await create_user(operator, "eve", kind="super")
            assert (refused.code, refused.remark) == (1, SUPER_ONLY.format("create"))
            assert (await create_user(operator, "bob")).code == 0
            shown = (await operator.call(Request.AUTH_LIST_USER)).body
            shown += (await operator.call(Request.AUTH_GET_USER, username=ROOT)).body
            assert b"password" not in shown
        async with signed_peer(broker, INNER) as server:
            assert b"password of root" in (await server.call(Request.AUTH_LIST_USER)).body


async def test_a_change_needs_cluster_update_and_a_look_cluster_get(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
        await add_user(root, "reader", allow("Cluster:*", "Get"))
        async with signed_peer(broker, "reader") as reader:
            for code in range(3001, 3011):
                answer = await reader.call(code, b"{}", username=ROOT, subject=f"User:{ROOT}")
                assert (answer.code == 16 and "Cluster:DefaultCluster" in (answer.remark or "")) == (
                    code not in (3004, 3005, 3009, 3010)
                )


async def test_an_old_password_is_valid_for_the_overlap(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, **SECURED) as broker, signed_peer(broker) as root:
        await add_user(root, "alice")
        new = b'{"password":"a new password"}'
        assert (await root.call(Request.AUTH_UPDATE_USER, new, username="alice", overlapMs=60_000)).code == 0
        async with signed_peer(broker, "alice") as late, signed_peer(broker, "alice", "a new password") as early:
            for peer in (late, early):
                assert (await peer.call(99_999)).code == 3
            clock.advance(60.0)
            assert (await late.call(99_999)).code == 16
            assert (await early.call(99_999)).code == 3


@pytest.mark.mission("AC-04")
async def test_changes_are_written_to_the_audit_log_with_who_made_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root, Peer.of(broker) as nobody:
        with caplog.at_level(logging.DEBUG):
            await add_user(root, "alice", allow("Topic:t", "Pub"))
            await root.call(Request.AUTH_UPDATE_USER, b'{"password":"password 2 of alice"}', username="alice")
            await root.call(Request.AUTH_DELETE_ACL, subject="User:alice")
            await root.call(Request.AUTH_DELETE_USER, username="alice")
            await nobody.call(Request.GET_BROKER_CONFIG)
        lines = [record.getMessage() for record in caplog.records if record.name == "cometmq.audit.broker-a"]
        for words in (
            "create user user=alice by=root source=127.0.0.1",
            "change policies user=alice by=root source=127.0.0.1 Allow Topic:t Pub",
            "update user user=alice by=root source=127.0.0.1 type=Normal enabled=True new_password=True",
            "delete policies user=alice by=root",
            "delete user user=alice by=root",
            "refuse request code=26 user= source=127.0.0.1 cause=username cannot be null.",
        ):
            assert any(line.startswith(words) for line in lines), lines
        assert "password of" not in caplog.text
        assert "password 2" not in caplog.text


async def test_without_authentication_users_can_be_prepared_but_nobody_sees_a_password(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as nobody:
        assert (await create_user(nobody, "alice", kind="Super")).code == 0
        assert (await grant(nobody, "alice", allow("*", "All"))).code == 0
        assert b"password" not in (await nobody.call(Request.AUTH_LIST_USER)).body
    async with (
        running_broker(tmp_path, authenticationEnabled=True) as broker,
        signed_peer(broker, "alice") as alice,
    ):
        assert (await alice.call(Request.GET_BROKER_CONFIG)).code == 0
