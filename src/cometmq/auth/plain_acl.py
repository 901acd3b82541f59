"""Access control of RocketMQ 4: plain_acl.yml, read and turned into users and policies.

    accounts:
      - accessKey: app              user, with secretKey as password
        secretKey: 12345678
        admin: false                true: a Super user, whom no entry limits
        defaultTopicPerm: DENY      Default entry for Topic:*
        defaultGroupPerm: SUB       Default entry for Group:*
        topicPerms: [orders=PUB|SUB]   Custom entries; PUB, SUB, PUB|SUB, DENY; any other word is DENY, as it was in 4
        groupPerms: [billing=SUB]
        whiteRemoteAddress: ...     \\
    globalWhiteRemoteAddresses: ... / callers without a key: no longer let in

What cannot be carried over is listed as a note, never dropped in silence, and nothing becomes "allow all" that was not.
An account that may publish to any topic by default gets the trace topic too, which 4 left open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from cometmq import names
from cometmq.auth.policies import Acl, Effect, Entry
from cometmq.auth.resources import Action, Kind, Pattern, Resource
from cometmq.auth.users import User
from cometmq.errors import ConfigError

FILE_BYTES_MAX: Final = 4 << 20
ACCOUNTS_MAX: Final = 10_000

_PERMS: Final = {
    "PUB": frozenset((Action.PUB,)),
    "SUB": frozenset((Action.SUB,)),
    "PUB|SUB": frozenset((Action.PUB, Action.SUB)),
    "SUB|PUB": frozenset((Action.PUB, Action.SUB)),
}


@dataclass(slots=True)
class Migration:
    """Users and policies as they would be, and what a person has to know."""

    users: dict[str, User] = field(default_factory=dict)
    acls: dict[str, Acl] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_files(files: Iterable[tuple[str, bytes]]) -> Migration:
    """Of two accounts with the same key the first one counts: files below conf/acl/ come before plain_acl.yml."""
    found = Migration()
    for path, content in files:
        _read(found, path, content)
    return found


def _read(found: Migration, path: str, content: bytes) -> None:
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} has {len(content)} bytes, at most {FILE_BYTES_MAX} are read")
    try:
        # BaseLoader makes texts, lists and maps only: a secret 12345678 stays a text, no tag makes an object.
        tree = yaml.load(content, Loader=yaml.BaseLoader)  # noqa: S506
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} has no accounts: it is not the map that RocketMQ 4 reads")
    for address in _texts(tree.get("globalWhiteRemoteAddresses"), path, "globalWhiteRemoteAddresses"):
        found.notes.append(
            f"{path}: callers from {address} were let in without a key (globalWhiteRemoteAddresses); "
            "they are refused from now on: give them a user"
        )
    accounts = tree.get("accounts", "")
    if accounts == "":
        accounts = []
    if not isinstance(accounts, list) or len(accounts) > ACCOUNTS_MAX:
        raise ConfigError(f"{path}: accounts is not a list of at most {ACCOUNTS_MAX}")
    for account in accounts:
        if not isinstance(account, dict):
            raise ConfigError(f"{path}: an account is not a map: {str(account)[:80]}")
        _read_account(found, path, account)


def _read_account(found: Migration, path: str, account: dict[str, Any]) -> None:
    name, secret = _text(account, "accessKey"), _text(account, "secretKey")
    if not name:
        found.notes.append(f"{path}: an account without accessKey is left out")
        return
    where = f"{path}: {name}"
    if not secret:
        found.notes.append(f"{where}: no secretKey, the account is left out")
        return
    if name in found.users:
        found.notes.append(f"{where}: appears again, the first one counts")
        return
    is_super = _text(account, "admin").lower() == "true"
    custom = [
        *_entries(found, where, Kind.TOPIC, account.get("topicPerms"), "topicPerms"),
        *_entries(found, where, Kind.GROUP, account.get("groupPerms"), "groupPerms"),
    ]
    default = [
        _entry(found, where, Resource(kind, Pattern.ANY), _text(account, key))
        for kind, key in ((Kind.TOPIC, "defaultTopicPerm"), (Kind.GROUP, "defaultGroupPerm"))
        if _text(account, key)
    ]
    if not is_super and any(_publishes_anything(entry) for entry in default):
        custom.append(_entry(found, where, Resource(Kind.TOPIC, Pattern.LITERAL, names.TRACE_TOPIC), "PUB"))
        found.notes.append(f"{where}: may write to {names.TRACE_TOPIC}, which was open to all")
    if is_super and (custom or default):
        found.notes.append(f"{where}: is an administrator, its perms no longer limit it")
    for address in _addresses(account):
        found.notes.append(f"{where}: was let in from {address} without a signature; it needs one now")
    found.users[name] = User(name, secret, is_super)
    if custom or default:
        found.acls[name] = Acl(tuple(custom), tuple(default))


def _entries(found: Migration, where: str, kind: Kind, rows: object, field_name: str) -> list[Entry]:
    by_resource: dict[Resource, Entry] = {}
    for row in _texts(rows, where, field_name):
        name, equals, word = row.partition("=")
        name = name.strip()
        if not equals or "=" in word or not name:
            raise ConfigError(f"{where}: {row[:80]!r} in {field_name} is not of the form name=PERM")
        if name.endswith("*"):
            raise ConfigError(
                f"{where}: {row[:80]!r} in {field_name} names {name!r} and nothing else in RocketMQ 4, but would read "
                "like a prefix here: remove or rename it"
            )
        resource = Resource(kind, Pattern.LITERAL, name)
        by_resource.setdefault(resource, _entry(found, where, resource, word.strip()))
    return list(by_resource.values())


def _entry(found: Migration, where: str, resource: Resource, word: str) -> Entry:
    actions = _PERMS.get(word)
    if actions is not None:
        return Entry(resource, actions, Effect.ALLOW)
    if word != "DENY":
        found.notes.append(f"{where}: {word[:40]!r} for {resource} is no permission of RocketMQ 4 and means DENY")
    return Entry(resource, frozenset((Action.ALL,)), Effect.DENY)


def _publishes_anything(entry: Entry) -> bool:
    return entry.resource.kind is Kind.TOPIC and entry.effect is Effect.ALLOW and Action.PUB in entry.actions


def _addresses(account: dict[str, Any]) -> list[str]:
    return [text.strip() for text in _text(account, "whiteRemoteAddress").split(",") if text.strip()]


def _text(account: dict[str, Any], key: str) -> str:
    value = account.get(key)
    return value.strip() if isinstance(value, str) else ""


def _texts(value: object, where: str, key: str) -> list[str]:
    if not value:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{where}: {key} is not a list of texts")
    return [each for each in value if each.strip()]
