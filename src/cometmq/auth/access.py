"""The check that every request passes: who sent it, and may they.

    authentication   AccessKey names an enabled user, Signature fits one of the user's secrets
    authorisation    every need of the request (needs.py) is allowed by the user's policies; Super users need none

Both can be left out for single request codes (whitelists), and authorisation as a whole. What was allowed is kept by
user, source, code and the fields that the needs depend on, until any user or policy changes. A refusal is code 16 with
RocketMQ's words; an unknown user gets those of a wrong signature, after the same work, so that nobody finds out names
by trying.

After many wrong signatures for a user from one source, more of them are answered late (`Refusal.delay_s`). Right ones
are never delayed: a lock-out would be a way to keep the user out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cometmq.auth import signature
from cometmq.auth.acls import Acls
from cometmq.auth.audit import Audit
from cometmq.auth.needs import NEEDS, UnreadableNeeds
from cometmq.auth.policies import decide
from cometmq.auth.resources import Need
from cometmq.auth.users import User, Users
from cometmq.clock import Clock
from cometmq.errors import RequestError
from cometmq.wire.codes import Response
from cometmq.wire.command import Command

# What is kept of requests that were allowed: peers choose the names.
ALLOWED_MAX: Final = 50_000
ALLOWED_CHARS_MAX: Final = 400
# Wrong signatures for one user from one source within a minute, before answers to more of them are delayed.
WRONG_MAX: Final = 10
WRONG_WINDOW_S: Final = 60.0
WRONG_DELAY_S: Final = 2.0
PAIRS_MAX: Final = 10_000

NO_NAME: Final = "username cannot be null."
WRONG_SIGNATURE: Final = "check signature failed."
UNREADABLE: Final = "parse authorization context error."
# The work for a user that does not exist is that for one that does.
_NOBODY: Final = User("", "no such user", is_enabled=True)


class Refusal(RequestError):
    """Code 16."""

    def __init__(self, remark: str, delay_s: float = 0.0) -> None:
        super().__init__(Response.NO_PERMISSION, remark, delay_s)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """What the settings say. `cluster` is the broker's own."""

    cluster: str
    authentication: bool = False
    authorization: bool = False
    unauthenticated_codes: frozenset[int] = frozenset()
    unauthorized_codes: frozenset[int] = frozenset()


class Access:
    def __init__(self, rules: AccessRules, users: Users, acls: Acls, clock: Clock, audit: Audit | None = None) -> None:
        self.rules = rules
        self.users = users
        self.acls = acls
        self._clock = clock
        self._allowed: set[tuple[str | None, ...]] = set()
        self._allowed_of: tuple[int, int] = (0, 0)
        self._wrong: dict[tuple[str, str], tuple[float, int]] = {}
        # Since the start, by users who exist and by others.
        self.wrong_signatures = 0
        self._audit = audit or Audit(clock, "server")

    def check(self, request: Command, source: str) -> None:
        """Raises Refusal. `source` is the caller's address, without port."""
        rules = self.rules
        if not rules.authentication or request.code in rules.unauthenticated_codes:
            return
        try:
            user = self.authenticate(request, source)
            if rules.authorization and not user.is_super and request.code not in rules.unauthorized_codes:
                self._authorize(user, request, source)
        except Refusal as refusal:
            name = request.ext.get(signature.ACCESS_KEY, "")
            self._audit.refused(request.code, name, source, refusal.remark)
            raise

    def caller(self, request: Command) -> User | None:
        """Who sent a request that was let through; None if nobody asks."""
        if not self.rules.authentication or request.code in self.rules.unauthenticated_codes:
            return None
        return self.users.table.get(request.ext.get(signature.ACCESS_KEY, ""))

    def require(self, request: Command, source: str, needs: Iterable[Need]) -> None:
        """What a handler found out to be needed only while it served a request that was let through."""
        rules = self.rules
        if not rules.authorization or request.code in rules.unauthorized_codes:
            return
        user = self.caller(request)
        if user is not None and not user.is_super:
            self._require(user, needs, source)

    def authenticate(self, request: Command, source: str) -> User:
        name = request.ext.get(signature.ACCESS_KEY)
        if not name:
            raise Refusal(NO_NAME)
        user = self.users.table.get(name)
        sent = request.ext.get(signature.SIGNATURE, "")
        values = signature.signed_values(request.ext, request.version)
        fits = False
        for secret in (user or _NOBODY).secrets(self._clock.now_ms()):
            fits = signature.key_of(secret).fits(sent, values, request.body) or fits
        if user is None or not fits:
            raise Refusal(WRONG_SIGNATURE, self._delay_of_wrong(name, source))
        if not user.is_enabled:
            raise Refusal(f"User:{name} is disabled.")
        return user

    def check_signed_date(self, request: Command, source: str, authorization: str, date: str) -> None:
        """The same for a request that came by gRPC, whose sender has signed a date and nothing else. Writes its name
        into the request, for handlers that find out later what is needed. Raises Refusal."""
        rules = self.rules
        if not rules.authentication or request.code in rules.unauthenticated_codes:
            return
        name = ""
        try:
            read = signature.read_authorization(authorization) if authorization else None
            if read is None:
                raise Refusal(NO_NAME)
            name = read.username
            user = self._authenticate_date(read, source, date)
            request.ext[signature.ACCESS_KEY] = name
            if rules.authorization and not user.is_super and request.code not in rules.unauthorized_codes:
                self._authorize(user, request, source)
        except Refusal as refusal:
            self._audit.refused(request.code, name, source, refusal.remark)
            raise

    def _authenticate_date(self, read: signature.Authorization, source: str, date: str) -> User:
        user = self.users.table.get(read.username)
        fits = False
        for secret in (user or _NOBODY).secrets(self._clock.now_ms()):
            fits = signature.key_of(secret).fits(read.signature, date.encode()) or fits
        if user is None or not fits or not date:
            raise Refusal(WRONG_SIGNATURE, self._delay_of_wrong(read.username, source))
        if not user.is_enabled:
            raise Refusal(f"User:{read.username} is disabled.")
        return user

    def _authorize(self, user: User, request: Command, source: str) -> None:
        rule = NEEDS.get(request.code)
        if rule is None:
            return  # nothing serves this code: it is answered with that
        fields = rule.fields
        key: tuple[str | None, ...] = ()
        if fields is not None:
            ext = request.ext
            # A field that is missing and one that is empty need different things.
            key = (user.name, source, str(request.code), *[ext.get(field) for field in fields])
            version = (self.users.changes, self.acls.changes)
            if version != self._allowed_of or len(self._allowed) >= ALLOWED_MAX:
                self._allowed.clear()
                self._allowed_of = version
            if key in self._allowed:
                return
        try:
            needs = rule(request, self.rules.cluster)
        except UnreadableNeeds:
            raise Refusal(UNREADABLE) from None
        self._require(user, needs, source)
        if fields is not None and sum([len(part) for part in key if part is not None]) <= ALLOWED_CHARS_MAX:
            self._allowed.add(key)

    def _require(self, user: User, needs: Iterable[Need], source: str) -> None:
        acl = self.acls.of(user.name)
        for need in needs:
            decision = decide(acl, need, source)
            if not decision.allowed:
                raise Refusal(
                    f"User:{user.name} has no permission to access {need.resource} from {source}, {decision.cause}"
                )

    def _delay_of_wrong(self, name: str, source: str) -> float:
        """Count a wrong signature; how long its answer waits."""
        self.wrong_signatures += 1
        now_s = self._clock.monotonic()
        if len(self._wrong) >= PAIRS_MAX:
            recent = {pair: seen for pair, seen in self._wrong.items() if now_s - seen[0] < WRONG_WINDOW_S}
            self._wrong = recent if len(recent) < PAIRS_MAX else {}
        pair = (name[:128], source)
        since_s, count = self._wrong.get(pair, (now_s, 0))
        if now_s - since_s >= WRONG_WINDOW_S:
            since_s, count = now_s, 0
        self._wrong[pair] = (since_s, count + 1)
        return WRONG_DELAY_S if count >= WRONG_MAX else 0.0
