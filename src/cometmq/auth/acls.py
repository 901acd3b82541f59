"""The entries of every user, and the file that keeps them.

    acls.json   {"version":1,"acls":[AclInfo, ...]}      AclInfo as requests 3006 to 3010 have it

Creating and updating are the same: an entry whose resource is equal is replaced as a whole, others are added at the
end, nothing is removed. An entry with a word that is not known is refused; RocketMQ drops such words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from cometmq.auth.policies import Acl, Effect, Entry, PolicyType
from cometmq.auth.resources import Action, Resource, parse_action, parse_resource
from cometmq.auth.sources import parse_block
from cometmq.errors import RequestError, WireError
from cometmq.wire.bodies import AclInfo, AclPolicy, PolicyEntry
from cometmq.wire.codes import Response

FILE_VERSION: Final = 1
SUBJECT_PREFIX: Final = "User:"
ENTRIES_MAX: Final = 1_000
SOURCES_MAX: Final = 100
RESOURCE_CHARS_MAX: Final = 300
NO_ACL: Final = Acl()


class _Policy(msgspec.Struct, rename="camel", omit_defaults=True):
    actions: list[str]
    decision: str
    resource: str
    source_ips: list[str] = []


class _Row(msgspec.Struct, omit_defaults=True):
    user: str
    custom: list[_Policy] = []
    default: list[_Policy] = []


class _File(msgspec.Struct):
    version: int
    acls: list[_Row]


class Acls:
    """A table with a file; `changes` goes up with every change. `on_change` has one owner, given at construction."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.table: dict[str, Acl] = {}
        self.changes: int = 0
        self._on_change = on_change

    def of(self, name: str) -> Acl:
        return self.table.get(name, NO_ACL)

    # Requests 3006 to 3010

    def merge(self, name: str, policies: Iterable[AclPolicy]) -> None:
        self.put(name, merged(self.of(name), policies))

    def delete(self, name: str, resource: Resource | None, policy: PolicyType = PolicyType.CUSTOM) -> None:
        """Entries of this resource; everything if there is none. What is empty then disappears."""
        acl = self.table.get(name)
        if acl is None:
            raise RequestError(Response.NO_PERMISSION, "The acl is not exist.")
        if resource is None:
            acl = NO_ACL
        elif policy is PolicyType.CUSTOM:
            acl = Acl(_without(acl.custom, resource), acl.default)
        else:
            acl = Acl(acl.custom, _without(acl.default, resource))
        self.put(name, acl)

    def forget(self, name: str) -> None:
        """Of a user that was deleted."""
        if self.table.pop(name, None) is not None:
            self._changed()

    def put(self, name: str, acl: Acl) -> None:
        if len(acl.custom) + len(acl.default) > ENTRIES_MAX:
            raise RequestError(Response.INVALID_PARAMETER, f"more than {ENTRIES_MAX} entries for the user {name}")
        if acl == NO_ACL:
            self.table.pop(name, None)
        else:
            self.table[name] = acl
        self._changed()

    def matching(self, subject_part: str = "", resource_part: str = "") -> list[AclInfo]:
        found = []
        for name in sorted(self.table, key=str.encode):
            if subject_part in SUBJECT_PREFIX + name:
                info = info_of(name, self.table[name], resource_part)
                if info.policies:
                    found.append(info)
        return found

    def replace_all(self, acls: dict[str, Acl]) -> None:
        """What a replica copied from its master."""
        self.table = {name: acl for name, acl in acls.items() if acl != NO_ACL}
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._on_change()

    # The file

    def snapshot(self) -> Callable[[], bytes]:
        acls = list(self.table.items())
        return lambda: msgspec.json.format(msgspec.json.encode(_File(FILE_VERSION, [_row(*each) for each in acls])))

    def restore(self, content: bytes) -> None:
        try:
            file = msgspec.json.decode(content, type=_File)
        except msgspec.DecodeError as error:
            raise WireError(f"not a table of policies: {error}") from error
        if file.version != FILE_VERSION:
            raise WireError(f"version {file.version} of the table of policies is not known, this is {FILE_VERSION}")
        try:
            self.table = {row.user: Acl(_restored(row.custom), _restored(row.default)) for row in file.acls}
        except RequestError as error:
            raise WireError(f"not a table of policies: {error.remark}") from error


# Between texts and values


def read_subject(text: str | None) -> str:
    """The user's name."""
    if text is None or not text.startswith(SUBJECT_PREFIX) or len(text) == len(SUBJECT_PREFIX):
        raise RequestError(Response.INVALID_PARAMETER, f"the subject is {text!r}: it is User: and a name")
    return text.removeprefix(SUBJECT_PREFIX)


def read_policy_type(text: str | None) -> PolicyType:
    for policy in PolicyType:
        if (text or PolicyType.CUSTOM).strip().lower() == policy.lower():
            return policy
    raise RequestError(Response.INVALID_PARAMETER, f"the policy type is {text!r}: it is Custom or Default")


def read_resource(text: str | None) -> Resource:
    if text is not None and len(text) > RESOURCE_CHARS_MAX:
        raise RequestError(Response.INVALID_PARAMETER, f"a resource has at most {RESOURCE_CHARS_MAX} characters")
    resource = parse_resource(text or "")
    if resource is None:
        raise RequestError(Response.NO_PERMISSION, "The resource is null.")
    return resource


def read_entries(policy: AclPolicy) -> tuple[Entry, ...]:
    if not policy.entries:
        raise RequestError(Response.NO_PERMISSION, "The policies is empty.")
    return tuple(_read_entry(entry) for entry in policy.entries)


def _read_entry(entry: PolicyEntry) -> Entry:
    resource = read_resource(entry.resource)
    actions = read_actions(entry.actions or ())
    effect = next((each for each in Effect if each.lower() == (entry.decision or "").strip().lower()), None)
    if effect is None:
        raise RequestError(Response.NO_PERMISSION, "The decision is null or illegal.")
    texts = tuple(entry.source_ips or ())
    blocks = [parse_block(text) for text in texts[: SOURCES_MAX + 1]]
    if len(texts) > SOURCES_MAX or None in blocks:
        raise RequestError(Response.NO_PERMISSION, "The source ip is invalid.")
    return Entry(resource, actions, effect, tuple(block for block in blocks if block is not None), texts)


def read_actions(words: Iterable[str]) -> frozenset[Action]:
    found = set()
    for word in words:
        if word.strip().lower() == "any":
            raise RequestError(Response.NO_PERMISSION, "The actions can not be Any.")
        action = parse_action(word)
        if action is None:
            known = ", ".join(Action)
            raise RequestError(Response.INVALID_PARAMETER, f"the action {word[:40]!r} is not known: {known}")
        found.add(action)
    if not found:
        raise RequestError(Response.NO_PERMISSION, "The actions is empty.")
    return frozenset(found)


def info_of(name: str, acl: Acl, resource_part: str = "") -> AclInfo:
    policies = []
    for policy in PolicyType:
        entries = [_info(entry) for entry in acl.entries(policy) if resource_part in str(entry.resource)]
        if entries:
            policies.append(AclPolicy(entries=entries, policy_type=policy.value))
    return AclInfo(policies=policies, subject=SUBJECT_PREFIX + name)


def acl_of(info: AclInfo) -> Acl:
    """As another server shows it."""
    return merged(NO_ACL, info.policies or ())


def merged(acl: Acl, policies: Iterable[AclPolicy]) -> Acl:
    custom, default = acl.custom, acl.default
    for policy in policies:
        entries = read_entries(policy)
        if read_policy_type(policy.policy_type) is PolicyType.CUSTOM:
            custom = _replaced(custom, entries)
        else:
            default = _replaced(default, entries)
    return Acl(custom, default)


def _info(entry: Entry) -> PolicyEntry:
    return PolicyEntry(
        actions=[action.value for action in Action if action in entry.actions],
        decision=entry.effect.value,
        resource=str(entry.resource),
        source_ips=list(entry.source_texts) or None,
    )


def _replaced(entries: tuple[Entry, ...], more: tuple[Entry, ...]) -> tuple[Entry, ...]:
    by_resource = {entry.resource: entry for entry in entries}
    by_resource.update((entry.resource, entry) for entry in more)
    return tuple(by_resource.values())


def _without(entries: tuple[Entry, ...], resource: Resource) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if entry.resource != resource)


def _row(name: str, acl: Acl) -> _Row:
    return _Row(name, [_kept(entry) for entry in acl.custom], [_kept(entry) for entry in acl.default])


def _kept(entry: Entry) -> _Policy:
    actions = [action.value for action in Action if action in entry.actions]
    return _Policy(actions, entry.effect.value, str(entry.resource), list(entry.source_texts))


def _restored(policies: list[_Policy]) -> tuple[Entry, ...]:
    return tuple(
        _read_entry(PolicyEntry(each.actions, each.decision, each.resource, each.source_ips)) for each in policies
    )
