"""Users and access lists."""

from __future__ import annotations

from cometmq.wire.bodies.base import Body


class UserInfo(Body):
    """`user_type` Super or Normal, `user_status` enable or disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type!r}, {self.user_status!r})"


class PolicyEntry(Body):
    """`resource` is `Topic:*`, `Group:g` and the like; `decision` is Allow or Deny."""

    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class AclPolicy(Body):
    """`policy_type` is Custom or Default."""

    entries: list[PolicyEntry] | None = None
    policy_type: str | None = None


class AclInfo(Body):
    """`subject` is `User:name`."""

    policies: list[AclPolicy] | None = None
    subject: str | None = None
