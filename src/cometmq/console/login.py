"""Who somebody is: tokens, passwords, sessions.

    users file    {"users": {"ada": {"role": "admin", "password": "scrypt$14$8$1$SALT$HASH"}}}, for its owner only
    session       a random cookie; the server keeps its hash, who it is, and when it ends
    attempts      ten failures a minute from one address, then 429 until the minute is over

Passwords are compared in a thread: scrypt takes 50 ms of processor time, on purpose.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cometmq import state_file
from cometmq.console.answers import Problem
from cometmq.console.options import ROLES, Options, Role
from cometmq.errors import ConfigError

SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 10
ATTEMPTS_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
COST, BLOCK, PARALLEL = 14, 8, 1
PASSWORD_CHARS: Final = (8, 200)
NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
COOKIE: Final = "cometmq_console"


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    role: Role


ANYBODY: Final = Person("local", Role.ADMIN)


class Logins:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.token = options.token or secrets.token_urlsafe(24)
        self._sessions: dict[bytes, tuple[Person, float]] = {}
        self._failures: dict[str, list[float]] = {}
        self._users = Users(Path(options.auth_value)) if options.auth_kind == "users" else None

    def by_cookie(self, cookie: str | None) -> Person | None:
        if not cookie or len(cookie) > 100:
            return None
        found = self._sessions.get(_key(cookie))
        if found is None or found[1] < time.monotonic():
            return None
        person = found[0]
        if self._users is not None:  # a user who was removed or changed is so at once
            role = self._users.role(person.name)
            return Person(person.name, role) if role is not None else None
        return person

    def by_bearer(self, header: str | None) -> Person | None:
        """For scripts: `Authorization: Bearer TOKEN`."""
        kind, _, token = (header or "").partition(" ")
        if self.options.auth_kind != "token" or kind.lower() != "bearer" or not self._is_token(token.strip()):
            return None
        return Person("token", Role.ADMIN)

    async def enter(self, address: str, name: str, password: str, token: str) -> tuple[Person, str]:
        """A session, or 401; 429 after too many failures."""
        self._slow_down(address)
        person: Person | None = None
        if self.options.auth_kind == "token" and self._is_token(token):
            person = Person("token", Role.ADMIN)
        elif self._users is not None and name and password:
            role = await asyncio.to_thread(self._users.check, name, password)
            person = Person(name, role) if role is not None else None
        if person is None:
            self._failures.setdefault(address, []).append(time.monotonic())
            raise Problem(
                401, "that is not right: check name and password, or take the link that was printed at the start"
            )
        cookie = secrets.token_urlsafe(32)
        self._sessions[_key(cookie)] = (person, time.monotonic() + SESSION_S)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.pop(next(iter(self._sessions)))
        return person, cookie

    def leave(self, cookie: str | None) -> None:
        if cookie:
            self._sessions.pop(_key(cookie), None)

    def _is_token(self, token: str) -> bool:
        return bool(token) and hmac.compare_digest(token.encode(), self.token.encode())

    def _slow_down(self, address: str) -> None:
        now_s = time.monotonic()
        recent = [at for at in self._failures.get(address, ()) if now_s - at < ATTEMPTS_S]
        if recent:
            self._failures[address] = recent
        else:
            self._failures.pop(address, None)
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.pop(next(iter(self._failures)))
        if len(recent) >= ATTEMPTS_MAX:
            raise Problem(429, f"{len(recent)} failed log-ins from {address} within a minute: wait a minute")


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()


class Users:
    """The users file; read again when it changed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._stamp: tuple[int, int] = (0, 0)
        self._users: dict[str, dict[str, Any]] = {}
        if file.exists():
            self._read()

    def role(self, name: str) -> Role | None:
        self._read()
        entry = self._users.get(name)
        return ROLES.get(entry.get("role", "")) if entry is not None else None

    def check(self, name: str, password: str) -> Role | None:
        """Takes as long for a name that nobody has."""
        self._read()
        entry = self._users.get(name)
        kept = entry["password"] if entry is not None else _UNKNOWN
        is_right = matches(password, kept)
        return self.role(name) if is_right and entry is not None else None

    def names(self) -> dict[str, str]:
        return {name: str(entry.get("role")) for name, entry in sorted(self._users.items())}

    def put(self, name: str, role: str, password: str) -> None:
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"the name {name!r} has other characters than letters, digits and . _ @ -, or is too long"
            )
        if role not in ROLES:
            raise ConfigError(f"the role is {role!r}: use {', '.join(ROLES)}")
        low, high = PASSWORD_CHARS
        if not low <= len(password) <= high:
            raise ConfigError(f"the password has {len(password)} characters: {low} to {high} are taken")
        self._users[name] = {"role": role, "password": hashed(password)}
        self._save()

    def remove(self, name: str) -> None:
        if self._users.pop(name, None) is None:
            raise ConfigError(f"{self.file} has no user {name!r}; it has {', '.join(self._users) or 'none'}")
        self._save()

    def _save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        state_file.save(self.file, json.dumps({"users": self._users}, indent=2).encode(), state_file.PRIVATE_FILES)

    def _read(self) -> None:
        try:
            status = self.file.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            content = json.loads(self.file.read_bytes())
            users = {str(name): dict(entry) for name, entry in content["users"].items()}
            for entry in users.values():
                if entry["role"] not in ROLES or not str(entry["password"]).startswith("scrypt$"):
                    raise ValueError("an entry lacks a role or a password")
        except FileNotFoundError:
            self._users, self._stamp = {}, (0, 0)
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"{self.file} is no users file ({error}): mend it, or make it anew") from None
        self._users, self._stamp = users, stamp


def hashed(password: str) -> str:
    salt = secrets.token_bytes(16)
    code = _scrypt(password, salt, COST, BLOCK, PARALLEL)
    return f"scrypt${COST}${BLOCK}${PARALLEL}${_text(salt)}${_text(code)}"


def matches(password: str, kept: str) -> bool:
    try:
        _, cost, block, parallel, salt, code = kept.split("$")
        numbers = int(cost), int(block), int(parallel)
        if not (10 <= numbers[0] <= 18 and 1 <= numbers[1] <= 16 and 1 <= numbers[2] <= 4):
            return False
        made = _scrypt(password[:200], base64.b64decode(salt), *numbers)
        return hmac.compare_digest(made, base64.b64decode(code))
    except ValueError:
        return False


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=1 << cost, r=block, p=parallel, maxmem=512 << 20, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


# For names that nobody has; the salt and hash of nothing.
_UNKNOWN: Final = f"scrypt${COST}${BLOCK}${PARALLEL}${_text(bytes(16))}${_text(bytes(32))}"
