"""`cometmq tail TOPIC`: messages as they are, from where you say; changes no offsets, disturbs no consumer.

    cometmq tail orders                                   the last ten of every queue, then what comes
    cometmq tail orders --from earliest -n 5 -o json      five messages, one JSON object a line
    cometmq tail orders --from -1h --no-follow --filter "amount > 10"
    cometmq tail orders -f '%d %k %v\\n'

`--follow` is on unless `-n` or `--no-follow` says when to end.
"""

import argparse
import sys
from contextlib import aclosing
from typing import Final

from cometmq.cli.shared import messages, output
from cometmq.cli.shared.arguments import Verb, count, natural, run_verb
from cometmq.cli.shared.connect import administration
from cometmq.cli.shared.reading import Reader
from cometmq.client.messages import Message
from cometmq.errors import BrokerError, ConfigError

BODY_MAX: Final = 120


def main(argv: list[str]) -> int:
    return run_verb(TAIL, argv)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("--from", dest="place", default="-10", metavar="PLACE",
                        help="earliest, latest, -N, an offset, a moment or how long ago; default -10")  # fmt: skip
    parser.add_argument("-n", "--count", type=count, metavar="N", help="end after N messages")
    parser.add_argument("--follow", action=argparse.BooleanOptionalAction, help="wait for more at the end")
    parser.add_argument("--queue", type=natural, metavar="N", help="only this queue")
    parser.add_argument("--tag", metavar="A||B", help="only messages with one of these tags")
    parser.add_argument("--filter", metavar="SQL", help="only messages whose properties match, like \"amount > 10\"")
    parser.add_argument("-f", "--format", help=messages.FORMAT_HELP)
    parser.add_argument("--decode", choices=messages.DECODERS, default="auto")
    parser.add_argument("--unpack", action="store_true", help="bodies that the application compressed itself")


async def _tail(options: argparse.Namespace) -> None:
    if options.tag is not None and options.filter is not None:
        raise ConfigError("--tag and --filter: give one of them")
    expression, kind = (options.filter, "SQL92") if options.filter is not None else (options.tag or "*", "TAG")
    follow = options.follow if options.follow is not None else options.count is None
    async with administration(options) as admin:
        reader = Reader(admin, options.topic, expression=expression, kind=kind, follow=follow)
        shown = 0
        try:
            async with aclosing(reader.messages(options.place, options.queue)) as arrivals:
                async for message in arrivals:
                    if options.tag is not None and not _has_tag(message.tag, options.tag):
                        continue  # the broker compares hashes
                    _show(options, message)
                    shown += 1
                    if options.count is not None and shown >= options.count:
                        break
        except BrokerError as error:
            if kind == "SQL92" and error.code == 1:
                fix = "cometmq config set enablePropertyFilter=true --yes, or use --tag"
                raise ConfigError(f"--filter: {error.remark}; {fix}") from error
            raise
    if not shown:
        output.note("no message found")


def _has_tag(tag: str | None, wanted: str) -> bool:
    return "*" in wanted or tag in [one.strip() for one in wanted.split("||")]


def _show(options: argparse.Namespace, message: Message[bytes]) -> None:
    if options.format is not None:
        sys.stdout.write(messages.formatted(options.format, message, options.decode, options.unpack))
        sys.stdout.flush()
    elif options.output == "json":
        output.line(messages.fields(message, options.decode, options.unpack))
    elif options.output == "yaml":
        print("---\n" + output.yaml(messages.fields(message, options.decode, options.unpack)), flush=True)
    else:
        body = messages.formatted("%v", message, options.decode, options.unpack).replace("\n", "\\n")
        wide = options.output == "wide"
        head = messages.formatted("%d  %b %q %o  %i  " if wide else "%d  %q %o  ", message)
        what = " ".join(part for part in (message.tag and f"#{message.tag}", *message.keys) if part)
        print(f"{head}{what}{'  ' if what else ''}{body if wide else body[:BODY_MAX]}", flush=True)


TAIL: Final = Verb("tail", "Show messages of a topic, and those that come.", _tail, _arguments,
                   example="cometmq tail orders --from earliest -n 5 -o json")  # fmt: skip
