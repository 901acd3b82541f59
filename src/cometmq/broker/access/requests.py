"""Requests 3001 to 3010: users and policies, created, changed, deleted and listed.

    3001  create user    username + UserInfo           3006  create acl    subject + AclInfo
    3002  update user    username + UserInfo           3007  update acl    the same: both merge
    3003  delete user    username                      3008  delete acl    subject, policyType, resource
    3004  user           username                      3009  acl           subject
    3005  users          filter: part of the name      3010  acls          subjectFilter, resourceFilter: parts

A change is answered when it is on disk, and written to the audit log with who made it. Who is not a Super user sees no
password and makes no Super user. `overlapMs` of 3002 is CometMQ's own: how long the old password is valid beside the
new one, so that clients can be given the new one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from cometmq.auth.acls import info_of, read_policy_type, read_subject
from cometmq.auth.resources import Resource, parse_resource
from cometmq.auth.users import User
from cometmq.broker.access.control import AccessControl
from cometmq.broker.entry import Entry
from cometmq.errors import RequestError, WireError
from cometmq.net.connection import Connection
from cometmq.wire.bodies import AclInfo, Body, UserInfo
from cometmq.wire.bodies.base import encode_list
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import AuthAcl, AuthDeleteAcl, AuthListAcls, AuthListUsers, AuthUser

OVERLAP: Final = "overlapMs"
OVERLAP_MS_MAX: Final = 30 * 24 * 3_600_000

B = TypeVar("B", bound=Body)


# Users


async def create_user(access: AccessControl, connection: Connection, request: Command) -> Command:
    name = AuthUser.decode(request.ext).username or ""
    user = access.users.create(name, _body(UserInfo, request), access.caller(request))
    access.note(connection, request, "create user", name, f"type={_type(user)}")
    return await _saved(access, request)


async def update_user(access: AccessControl, connection: Connection, request: Command) -> Command:
    name = AuthUser.decode(request.ext).username or ""
    overlap_ms = _overlap_ms(request)
    until_ms = access.now_ms() + overlap_ms if overlap_ms else 0
    info = _body(UserInfo, request)
    user = access.users.update(name, info, access.caller(request), overlap_until_ms=until_ms)
    what = f"type={_type(user)} enabled={user.is_enabled} new_password={bool(info.password)} overlap_ms={overlap_ms}"
    access.note(connection, request, "update user", name, what)
    return await _saved(access, request)


async def delete_user(access: AccessControl, connection: Connection, request: Command) -> Command:
    name = AuthUser.decode(request.ext).username or ""
    if access.users.delete(name, access.caller(request)):
        access.acls.forget(name)
        access.note(connection, request, "delete user", name)
    return await _saved(access, request)


def get_user(access: AccessControl, connection: Connection, request: Command) -> Command:
    user = access.users.table.get(AuthUser.decode(request.ext).username or "")
    if user is None:
        return reply(request)
    return reply(request, body=user.info(with_password=_sees_passwords(access, request)).encode())


def list_users(access: AccessControl, connection: Connection, request: Command) -> Command:
    found = access.users.matching(AuthListUsers.decode(request.ext).filter or "")
    with_password = _sees_passwords(access, request)
    return _listed(request, [user.info(with_password=with_password) for user in found])


# Policies


async def merge_acl(access: AccessControl, connection: Connection, request: Command) -> Command:
    info = _body(AclInfo, request)
    named = AuthAcl.decode(request.ext).subject
    if info.subject and named and info.subject != named:
        raise RequestError(
            Response.INVALID_PARAMETER, f"the subject is {named!r} in the header and {info.subject!r} in the body"
        )
    name = read_subject(info.subject or named)
    if name not in access.users.table:
        raise RequestError(Response.NO_PERMISSION, f"The subject of User:{name} is not exist.")
    if not info.policies:
        raise RequestError(Response.INVALID_PARAMETER, "there are no policies in the body")
    access.acls.merge(name, info.policies)
    entries = [entry for policy in info.policies for entry in policy.entries or ()]
    what = " ".join(f"{entry.decision} {entry.resource} {'|'.join(entry.actions or ())}" for entry in entries)
    access.note(connection, request, "change policies", name, what)
    return await _saved(access, request)


async def delete_acl(access: AccessControl, connection: Connection, request: Command) -> Command:
    header = AuthDeleteAcl.decode(request.ext)
    name = _known_subject(access, header.subject)
    resource = _resource(header.resource)
    access.acls.delete(name, resource, read_policy_type(header.policy_type))
    access.note(connection, request, "delete policies", name, f"resource={'all' if resource is None else resource}")
    return await _saved(access, request)


def get_acl(access: AccessControl, connection: Connection, request: Command) -> Command:
    name = _known_subject(access, AuthAcl.decode(request.ext).subject)
    acl = access.acls.table.get(name)
    return reply(request) if acl is None else reply(request, body=info_of(name, acl).encode())


def list_acls(access: AccessControl, connection: Connection, request: Command) -> Command:
    header = AuthListAcls.decode(request.ext)
    return _listed(request, access.acls.matching(header.subject_filter or "", header.resource_filter or ""))


# Helpers


def _body(kind: type[B], request: Command) -> B:
    """What is wrong with a bad one is not said: it may have a password in it."""
    try:
        return kind.decode_request(request.body)
    except WireError:
        raise RequestError(
            Response.INVALID_PARAMETER, f"request {request.code} needs {kind.__name__} in JSON as its body"
        ) from None


def _overlap_ms(request: Command) -> int:
    text = request.ext.get(OVERLAP) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= OVERLAP_MS_MAX):
        raise RequestError(Response.INVALID_PARAMETER, f"{OVERLAP}={text[:40]!r} is not from 0 to {OVERLAP_MS_MAX}")
    return int(text)


def _known_subject(access: AccessControl, text: str | None) -> str:
    try:
        name = read_subject(text)
    except RequestError:
        raise RequestError(Response.NO_PERMISSION, "The subject is null.") from None
    if name not in access.users.table:
        raise RequestError(Response.NO_PERMISSION, "The subject is not exist.")
    return name


def _resource(text: str | None) -> Resource | None:
    """None for none at all. A text that cannot be read must not count as that: it would delete everything."""
    if not text:
        return None
    resource = parse_resource(text)
    if resource is None:
        raise RequestError(
            Response.INVALID_PARAMETER,
            f"the resource is {text[:80]!r}: it is * or Topic:, Group:, Cluster:, Namespace: and a name; nothing was "
            "deleted",
        )
    return resource


def _sees_passwords(access: AccessControl, request: Command) -> bool:
    """Servers that copy users sign as a Super user. Where nobody signs nobody sees them."""
    caller = access.caller(request)
    return caller is not None and caller.is_super


def _type(user: User) -> str:
    return user.info(with_password=False).user_type or ""


def _listed(request: Command, found: Sequence[Body]) -> Command:
    return reply(request, body=encode_list(found)) if found else reply(request)


async def _saved(access: AccessControl, request: Command) -> Command:
    await access.saved()
    return reply(request)


HANDLERS: Final = {
    Request.AUTH_CREATE_USER: Entry(create_user, "admin"),
    Request.AUTH_UPDATE_USER: Entry(update_user, "admin"),
    Request.AUTH_DELETE_USER: Entry(delete_user, "admin"),
    Request.AUTH_GET_USER: Entry(get_user, "admin"),
    Request.AUTH_LIST_USER: Entry(list_users, "admin"),
    Request.AUTH_CREATE_ACL: Entry(merge_acl, "admin"),
    Request.AUTH_UPDATE_ACL: Entry(merge_acl, "admin"),
    Request.AUTH_DELETE_ACL: Entry(delete_acl, "admin"),
    Request.AUTH_GET_ACL: Entry(get_acl, "admin"),
    Request.AUTH_LIST_ACL: Entry(list_acls, "admin"),
}
