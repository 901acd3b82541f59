"""`cometmq user`: who may sign requests.

    cometmq user create billing                       a password is made and shown once
    cometmq user passwd billing --overlap 1h --yes    the old one stays valid for an hour
    cometmq user list                                 all brokers compared

What a user may do is said by `cometmq acl`; a Super user may do everything. Brokers keep their users each by itself:
every change goes to all of them.
"""

import argparse
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.context import resolve
from cometmq.cli.shared import output, passwords
from cometmq.cli.shared.arguments import Verb, duration, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.times import span_text
from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from cometmq.client.admin import User

NOT_CHANGED: Final = "nothing was changed: add --yes to do it"


def main(argv: list[str]) -> int:
    return run_noun("user", "Who may sign requests: list, create, passwd, disable, enable, remove.", VERBS, argv)


def _row(user: "User") -> dict[str, Any]:
    return {
        "user": user.name,
        "super": user.is_super,
        "enabled": user.is_enabled,
        "brokers": list(user.brokers),
        "differs": list(user.differs),
    }


def _warn_of_differences(user: "User") -> None:
    if user.differs:
        output.note(
            f"{user.name} is not the same on {output.joined(user.differs)}: change it with --broker there, or set its "
            f"password anew everywhere (cometmq user passwd {user.name})"
        )


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--broker", metavar="NAME")


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("part", nargs="?", default="", metavar="PART", help="only names that have this in them")
    parser.add_argument("--cluster", metavar="NAME")


async def _list(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        found = await admin.users(options.part, cluster=options.cluster)
    output.rows(options.output, [_row(user) for user in found], ("user", "super", "enabled", "differs"), ("brokers",))
    for user in found:
        _warn_of_differences(user)


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user")
    parser.add_argument("--super", dest="is_super", action="store_true", help="may do everything")
    parser.add_argument("--disabled", action="store_true", help="cannot sign until it is enabled")
    passwords.add_password(parser)
    _add_place(parser)


async def _create(options: argparse.Namespace) -> None:
    password = passwords.chosen(options)
    async with administration(options) as admin:
        try:
            made = await admin.create_user(
                options.user,
                password.text,
                is_super=options.is_super,
                is_enabled=not options.disabled,
                cluster=options.cluster,
                broker=options.broker,
            )
        except ConfigError:  # the name is taken
            password.discard()
            raise
    output.record(options.output, {**_row(made), **password.shown()})
    if password.is_shown:
        output.note("the password is shown this once: keep it where only its program can read it")
    if not made.is_super:
        output.note(f"it may do nothing yet: cometmq acl grant {made.name} Topic:NAME Pub")


def _passwd_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user")
    passwords.add_password(parser)
    parser.add_argument(
        "--overlap", metavar="TIME", type=duration, default=0.0, help="the old password stays valid, say 1h"
    )
    _add_place(parser)
    _add_yes(parser)


async def _passwd(options: argparse.Namespace) -> None:
    password = passwords.chosen(options, is_plan=not options.yes)
    async with administration(options) as admin:
        user = await admin.describe_user(options.user)
        old = f"stays valid for {span_text(int(options.overlap * 1000))}" if options.overlap else "is refused at once"
        output.note(f"change the password of {user.name} on {output.joined(user.brokers)}; the old one {old}")
        if not options.yes:
            output.note(NOT_CHANGED)
            return
        changed = await admin.alter_user(
            user.name,
            password=password.text,
            overlap_s=options.overlap,
            cluster=options.cluster,
            broker=options.broker,
        )
    output.record(options.output, {**_row(changed), **password.shown()})
    if resolve(options).access_key == user.name:
        output.note("it is the user of this command: change its key in your context or environment, too")


def _user_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user")
    _add_place(parser)


def _user_and_yes(parser: argparse.ArgumentParser) -> None:
    _user_arguments(parser)
    _add_yes(parser)


async def _enable(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        changed = await admin.alter_user(
            options.user, is_enabled=True, cluster=options.cluster, broker=options.broker
        )
    output.record(options.output, _row(changed))


async def _disable(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        user = await admin.describe_user(options.user)
        output.note(f"disable {user.name} on {output.joined(user.brokers)}: its requests are refused from then on")
        if not options.yes:
            output.note(NOT_CHANGED)
            return
        changed = await admin.alter_user(
            user.name, is_enabled=False, cluster=options.cluster, broker=options.broker
        )
    output.record(options.output, _row(changed))


async def _remove(options: argparse.Namespace) -> None:
    async with administration(options) as admin:
        access = await admin.describe_access(options.user)
        user = await admin.describe_user(options.user)
        entries = f"{len(access.entries)} entries of what it may do"
        output.note(f"remove {user.name} from {output.joined(user.brokers)}, with {entries}")
        if not options.yes:
            output.note(NOT_CHANGED)
            return
        brokers = await admin.delete_user(user.name, cluster=options.cluster, broker=options.broker)
    output.record(options.output, {"user": options.user, "removed_from": brokers})


VERBS: Final = (
    Verb("list", "users, and where brokers know them otherwise", _list, _list_arguments),
    Verb("create", "make a user on all brokers, or on those named", _create, _create_arguments,
         example="cometmq user create billing"),
    Verb("passwd", "change a password, with an overlap for programs that still use the old one", _passwd,
         _passwd_arguments, example="cometmq user passwd billing --overlap 1h --yes"),
    Verb("disable", "refuse a user's requests", _disable, _user_and_yes),
    Verb("enable", "take them again", _enable, _user_arguments),
    Verb("remove", "forget a user and what it may do", _remove, _user_and_yes),
)  # fmt: skip
