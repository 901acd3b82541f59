"""Users and what they may do: requests 3001 to 3010, for CometMQ's brokers and RocketMQ's.

Every broker has its own users and policies; RocketMQ's do not even tell their slaves. So a change goes to every member
of the cluster, masters first, and what is read is compared: `differs` names the members that have something else.

    grant     adds actions to the entry of the same resource if its decision and sources are the same, or replaces it
    revoke    takes actions away from it; the whole entry without actions; everything without a resource

A slave that cannot be reached is left out, with a warning in the log: CometMQ's follows its master by itself.
Names of topics and groups in resources are as brokers know them, with their namespace.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from cometmq.auth.resources import Action, parse_action, parse_resource
from cometmq.auth.sources import parse_block
from cometmq.auth.users import DISABLED, ENABLED, NORMAL, PASSWORD_CHARS_MIN, SUPER
from cometmq.client.admin.calls import Calls, Fields, each
from cometmq.client.admin.results import Access, AccessChange, AccessEntry, BrokerMember, User
from cometmq.errors import AccessDenied, BrokerError, CallError, ConfigError, NotFound
from cometmq.wire import java_properties
from cometmq.wire.bodies import AclInfo, AclPolicy, PolicyEntry, UserInfo, decode_list
from cometmq.wire.codes import MASTER_ID, Request, Response
from cometmq.wire.command import Command
from cometmq.wire.headers import AuthAcl, AuthDeleteAcl, AuthListAcls, AuthListUsers, AuthUser

logger = logging.getLogger(__name__)

ALLOW: Final = "Allow"
DENY: Final = "Deny"
CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"
SUBJECT: Final = "User:"
OVERLAP_S_MAX: Final = 30 * 86_400
EXISTS: Final = "existed"
# A setting that CometMQ's brokers show and RocketMQ's do not have.
OURS: Final = "tls.client.checkName"
# What RocketMQ's broker says if no setting tells it where to keep users.
NO_STORE: Final = "MetadataProvider is not configured"
ANY_FAULT: Final = "An system error occurred, please try again later."
KEEPS_NONE: Final = (
    "RocketMQ's brokers keep users only with authenticationMetadataProvider and authorizationMetadataProvider set"
)

T = TypeVar("T")


class UserAdmin(Calls):
    async def create_user(
        self,
        name: str,
        password: str,
        *,
        is_super: bool = False,
        is_enabled: bool = True,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> User:
        """ConfigError if a master knows the name already. A Super user may do everything, and so may its maker only."""
        _check_password(password)
        masters, slaves = await self._everybody(cluster, broker)
        known = [_label(member) for member, info in await self._infos(masters, name) if info is not None]
        if known:
            raise ConfigError(
                f"user {name} exists on {', '.join(known)}: change the password (cometmq user passwd {name}), or name "
                "the broker that lacks it (broker)"
            )
        info = UserInfo(name, password, SUPER if is_super else NORMAL, ENABLED if is_enabled else DISABLED)
        await each(masters, lambda member: self._put_user(member, Request.AUTH_CREATE_USER, name, info))
        await self._each_slave(slaves, lambda member: self._bring_user(member, name, info))
        return await self.describe_user(name)

    async def alter_user(
        self,
        name: str,
        *,
        password: str | None = None,
        overlap_s: float = 0.0,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> User:
        """Change what is given, on every broker that knows the user. NotFound.

        A client that changes the password of its own user goes on with the new one. For `overlap_s` the old password
        stays valid beside it, so that programs can be changed one after the other. Brokers of RocketMQ cannot do that:
        ConfigError, and nothing is changed.
        """
        if password is not None:
            _check_password(password)
        masters, slaves = await self._everybody(cluster, broker)
        found = [member for member, info in await self._infos(masters, name) if info is not None]
        if not found:
            raise _no_user(name)
        overlap_ms = await self._overlap_ms(overlap_s, [*found, *slaves]) if password is not None else None
        # One at a time: RocketMQ's tool, too, changes one thing with a request.
        changes = [
            UserInfo(name, user_type=SUPER if is_super else NORMAL) if is_super is not None else None,
            UserInfo(name, user_status=ENABLED if is_enabled else DISABLED) if is_enabled is not None else None,
            UserInfo(name, password=password) if password is not None else None,
        ]
        for change in changes:
            if change is not None:
                await self._alter(found, slaves, name, change, overlap_ms)
        signer = self.instance.signer
        if password is not None and signer is not None and signer.user == name:
            signer.renew(password)
        return await self.describe_user(name)

    async def delete_user(self, name: str, *, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """With everything that was granted. Gives the names of the brokers that had the user. NotFound."""
        masters, slaves = await self._everybody(cluster, broker)
        found = [_label(member) for member, info in await self._infos(masters, name) if info is not None]
        if not found:
            raise _no_user(name)
        header = AuthUser(name)
        await each(masters, lambda member: self._ask_about(member, Request.AUTH_DELETE_USER, header))
        await self._each_slave(slaves, lambda member: self._ask_about(member, Request.AUTH_DELETE_USER, header))
        return found

    async def users(self, part: str = "", *, cluster: str | None = None) -> list[User]:
        """Users whose name has `part` in it, in the order of names."""
        members, tables = await self._read(cluster, None, lambda member: self._user_table(member, part))
        names = sorted({name for table in tables for name in table}, key=str.encode)
        return [_compared_user(name, members, tables) for name in names]

    async def describe_user(self, name: str) -> User:
        """NotFound if no broker knows the user."""
        members, found = await self._read(None, None, lambda member: self._user(member, name))
        tables = [{name: info} if info is not None else {} for info in found]
        if not any(tables):
            raise _no_user(name)
        return _compared_user(name, members, tables)

    # Policies

    async def grant(
        self, user: str, entry: AccessEntry, *, cluster: str | None = None, broker: str | None = None
    ) -> list[AccessChange]:
        """Give a user an entry, or more actions in one that there is. Gives what changed, broker by broker.

        `AccessEntry("Topic:orders_*", ("Pub", "Sub"))`; ConfigError for words that are not known, NotFound.
        """
        changes = await self.plan_grant(user, entry, cluster=cluster, broker=broker)
        await self._carry_out(user, changes, cluster, broker)
        return changes

    async def plan_grant(
        self, user: str, entry: AccessEntry, *, cluster: str | None = None, broker: str | None = None
    ) -> list[AccessChange]:
        """What `grant` would change."""
        wanted = checked_entry(entry)
        entries = await self._entries_of(user, cluster, broker)
        planned = []
        for member, known in entries:
            before = _same_resource(known, wanted)
            after = _joined(before, wanted)
            if before != after:
                planned.append(AccessChange(_label(member), before, after))
        return planned

    async def revoke(
        self,
        user: str,
        resource: str | None = None,
        actions: Sequence[str] = (),
        *,
        policy: str = CUSTOM,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[AccessChange]:
        """Take actions of an entry from a user; the whole entry without `actions`, everything without `resource`."""
        changes = await self.plan_revoke(user, resource, actions, policy=policy, cluster=cluster, broker=broker)
        await self._carry_out(user, changes, cluster, broker)
        return changes

    async def plan_revoke(
        self,
        user: str,
        resource: str | None = None,
        actions: Sequence[str] = (),
        *,
        policy: str = CUSTOM,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[AccessChange]:
        """What `revoke` would change. NotFound if no broker has such an entry."""
        if actions and resource is None:
            raise ConfigError("actions are revoked of a resource: give it, too")
        wanted = checked_entry(AccessEntry(resource, tuple(actions or ("All",)), policy=policy)) if resource else None
        planned = []
        for member, known in await self._entries_of(user, cluster, broker):
            for before in known:
                if wanted is None or _is_same_resource(before, wanted):
                    after = _reduced(before, wanted.actions) if wanted is not None and actions else None
                    if after != before:
                        planned.append(AccessChange(_label(member), before, after))
        if not planned:
            what = f"no such right on {resource}" if resource is not None else "nothing granted"
            raise NotFound(f"user {user} has {what}: cometmq acl list {user} shows what there is")
        return planned

    async def accesses(
        self, user_part: str = "", resource_part: str = "", *, cluster: str | None = None
    ) -> list[Access]:
        """What users whose name has `user_part` in it were given on resources that have `resource_part` in theirs."""
        header = AuthListAcls(SUBJECT + user_part if user_part else None, resource_part or None)
        members, tables = await self._read(cluster, None, lambda member: self._access_table(member, header))
        # The filter is for a part of "User:name": the broker's answer may have names that only end in it.
        names = sorted({name for table in tables for name in table if user_part in name}, key=str.encode)
        return [_compared_access(name, members, tables) for name in names]

    async def describe_access(self, user: str) -> Access:
        """What one user was given. NotFound if no broker knows the user."""
        await self.describe_user(user)
        members, found = await self._read(None, None, lambda member: self._entries(member, user))
        return _compared_access(user, members, [{user: entries} for entries in found])

    async def _carry_out(
        self, user: str, changes: Sequence[AccessChange], cluster: str | None, broker: str | None
    ) -> None:
        masters, slaves = await self._everybody(cluster, broker)
        by_label = {_label(member): member for member in [*masters, *slaves]}
        planned = [(by_label[change.broker], change) for change in changes if change.broker in by_label]
        for member, change in [pair for pair in planned if pair[0].id == MASTER_ID]:
            await self._change(member, user, change)
        for member, change in [pair for pair in planned if pair[0].id != MASTER_ID]:
            await self._each_slave([member], partial(self._follow, user=user, change=change))

    async def _follow(self, slave: BrokerMember, user: str, change: AccessChange) -> None:
        """A slave may have copied the change from its master by now."""
        try:
            await self._change(slave, user, change)
        except BrokerError as error:
            if change.after is not None or error.code != Response.NO_PERMISSION:
                raise

    async def _change(self, member: BrokerMember, user: str, change: AccessChange) -> None:
        subject = SUBJECT + user
        if change.after is None:
            assert change.before is not None
            header = AuthDeleteAcl(subject, change.before.policy, change.before.resource)
            await self._ask_about(member, Request.AUTH_DELETE_ACL, header)
            return
        code = Request.AUTH_CREATE_ACL if change.before is None else Request.AUTH_UPDATE_ACL
        policy = AclPolicy(entries=[_wire_entry(change.after)], policy_type=change.after.policy)
        await self._ask_about(member, code, AuthAcl(subject), AclInfo([policy], subject).encode())

    async def _entries_of(
        self, user: str, cluster: str | None, broker: str | None
    ) -> list[tuple[BrokerMember, tuple[AccessEntry, ...]]]:
        """Of every member that knows the user. NotFound if none does."""
        members, found = await self._read(cluster, broker, lambda member: self._user(member, user))
        known = [member for member, info in zip(members, found, strict=True) if info is not None]
        if not known:
            raise _no_user(user)
        return list(zip(known, await each(known, lambda member: self._entries(member, user)), strict=True))

    # One member

    async def _ask_about(
        self, member: BrokerMember, code: int, fields: Fields | None = None, body: bytes = b""
    ) -> Command:
        try:
            return await self.ask(member.address, code, fields, body)
        except BrokerError as error:
            if error.code == Response.SYSTEM_ERROR and (NO_STORE in error.remark or error.remark == ANY_FAULT):
                raise BrokerError(error.code, error.remark, error.broker, advice=f"; {KEEPS_NONE}") from error
            raise

    async def _user(self, member: BrokerMember, name: str) -> UserInfo | None:
        response = await self._ask_about(member, Request.AUTH_GET_USER, AuthUser(name))
        return UserInfo.decode(response.body) if response.body else None

    async def _user_table(self, member: BrokerMember, part: str) -> dict[str, UserInfo]:
        response = await self._ask_about(member, Request.AUTH_LIST_USER, AuthListUsers(part or None))
        found = decode_list(UserInfo, response.body) if response.body else []
        return {info.username: info for info in found if info.username}

    async def _entries(self, member: BrokerMember, user: str) -> tuple[AccessEntry, ...]:
        response = await self._ask_about(member, Request.AUTH_GET_ACL, AuthAcl(SUBJECT + user))
        return _entries_in(AclInfo.decode(response.body)) if response.body else ()

    async def _access_table(
        self, member: BrokerMember, header: AuthListAcls
    ) -> dict[str, tuple[AccessEntry, ...]]:
        response = await self._ask_about(member, Request.AUTH_LIST_ACL, header)
        found = decode_list(AclInfo, response.body) if response.body else []
        return {(info.subject or "").removeprefix(SUBJECT): _entries_in(info) for info in found}

    async def _infos(
        self, members: Iterable[BrokerMember], name: str
    ) -> list[tuple[BrokerMember, UserInfo | None]]:
        chosen = list(members)
        return list(zip(chosen, await each(chosen, lambda member: self._user(member, name)), strict=True))

    async def _put_user(
        self, member: BrokerMember, code: int, name: str, info: UserInfo, overlap_ms: int | None = None
    ) -> None:
        await self._ask_about(member, code, AuthUser(name, overlap_ms), info.encode())

    async def _bring_user(self, slave: BrokerMember, name: str, info: UserInfo) -> None:
        """A slave may have copied the user from its master by now."""
        try:
            await self._put_user(slave, Request.AUTH_CREATE_USER, name, info)
        except BrokerError as error:
            if EXISTS not in error.remark:
                raise
            await self._put_user(slave, Request.AUTH_UPDATE_USER, name, info)

    async def _alter(
        self,
        masters: Sequence[BrokerMember],
        slaves: Sequence[BrokerMember],
        name: str,
        change: UserInfo,
        overlap_ms: int | None,
    ) -> None:
        overlap_ms = overlap_ms if change.password is not None else None
        await each(
            masters, lambda member: self._put_user(member, Request.AUTH_UPDATE_USER, name, change, overlap_ms)
        )

        async def alter(slave: BrokerMember) -> None:
            try:
                if await self._user(slave, name) is not None:
                    await self._put_user(slave, Request.AUTH_UPDATE_USER, name, change, overlap_ms)
            except AccessDenied as error:
                # Our own password: the slave may have copied it from its master by now.
                if change.password is None or error.user != name:
                    raise

        await self._each_slave(slaves, alter)

    async def _overlap_ms(self, overlap_s: float, members: Iterable[BrokerMember]) -> int | None:
        if overlap_s == 0:
            return None
        if not 0 < overlap_s <= OVERLAP_S_MAX:
            raise ConfigError(f"overlap_s is {overlap_s}, allowed are 0 to {OVERLAP_S_MAX} (30 days)")
        for member in members:
            response = await self.ask(member.address, Request.GET_BROKER_CONFIG)
            if OURS not in java_properties.parse(response.body):
                raise ConfigError(
                    f"broker {_label(member)} is RocketMQ's and keeps one password for a user: change it without an "
                    "overlap, and the programs that use it with it"
                )
        return int(overlap_s * 1000)

    # All members

    async def _everybody(
        self, cluster: str | None, broker: str | None
    ) -> tuple[list[BrokerMember], list[BrokerMember]]:
        """Masters and slaves, of one name or address, of one cluster, or all. NotFound if there is no master."""
        masters = await self.masters(cluster, broker)
        if broker is not None and ":" in broker:
            return masters, []
        names = {(master.cluster, master.name) for master in masters}
        slaves = [it for it in await self.members() if it.id != MASTER_ID and (it.cluster, it.name) in names]
        return masters, slaves

    async def _read(
        self, cluster: str | None, broker: str | None, ask: Callable[[BrokerMember], Awaitable[T]]
    ) -> tuple[list[BrokerMember], list[T]]:
        """What every member says; a slave that cannot be reached is left out."""
        masters, slaves = await self._everybody(cluster, broker)
        answers = dict(zip(masters, await each(masters, ask), strict=True))
        for slave, answer in await self._each_slave(slaves, ask):
            answers[slave] = answer
        return list(answers), list(answers.values())

    async def _each_slave(
        self, slaves: Iterable[BrokerMember], ask: Callable[[BrokerMember], Awaitable[T]]
    ) -> list[tuple[BrokerMember, T]]:
        async def one(slave: BrokerMember) -> list[tuple[BrokerMember, T]]:
            try:
                return [(slave, await ask(slave))]
            except CallError as error:
                logger.warning("leave out slave=%s address=%s cause=%s", _label(slave), slave.address, error)
                return []

        return [pair for pairs in await each(slaves, one) for pair in pairs]


def checked_entry(entry: AccessEntry) -> AccessEntry:
    """The entry in the words of brokers. ConfigError for what is not known: RocketMQ's drop some of it in silence."""
    resource = parse_resource(entry.resource)
    if resource is None or (resource.name == "" and str(resource).endswith(":")):
        raise ConfigError(
            f"the resource {entry.resource[:80]!r} is none of Topic:NAME, Group:NAME and Cluster:NAME (NAME may end in "
            "*, for all names that begin so), nor * for everything"
        )
    if "," in entry.resource:
        raise ConfigError(f"the resource {entry.resource[:80]!r} is several: give one at a time")
    actions = [parse_action(word) for word in entry.actions]
    if not actions or None in actions:
        unknown = [word[:40] for word, action in zip(entry.actions, actions, strict=True) if action is None]
        raise ConfigError(f"the actions {', '.join(unknown) or 'are missing'}: known are {', '.join(Action)}")
    for source in entry.sources:
        if parse_block(source) is None:
            raise ConfigError(f"the source {source[:80]!r} is neither an IP address nor a CIDR block like 10.0.0.0/8")
    words = tuple(action.value for action in Action if action in actions)
    decision = _word("decision", entry.decision, (ALLOW, DENY))
    policy = _word("policy", entry.policy, (CUSTOM, DEFAULT))
    return AccessEntry(str(resource), words, decision, tuple(entry.sources), policy)


def _word(name: str, text: str, known: tuple[str, ...]) -> str:
    for word in known:
        if text.strip().lower() == word.lower():
            return word
    raise ConfigError(f"the {name} is {text[:40]!r}, known are {', '.join(known)}")


def _check_password(password: str) -> None:
    if len(password) < PASSWORD_CHARS_MIN:
        raise ConfigError(f"the password has {len(password)} characters, at least {PASSWORD_CHARS_MIN} are needed")


def _no_user(name: str) -> NotFound:
    return NotFound(f"no broker knows user {name}: create it (cometmq user create {name}) or check the name")


def _label(member: BrokerMember) -> str:
    return member.name if member.id == MASTER_ID else f"{member.name} slave {member.id}"


def _is_same_resource(one: AccessEntry, other: AccessEntry) -> bool:
    return one.policy == other.policy and parse_resource(one.resource) == parse_resource(other.resource)


def _same_resource(entries: Iterable[AccessEntry], wanted: AccessEntry) -> AccessEntry | None:
    return next((entry for entry in entries if _is_same_resource(entry, wanted)), None)


def _joined(before: AccessEntry | None, wanted: AccessEntry) -> AccessEntry:
    if before is None or (before.decision, set(before.sources)) != (wanted.decision, set(wanted.sources)):
        return wanted
    both = {*before.actions, *wanted.actions}
    return replace(before, actions=tuple(action.value for action in Action if action.value in both))


def _reduced(before: AccessEntry, actions: tuple[str, ...]) -> AccessEntry | None:
    if Action.ALL in before.actions and Action.ALL not in actions:
        raise ConfigError(
            f"{before.resource} has All: revoke it and grant what is to stay, single actions cannot be taken from it"
        )
    left = tuple(action for action in before.actions if action not in actions)
    return replace(before, actions=left) if left and Action.ALL not in actions else None


def _entries_in(info: AclInfo) -> tuple[AccessEntry, ...]:
    return tuple(
        AccessEntry(
            entry.resource or "",
            tuple(entry.actions or ()),
            entry.decision or "",
            tuple(entry.source_ips or ()),
            policy.policy_type or CUSTOM,
        )
        for policy in info.policies or ()
        for entry in policy.entries or ()
    )


def _wire_entry(entry: AccessEntry) -> PolicyEntry:
    return PolicyEntry(list(entry.actions), entry.decision, entry.resource, list(entry.sources) or None)


def _compared_user(name: str, members: Sequence[BrokerMember], tables: Sequence[dict[str, UserInfo]]) -> User:
    brokers = [_label(member) for member, table in zip(members, tables, strict=True) if name in table]
    first = next(table[name] for table in tables if name in table)
    others = zip(members, tables, strict=True)
    differs = [_label(member) for member, table in others if not _is_same_user(table.get(name), first)]
    return User(
        name,
        (first.user_type or NORMAL).lower() == SUPER.lower(),
        (first.user_status or ENABLED).lower() == ENABLED.lower(),
        tuple(brokers),
        tuple(differs),
    )


def _is_same_user(one: UserInfo | None, other: UserInfo) -> bool:
    """Passwords count where both brokers show them: only to Super users."""
    if one is None or (one.user_type, one.user_status) != (other.user_type, other.user_status):
        return False
    return None in (one.password, other.password) or one.password == other.password


def _compared_access(
    name: str, members: Sequence[BrokerMember], tables: Sequence[dict[str, tuple[AccessEntry, ...]]]
) -> Access:
    found = [(_label(member), table.get(name, ())) for member, table in zip(members, tables, strict=True)]
    first = next((entries for _, entries in found if entries), ())
    return Access(
        name,
        first,
        tuple(label for label, entries in found if entries),
        tuple(label for label, entries in found if set(entries) != set(first)),
    )
