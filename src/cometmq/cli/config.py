"""`cometmq config`: settings of running brokers and name servers.

    cometmq config get --broker broker-a flushDiskType fileReservedTime
    cometmq config set --broker broker-a fileReservedTime=48 --yes
    cometmq config get --nameserver

What may change while a broker runs is decided by the broker; docs/operate.md lists it. In its settings file only the
lines of changed keys become other ones.
"""

import argparse
from typing import Any, Final

from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, pair, run_noun
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.failures import EXIT_MISSING, EXIT_NO, Failure

FILE_KEY: Final = "brokerConfigPath"


def main(argv: list[str]) -> int:
    return run_noun("config", "Settings of running servers: get, set.", VERBS, argv)


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", metavar="NAME", help="its name, or host:port; without it, all masters")
    parser.add_argument("--nameserver", action="store_true", help="of the name servers, not of brokers")


def _get_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("keys", nargs="*", metavar="KEY", help="RocketMQ's names; all without it")
    _where(parser)


async def _get(options: argparse.Namespace) -> None:
    async with administration(options, brokers=not options.nameserver) as admin:
        if options.nameserver:
            servers = await admin.name_server_config()
        else:
            masters = await admin.masters(broker=options.broker)
            servers = {one.name: await admin.broker_config(one.address) for one in masters}
    found: list[dict[str, Any]] = []
    for server, settings in servers.items():
        missing = [key for key in options.keys if key not in settings]
        if missing:
            text = f"{server} has no setting {output.joined(missing)}: cometmq config get lists all"
            raise Failure(EXIT_MISSING, text)
        chosen = options.keys or settings
        found += [{"server": server, "key": key, "value": settings[key]} for key in chosen]
    output.rows(options.output, found, ("server", "key", "value"))


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("changes", nargs="+", type=pair, metavar="KEY=VALUE")
    _where(parser)
    parser.add_argument("--yes", action="store_true", help="do it; without this only the plan is shown")


async def _set(options: argparse.Namespace) -> int:
    wanted: dict[str, str] = dict(options.changes)
    async with administration(options, brokers=not options.nameserver) as admin:
        if options.nameserver:
            before = await admin.name_server_config()
        else:
            masters = await admin.masters(broker=options.broker)
            before = {one.address: await admin.broker_config(one.address) for one in masters}
        plan = [
            {"server": server, "key": key, "before": settings.get(key), "after": value}
            for server, settings in before.items()
            for key, value in wanted.items()
        ]
        output.rows(options.output, plan, ("server", "key", "before", "after"))
        if not options.yes:
            output.note("nothing was changed: add --yes to do it")
            return 0
        if options.nameserver:
            await admin.set_name_server_config(wanted)
            after = await admin.name_server_config()
        else:
            for address in before:
                await admin.set_broker_config(wanted, broker=address)
            after = {address: await admin.broker_config(address) for address in before}
    wrong = [f"{server} {key}" for server, now in after.items() for key in wanted if now.get(key) != wanted[key]]
    if wrong:
        output.note(f"not as wanted after the change: {output.joined(wrong)}")
        return EXIT_NO
    output.note(f"changed on {len(after)} servers; read back as planned")
    for server, now in after.items() if not options.nameserver else ():
        if now.get(FILE_KEY):
            output.note(f"{server} keeps it in {now[FILE_KEY]}; what it was before is beside it, with its date")
        else:
            output.note(f"{server} was started without a settings file (-c FILE): the change is only in its memory")
    return 0


VERBS: Final = (
    Verb("get", "settings with their values", _get, _get_arguments),
    Verb("set", "change settings of running servers", _set, _set_arguments,
         example="cometmq config set --broker broker-a fileReservedTime=48 --yes"),
)  # fmt: skip
