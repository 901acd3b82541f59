"""Entry of the `cometmq` command: finds the module of a sub command and hands it the arguments.

Each module in COMMANDS has `main(argv: list[str]) -> int`; its result is the exit code. Modules are
imported when called, so that `cometmq version` does not pay for what a server needs.
"""

import importlib
import sys
from collections.abc import Callable

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("cometmq.cli.up", "run a name server and a broker in one process"),
    "broker": ("cometmq.cli.broker", "run one or several brokers"),
    "nameserver": ("cometmq.cli.nameserver", "run a name server"),
    "store": ("cometmq.cli.store", "dump or check a store directory"),
    "version": ("cometmq.cli.version", "print version and kind of build"),
}

EXIT_USAGE = 2


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments:
        print(_overview(), file=sys.stderr)
        return EXIT_USAGE
    name, rest = arguments[0], arguments[1:]
    if name in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if name not in COMMANDS:
        print(f"cometmq: unknown command {name!r}; known: {', '.join(COMMANDS)}", file=sys.stderr)
        return EXIT_USAGE
    module = importlib.import_module(COMMANDS[name][0])
    run: Callable[[list[str]], int] = module.main
    return run(rest)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {purpose}" for name, (_, purpose) in COMMANDS.items()]
    return "\n".join(["usage: cometmq COMMAND [ARGUMENTS]", "", *lines])


if __name__ == "__main__":
    sys.exit(main())
