"""What the commands' parsers share: nouns with verbs, where the cluster is, how to show the answer.

A noun has a tuple of `Verb`s for `run_noun`, a command without verbs one for `run_verb`. A verb is a function or a
coroutine of the parsed options; it returns the exit code, None meaning 0. What it raises becomes one line (`failures`).
"""

import argparse
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from cometmq.cli.shared import failures, output
from cometmq.errors import CometError

Outcome = int | None
Action = Callable[[argparse.Namespace], Outcome | Coroutine[Any, Any, Outcome]]
UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MOMENT_OPTIONS: Final = ("--from", "--to", "--at")
WATCH_S: Final = 2.0
CLEAR: Final = "\x1b[H\x1b[2J"
UNITS_BYTES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where the help is."""

    def error(self, message: str) -> NoReturn:
        self.exit(failures.EXIT_USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


@dataclass(frozen=True, slots=True)
class Verb:
    """`cluster`: it talks to servers, so it takes --namesrv and its kin. `output`: it takes -o. `watch`: it takes
    --watch, which does it again and again."""

    name: str
    purpose: str
    action: Action
    arguments: Callable[[argparse.ArgumentParser], object] | None = None
    cluster: bool = True
    output: bool = True
    example: str = ""
    watch: bool = False


def run_noun(noun: str, purpose: str, verbs: Sequence[Verb], argv: list[str]) -> int:
    actions = {verb.name: verb.action for verb in verbs}
    return _run(noun, noun_parser(noun, purpose, verbs), argv, lambda options: actions[options.verb])


def noun_parser(noun: str, purpose: str, verbs: Sequence[Verb]) -> Parser:
    parser = Parser(prog=f"cometmq {noun}", description=purpose, epilog=failures.EPILOG)
    choices = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    for verb in verbs:
        _fill(choices.add_parser(verb.name, help=verb.purpose, description=verb.purpose, epilog=_epilog(verb)), verb)
    return parser


def run_verb(verb: Verb, argv: list[str]) -> int:
    return _run(verb.name, verb_parser(verb), argv, lambda _: verb.action)


def verb_parser(verb: Verb) -> Parser:
    parser = Parser(prog=f"cometmq {verb.name}", description=verb.purpose, epilog=_epilog(verb))
    _fill(parser, verb)
    return parser


def _epilog(verb: Verb) -> str:
    return f"example: {verb.example} · {failures.EPILOG}" if verb.example else failures.EPILOG


def _fill(parser: argparse.ArgumentParser, verb: Verb) -> None:
    if verb.arguments is not None:
        verb.arguments(parser)
    if verb.output:
        parser.add_argument("-o", "--output", choices=output.FORMATS, default="table", help="default: table")
    if verb.watch:
        parser.add_argument(
            "--watch", metavar="TIME", nargs="?", const=WATCH_S, type=duration,
            help=f"again after this time, {WATCH_S:g}s unless given, until Ctrl-C; exit code of the last look",
        )  # fmt: skip
    if verb.cluster:
        add_cluster(parser)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cluster", "flag, then environment, then context, then 127.0.0.1:9876")
    group.add_argument("--namesrv", metavar="HOST:PORT", help="name servers, several separated by ,")
    group.add_argument("--context", metavar="NAME", help="a named cluster of cometmq context")
    add_keys(group)
    group.add_argument("--timeout", metavar="TIME", type=duration, default=5.0, help="of one request; default 5s")
    add_tls(parser)


def add_keys(group: argparse._ActionsContainer) -> None:
    group.add_argument("--access-key", metavar="KEY", help="the user that signs; @FILE reads it from a file")
    group.add_argument("--secret-key", metavar="@FILE", help="its password; @FILE keeps it out of the process list")


def add_tls(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("TLS", "flag, then environment (COMETMQ_TLS, COMETMQ_TLS_CA ...), then context")
    group.add_argument("--tls", action="store_true", default=None, help="encrypt; the servers must prove who they are")
    group.add_argument("--tls-ca", metavar="FILE", help="authorities to trust; default: those of the system")
    group.add_argument("--tls-name", metavar="NAME", help="the name in the servers' certificates, if not their address")
    group.add_argument("--tls-cert", metavar="FILE", help="our own certificate, for servers that ask for one")
    group.add_argument("--tls-key", metavar="FILE", help="its key")
    group.add_argument("--tls-insecure", action="store_true", default=None, help="take any certificate: for tests only")


def _run(
    name: str, parser: argparse.ArgumentParser, argv: list[str], choose: Callable[[argparse.Namespace], Action]
) -> int:
    try:
        options = parser.parse_args(joined_moments(argv))
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    shown = options.shown = f"{name} {options.verb}" if hasattr(options, "verb") else name
    try:
        code = _look(choose(options), options)
        if getattr(options, "watch", None) is not None:
            code = _watch(choose(options), options, code)
    except BrokenPipeError:
        raise
    except (CometError, OSError) as error:
        return failures.fail(shown, error)
    return code or 0


def _look(action: Action, options: argparse.Namespace) -> Outcome:
    outcome = action(options)
    return _finish(outcome) if isinstance(outcome, Coroutine) else outcome


def _watch(action: Action, options: argparse.Namespace, code: Outcome) -> Outcome:
    """On a terminal each picture is drawn over the one before."""
    import time

    try:
        while True:
            time.sleep(options.watch)
            if sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            try:
                code = _look(action, options)
            except (CometError, OSError) as error:  # a server that is away now may be back at the next look
                if isinstance(error, BrokenPipeError):
                    raise
                code = failures.fail(options.shown, error)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return code


def _finish(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    import asyncio  # not before it is needed: help does not

    return asyncio.run(work)


def joined_moments(argv: list[str]) -> list[str]:
    """`--from -1h` as `--from=-1h`: argparse would take the second for an option."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] in MOMENT_OPTIONS and word[:1] == "-" and word[1:2].isdigit():
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


# Types of arguments


def duration(text: str) -> float:
    """Seconds: 10, 250ms, 5s, 2m, 1h, 3d."""
    for unit in sorted(UNITS_S, key=len, reverse=True):
        if text.endswith(unit):
            return _positive(text, text.removesuffix(unit)) * UNITS_S[unit]
    return _positive(text, text)


def size(text: str) -> int:
    """Bytes: 1024, 4k, 16m, 1g."""
    unit = UNITS_BYTES.get(text[-1:].lower())
    return int(_positive(text, text[:-1]) * unit) if unit is not None else int(_positive(text, text))


def _positive(text: str, digits: str) -> float:
    try:
        value = float(digits)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number with a unit, like 5s or 4k") from None
    if not 0 <= value < 1e15:
        raise argparse.ArgumentTypeError(f"{text!r} is below zero or too large")
    return value


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 2**31 - 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 2**31 - 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return key.strip(), value
