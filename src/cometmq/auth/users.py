"""Users: names, secrets, and the file that keeps them.

    users.json   {"version":1,"users":[{"name":"alice","password":"...","type":"Normal","status":"enable"}, ...]}
                 `previous` and `previousUntilMs`: the secret before the last change, valid until then

A secret is kept as it is, because HMAC needs it on both sides: the file is readable by its owner only. A user of type
Super passes every policy check, and only a Super user creates, changes or removes one.

`None` as the caller is the operator of this process (settings, the command line on the same files), who may do all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from cometmq.errors import RequestError, WireError
from cometmq.wire.bodies import UserInfo
from cometmq.wire.codes import Response

FILE_VERSION: Final = 1
USERS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 128
PASSWORD_CHARS_MIN: Final = 8
PASSWORD_CHARS_MAX: Final = 256
SUPER: Final = "Super"
NORMAL: Final = "Normal"
ENABLED: Final = "enable"
DISABLED: Final = "disable"

_NAME: Final = re.compile(r"[A-Za-z0-9._@-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str = field(repr=False)
    is_super: bool = False
    is_enabled: bool = True
    previous: str | None = field(default=None, repr=False)
    previous_until_ms: int = 0

    def secrets(self, now_ms: int) -> tuple[str, ...]:
        """What this user may sign with now."""
        if self.previous is not None and now_ms < self.previous_until_ms:
            return (self.password, self.previous)
        return (self.password,)

    def info(self, *, with_password: bool) -> UserInfo:
        return UserInfo(
            username=self.name,
            password=self.password if with_password else None,
            user_type=SUPER if self.is_super else NORMAL,
            user_status=ENABLED if self.is_enabled else DISABLED,
        )


class _Row(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    password: str
    type: str = NORMAL
    status: str = ENABLED
    previous: str | None = None
    previous_until_ms: int = 0


class _File(msgspec.Struct):
    version: int
    users: list[_Row]


class Users:
    """A table with a file; `changes` goes up with every change. `on_change` has one owner, given at construction."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.table: dict[str, User] = {}
        self.changes: int = 0
        self._on_change = on_change

    # Requests 3001 to 3005

    def create(self, name: str, info: UserInfo, caller: User | None) -> User:
        _check_named(name)
        if name in self.table:
            raise RequestError(Response.NO_PERMISSION, "The user is existed")
        if not (info.password or "").strip():
            raise RequestError(Response.NO_PERMISSION, "password can not be blank")
        check_name(name)
        check_password(info.password or "")
        is_super = _is(info.user_type, SUPER)
        if is_super and not _may_be_super(caller):
            raise RequestError(Response.SYSTEM_ERROR, "The super user can only be create by super user")
        user = User(name, info.password or "", is_super, not _is(info.user_status, DISABLED))
        self.put(user)
        return user

    def update(self, name: str, info: UserInfo, caller: User | None, *, overlap_until_ms: int = 0) -> User:
        """Only what `info` has is changed. With `overlap_until_ms` the old password is valid until then, too."""
        _check_named(name)
        user = self.table.get(name)
        if user is None:
            raise RequestError(Response.NO_PERMISSION, "The user is not exist")
        if not _may_be_super(caller):
            if user.is_super:
                raise RequestError(Response.NO_PERMISSION, "The super user can only be update by super user")
            if _is(info.user_type, SUPER):
                raise RequestError(Response.SYSTEM_ERROR, "The super user can only be update by super user")
        changed = user
        if (info.password or "").strip():
            check_password(info.password or "")
            kept = user.password if overlap_until_ms else None
            changed = replace(changed, password=info.password or "", previous=kept, previous_until_ms=overlap_until_ms)
        if _known(info.user_type, (SUPER, NORMAL)):
            changed = replace(changed, is_super=_is(info.user_type, SUPER))
        if _known(info.user_status, (ENABLED, DISABLED)):
            changed = replace(changed, is_enabled=_is(info.user_status, ENABLED))
        self.put(changed)
        return changed

    def delete(self, name: str, caller: User | None) -> bool:
        """Whether there was such a user."""
        if not name.strip():
            raise RequestError(Response.NO_PERMISSION, "username can not be blank")
        user = self.table.get(name)
        if user is None:
            return False
        if user.is_super and not _may_be_super(caller):
            raise RequestError(Response.NO_PERMISSION, "The super user can only be update by super user")
        del self.table[name]
        self._changed()
        return True

    def matching(self, part: str = "") -> list[User]:
        """Those whose name has `part` in it, in the order of names as bytes."""
        return [self.table[name] for name in sorted(self.table, key=str.encode) if part in name]

    def put(self, user: User) -> None:
        if user.name not in self.table and len(self.table) >= USERS_MAX:
            raise RequestError(Response.INVALID_PARAMETER, f"there are {USERS_MAX} users, more are not allowed")
        self.table[user.name] = user
        self._changed()

    def replace_all(self, users: list[User]) -> None:
        """What a replica copied from its master. Overlaps of passwords are not on the wire, so known ones are kept."""
        kept = self.table
        self.table = {user.name: _with_overlap(user, kept.get(user.name)) for user in users[:USERS_MAX]}
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._on_change()

    # The file

    def snapshot(self) -> Callable[[], bytes]:
        users = list(self.table.values())
        return lambda: msgspec.json.format(msgspec.json.encode(_File(FILE_VERSION, [_row(user) for user in users])))

    def restore(self, content: bytes) -> None:
        try:
            file = msgspec.json.decode(content, type=_File)
        except msgspec.DecodeError as error:
            raise WireError(f"not a table of users: {error}") from error
        if file.version != FILE_VERSION:
            raise WireError(f"version {file.version} of the table of users is not known, this is {FILE_VERSION}")
        self.table = {row.name: _user(row) for row in file.users}


def user_of(info: UserInfo) -> User:
    """As another server shows it; without a password, it has an empty one."""
    is_enabled = not _is(info.user_status, DISABLED)
    return User(info.username or "", info.password or "", _is(info.user_type, SUPER), is_enabled)


def check_name(name: str) -> None:
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise RequestError(
            Response.INVALID_PARAMETER,
            f"the user name {name[:NAME_CHARS_MAX]!r} is not valid: 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 . _ @ -",
        )


def check_password(password: str) -> None:
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        raise RequestError(
            Response.INVALID_PARAMETER,
            f"the password has {len(password)} characters: {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} are allowed",
        )


def _check_named(name: str) -> None:
    if not name.strip():
        raise RequestError(Response.INVALID_PARAMETER, "The username is blank")


def _may_be_super(caller: User | None) -> bool:
    return caller is None or caller.is_super


def _is(word: str | None, wanted: str) -> bool:
    return (word or "").strip().lower() == wanted.lower()


def _known(word: str | None, words: tuple[str, ...]) -> bool:
    return any(_is(word, each) for each in words)


def _with_overlap(user: User, known: User | None) -> User:
    if known is None or known.password != user.password:
        return user
    return replace(user, previous=known.previous, previous_until_ms=known.previous_until_ms)


def _row(user: User) -> _Row:
    return _Row(
        user.name,
        user.password,
        SUPER if user.is_super else NORMAL,
        ENABLED if user.is_enabled else DISABLED,
        user.previous,
        user.previous_until_ms,
    )


def _user(row: _Row) -> User:
    is_super, is_enabled = _is(row.type, SUPER), _is(row.status, ENABLED)
    return User(row.name, row.password, is_super, is_enabled, row.previous, row.previous_until_ms)
