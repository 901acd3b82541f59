"""`cometmq acl`: what users may do.

    cometmq acl grant billing Topic:orders_* Sub --yes         and cometmq acl grant billing Group:billing Sub --yes
    cometmq acl grant shop Topic:orders_* Pub --from 10.0.0.0/8 --yes
    cometmq acl explain billing Pub Topic:orders_1             which entry decides, and why the others do not
    cometmq acl migrate conf/plain_acl.yml                     users and entries of RocketMQ 4, as a plan

Resources are Topic:NAME, Group:NAME, Cluster:NAME, a NAME ending in * for all that begin so, and *. Actions are All,
Pub, Sub, Create, Update, Delete, Get and List. Resource and actions may stand in any order.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_NO
from cometmq.errors import CometError, ConfigError, NotFound, RequestError

if TYPE_CHECKING:
    from cometmq.auth.plain_acl import Migration
    from cometmq.auth.policies import Acl
    from cometmq.auth.resources import Need
    from cometmq.client.admin import Access, AccessChange, AccessEntry, Admin

NOT_CHANGED: Final = "nothing was changed: add --yes to do it"
COLUMNS: Final = ("user", "policy", "resource", "actions", "decision", "sources")
YAML_NAMES: Final = ("*.yml", "*.yaml")


def main(argv: list[str]) -> int:
    return run_noun("acl", "What users may do: list, grant, revoke, explain, migrate.", VERBS, argv)


def _resource_and_actions(words: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Resources have a colon or are a star; actions may be joined by commas."""
    resources = [word for word in words if ":" in word or word == "*"]
    if len(resources) > 1:
        raise ConfigError(f"one resource at a time: {' and '.join(resources)} are {len(resources)}")
    actions = [part for word in words if word not in resources for part in word.split(",") if part]
    return (resources[0] if resources else None), tuple(actions)


def _row(user: str, entry: "AccessEntry") -> dict[str, Any]:
    return {
        "user": user,
        "policy": entry.policy,
        "resource": entry.resource,
        "actions": list(entry.actions),
        "decision": entry.decision,
        "sources": list(entry.sources),
    }


def _text(entry: "AccessEntry | None") -> str | None:
    if entry is None:
        return None
    sources = f" from {', '.join(entry.sources)}" if entry.sources else ""
    return f"{entry.decision} {','.join(entry.actions)}{sources}"


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--default", action="store_true", help="what counts where no other entry matches")
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--broker", metavar="NAME")
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


def _policy(options: argparse.Namespace) -> str:
    return "Default" if options.default else "Custom"


# List


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", nargs="?", help="of this user; all without it")
    parser.add_argument("--resource", metavar="PART", default="", help="only resources that have this in them")
    parser.add_argument("--cluster", metavar="NAME")


async def _list(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        if options.user is not None:
            await admin.describe_user(options.user)  # an unknown user is not one without entries
        found = await admin.accesses(options.user or "", options.resource, cluster=options.cluster)
    chosen = [access for access in found if options.user in (None, access.user)]
    rows = [{**_row(access.user, entry), **_places(access)} for access in chosen for entry in access.entries]
    output.rows(options.output, rows, COLUMNS, ("brokers", "differs"))
    for access in chosen:
        if access.differs:
            output.note(f"{output.joined(access.differs)} have other entries of {access.user} than the first broker")


def _places(access: "Access") -> dict[str, Any]:
    return {"brokers": list(access.brokers), "differs": list(access.differs)}


# Grant, revoke


def _grant_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user")
    parser.add_argument("words", nargs="+", metavar="RESOURCE ACTIONS", help="Topic:orders_* Pub,Sub")
    parser.add_argument("--from", dest="sources", action="append", default=[], metavar="CIDR",
                        help="only from this address or block; may be given again")  # fmt: skip
    parser.add_argument("--deny", action="store_true", help="refuse it, whatever less specific entries allow")
    _add_yes(parser)


async def _grant(options: argparse.Namespace) -> None:
    from cometmq.client.admin import AccessEntry

    resource, actions = _resource_and_actions(options.words)
    if resource is None or not actions:
        raise ConfigError("a grant has a resource and actions: cometmq acl grant billing Topic:orders_* Sub")
    decision = "Deny" if options.deny else "Allow"
    entry = AccessEntry(resource, actions, decision, tuple(options.sources), _policy(options))
    place = {"cluster": options.cluster, "broker": options.broker}
    async with administration(options) as admin:
        changes = await admin.plan_grant(options.user, entry, **place)
        _show(options, changes)
        if changes and options.yes:
            await admin.grant(options.user, entry, **place)
            output.note(f"granted on {_places_of(changes)}")


def _revoke_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user")
    parser.add_argument("words", nargs="*", metavar="RESOURCE ACTIONS",
                        help="Topic:orders Pub; all actions without Pub; everything without both")  # fmt: skip
    _add_yes(parser)


async def _revoke(options: argparse.Namespace) -> None:
    resource, actions = _resource_and_actions(options.words)
    place = {"cluster": options.cluster, "broker": options.broker}
    async with administration(options) as admin:
        changes = await admin.plan_revoke(options.user, resource, actions, policy=_policy(options), **place)
        _show(options, changes)
        if options.yes:
            await admin.revoke(options.user, resource, actions, policy=_policy(options), **place)
            output.note(f"revoked on {_places_of(changes)}")


def _show(options: argparse.Namespace, changes: "Sequence[AccessChange]") -> None:
    rows = []
    for change in changes:
        entry = change.after or change.before
        assert entry is not None
        before, after = _text(change.before), _text(change.after)
        rows.append({"broker": change.broker, "policy": entry.policy, "resource": entry.resource,
                     "before": before, "after": after})  # fmt: skip
    if not rows:
        output.note(f"{options.user} has this already: nothing to change")
        return
    output.rows(options.output, rows, ("broker", "resource", "before", "after"), ("policy",))
    if not options.yes:
        output.note(NOT_CHANGED)


def _places_of(changes: "Sequence[AccessChange]") -> str:
    return output.joined(dict.fromkeys(change.broker for change in changes))


# Explain


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user")
    parser.add_argument("words", nargs=2, metavar=("ACTION", "RESOURCE"), help="Pub Topic:orders")
    parser.add_argument("--from", dest="source", default="", metavar="IP", help="where the user calls from")


async def _explain(options: argparse.Namespace) -> int:
    need = _need(options.words)
    if options.source:
        _check_address(options.source)
    async with administration(options) as admin:
        user = await admin.describe_user(options.user)
        access = await admin.describe_access(options.user)
    if user.differs or access.differs:
        others = output.joined(sorted({*user.differs, *access.differs}))
        output.note(f"{others} know {user.name} otherwise: this is what {user.brokers[0]} decides")
    acl = _acl_of(access)
    if not user.is_enabled:
        return _answer(options, need, "refused", f"{user.name} is disabled: cometmq user enable {user.name}", [])
    if user.is_super:
        return _answer(options, need, "allowed", f"{user.name} is a Super user, whom no entry limits", [])
    return _decide(options, need, acl)


def _decide(options: argparse.Namespace, need: "Need", acl: "Acl") -> int:
    from cometmq.auth.explain import reasons
    from cometmq.auth.policies import decide

    decision = decide(acl, need, options.source)
    entries = [
        {
            "policy": each.policy.value,
            "resource": str(each.entry.resource),
            "actions": sorted(each.entry.actions),
            "decision": each.entry.effect.value,
            "sources": list(each.entry.source_texts),
            "why": each.why,
        }
        for each in reasons(acl, need, options.source)
    ]
    action = min(need.actions)
    if decision.allowed:
        cause = f"by the entry of {decision.entry.resource}" if decision.entry is not None else ""
        return _answer(options, need, "allowed", cause, entries)
    if decision.entry is not None:
        denying = decision.entry.resource
        cause = f"by the entry of {denying}: cometmq acl revoke {options.user} {denying}"
        return _answer(options, need, "refused", cause, entries)
    cause = f"no entry matches: cometmq acl grant {options.user} {need.resource} {action}"
    return _answer(options, need, "refused", cause, entries)


def _answer(
    options: argparse.Namespace, need: "Need", outcome: str, cause: str, entries: list[dict[str, Any]]
) -> int:
    if options.output in ("json", "yaml"):
        whole = {"user": options.user, "resource": need.resource, "action": min(need.actions),
                 "from": options.source or None, "outcome": outcome, "cause": cause, "entries": entries}  # fmt: skip
        output.record(options.output, whole)
    else:
        print(f"{outcome}: {cause}")
        if entries:
            output.rows(options.output, entries, ("resource", "actions", "decision", "sources", "policy", "why"))
    if not options.source and any(entry["sources"] for entry in entries):
        output.note("entries for some addresses only do not count without --from IP")
    return 0 if outcome == "allowed" else EXIT_NO


def _need(words: Sequence[str]) -> "Need":
    from cometmq.auth.needs import topic_need
    from cometmq.auth.resources import Action, Kind, Need, Pattern, parse_action, parse_resource

    text, actions = _resource_and_actions(words)
    resource = parse_resource(text or "")
    action = parse_action(actions[0]) if len(actions) == 1 else None
    if resource is None or action is None or action is Action.ALL:
        known = ", ".join(each for each in Action if each is not Action.ALL)
        raise ConfigError(f"what is explained is one action of {known} on one resource: Pub Topic:orders")
    if resource.pattern is Pattern.PREFIX or resource.kind is Kind.ANY:
        raise ConfigError(f"{text} is many resources: explain one, or all of a kind (Topic:*)")
    if resource.pattern is Pattern.ANY:
        return Need(resource.kind, None, frozenset((action,)))
    if resource.kind is Kind.TOPIC:
        return topic_need(resource.name, frozenset((action,)))
    return Need(resource.kind, resource.name, frozenset((action,)))


def _check_address(text: str) -> None:
    from cometmq.auth.sources import parse_address

    if parse_address(text) is None:
        raise ConfigError(f"--from {text[:64]!r} is not an IP address")


def _acl_of(access: "Access") -> "Acl":
    """The entries as brokers of ours read them; what they would not accept is left out, with a note."""
    from cometmq.auth.acls import read_entries
    from cometmq.auth.policies import Acl
    from cometmq.wire.bodies import AclPolicy, PolicyEntry

    found: dict[str, list[Any]] = {"Custom": [], "Default": []}
    for entry in access.entries:
        wire = PolicyEntry(list(entry.actions), entry.decision, entry.resource, list(entry.sources) or None)
        try:
            found.setdefault(entry.policy, []).extend(read_entries(AclPolicy([wire], entry.policy)))
        except RequestError as error:
            output.note(f"left out {entry.resource} {_text(entry)}: {error.remark}")
    return Acl(tuple(found["Custom"]), tuple(found["Default"]))


# Migrate


def _migrate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path,
                        help="plain_acl.yml, or the conf directory of RocketMQ 4")  # fmt: skip
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--broker", metavar="NAME")
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _migrate(options: argparse.Namespace) -> int:
    from cometmq.auth.plain_acl import read_files

    migration = read_files((str(path), _content(path)) for path in _files(options.files))
    async with administration(options) as admin:
        for note in migration.notes:
            output.note(note)
        rows = [await _planned(admin, migration, name) for name in migration.users]
        output.rows(options.output, rows, ("user", "super", "entries", "outcome"))
        if not options.yes:
            output.note(NOT_CHANGED)
            return 0
        failed = 0
        for row in rows:
            if row["outcome"] == "create":
                failed += not await _carry_over(admin, options, migration, row["user"])
    made = sum(row["outcome"] == "create" for row in rows) - failed
    output.note(f"created {made} users, left {len(rows) - made} as they are")
    return EXIT_NO if failed else 0


async def _planned(admin: "Admin", migration: "Migration", name: str) -> dict[str, Any]:
    from cometmq.auth.acls import NO_ACL
    from cometmq.auth.users import check_name, check_password

    user, acl = migration.users[name], migration.acls.get(name, NO_ACL)
    entries = [
        f"{entry.resource} {entry.effect} {','.join(sorted(entry.actions))}" for entry in (*acl.custom, *acl.default)
    ]
    outcome = "create"
    try:
        check_name(name)
        check_password(user.password)
        await admin.describe_user(name)
        outcome = "exists, left as it is"
    except RequestError as error:
        outcome = f"left out: {error.remark}"
    except NotFound:
        pass
    return {"user": name, "super": user.is_super, "entries": entries, "outcome": outcome}


async def _carry_over(admin: "Admin", options: argparse.Namespace, migration: "Migration", name: str) -> bool:
    from cometmq.auth.acls import NO_ACL
    from cometmq.auth.policies import PolicyType
    from cometmq.client.admin import AccessEntry

    user, acl = migration.users[name], migration.acls.get(name, NO_ACL)
    place = {"cluster": options.cluster, "broker": options.broker}
    try:
        await admin.create_user(name, user.password, is_super=user.is_super, **place)
        for policy in PolicyType:
            for entry in acl.entries(policy):
                actions = tuple(action.value for action in entry.actions)
                given = AccessEntry(str(entry.resource), actions, entry.effect.value, policy=policy.value)
                await admin.grant(name, given, **place)
    except CometError as error:
        output.note(f"{name}: {error}")
        return False
    return True


def _files(paths: Sequence[Path]) -> list[Path]:
    """Of two accounts with the same key the first counts, and RocketMQ reads conf/acl/ before conf/plain_acl.yml."""
    found = []
    for path in paths:
        if path.is_dir():
            below = {file for pattern in YAML_NAMES for file in path.rglob(pattern) if _is_acl(path, file)}
            found += sorted(below, key=lambda file: (file.name == "plain_acl.yml", str(file)))
        else:
            found.append(path)
    if not found:
        raise ConfigError(f"there is no .yml file below {output.joined(paths)}")
    return found


def _is_acl(directory: Path, file: Path) -> bool:
    """Of a whole conf directory: other settings are YAML, too."""
    return file.name == "plain_acl.yml" or "acl" in (*file.relative_to(directory).parts[:-1], directory.name)


def _content(path: Path) -> bytes:
    from cometmq.auth.plain_acl import FILE_BYTES_MAX

    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


VERBS: Final = (
    Verb("list", "what users may do, and where brokers differ", _list, _list_arguments),
    Verb("grant", "let a user act on a resource, or refuse it", _grant, _grant_arguments,
         example="cometmq acl grant billing Topic:orders_* Sub --yes"),
    Verb("revoke", "take actions, a resource or everything away from a user", _revoke, _revoke_arguments,
         example="cometmq acl revoke billing Topic:orders_* --yes"),
    Verb("explain", "which entry decides, and why the others do not", _explain, _explain_arguments,
         example="cometmq acl explain billing Sub Topic:orders_1 --from 10.1.2.3"),
    Verb("migrate", "carry over the users and entries of RocketMQ 4", _migrate, _migrate_arguments,
         example="cometmq acl migrate conf/plain_acl.yml"),
)  # fmt: skip
