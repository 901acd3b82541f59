"""What users may do: requests 3006 to 3010, at every member of a cluster (`members`).

    grant     adds actions to the entry of the same resource if its decision and sources are the same, or replaces it
    revoke    takes actions away from it; the whole entry without actions; everything without a resource

Names of topics and groups in resources are as brokers know them, with their namespace.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from cometmq.auth.resources import Action, parse_action, parse_resource
from cometmq.auth.sources import parse_block
from cometmq.client.admin.calls import each
from cometmq.client.admin.members import label
from cometmq.client.admin.results import Access, AccessChange, AccessEntry, BrokerMember
from cometmq.client.admin.users import UserAdmin, no_user
from cometmq.errors import BrokerError, ConfigError, NotFound
from cometmq.wire.bodies import AclInfo, AclPolicy, PolicyEntry, decode_list
from cometmq.wire.codes import MASTER_ID, Request, Response
from cometmq.wire.headers import AuthAcl, AuthDeleteAcl, AuthListAcls

ALLOW: Final = "Allow"
DENY: Final = "Deny"
CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"
SUBJECT: Final = "User:"


class AccessAdmin(UserAdmin):
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
                planned.append(AccessChange(label(member), before, after))
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
                        planned.append(AccessChange(label(member), before, after))
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
        by_label = {label(member): member for member in [*masters, *slaves]}
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
            raise no_user(user)
        return list(zip(known, await each(known, lambda member: self._entries(member, user)), strict=True))

    async def _entries(self, member: BrokerMember, user: str) -> tuple[AccessEntry, ...]:
        response = await self._ask_about(member, Request.AUTH_GET_ACL, AuthAcl(SUBJECT + user))
        return _entries_in(AclInfo.decode(response.body)) if response.body else ()

    async def _access_table(
        self, member: BrokerMember, header: AuthListAcls
    ) -> dict[str, tuple[AccessEntry, ...]]:
        response = await self._ask_about(member, Request.AUTH_LIST_ACL, header)
        found = decode_list(AclInfo, response.body) if response.body else []
        return {(info.subject or "").removeprefix(SUBJECT): _entries_in(info) for info in found}


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


def _compared_access(
    name: str, members: Sequence[BrokerMember], tables: Sequence[dict[str, tuple[AccessEntry, ...]]]
) -> Access:
    found = [(label(member), table.get(name, ())) for member, table in zip(members, tables, strict=True)]
    first = next((entries for _, entries in found if entries), ())
    return Access(
        name,
        first,
        tuple(label for label, entries in found if entries),
        tuple(label for label, entries in found if set(entries) != set(first)),
    )
