"""Entry of the `cometmq` command: finds the module of a sub command and hands it the arguments.

Each module in COMMANDS has `main(argv: list[str]) -> int`; its result is the exit code (`failures` lists them). Modules
are imported when called, so that `cometmq --help` and `cometmq version` do not pay for what a server needs.
"""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Final

# Group -> command -> (module, purpose).
GROUPS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "servers": {
        "up": ("cometmq.cli.up", "run a name server and a broker in one process"),
        "broker": ("cometmq.cli.broker", "run one or several brokers"),
        "nameserver": ("cometmq.cli.nameserver", "run a name server"),
        "proxy": ("cometmq.cli.proxy", "serve gRPC clients for a cluster of brokers"),
        "console": ("cometmq.cli.console", "the cluster in the browser"),
    },
    "messages": {
        "send": ("cometmq.cli.send", "send messages, from the command line or a pipe"),
        "tail": ("cometmq.cli.tail", "show messages of a topic, and those that come"),
        "message": ("cometmq.cli.message", "single messages: get, find, trace, resend"),
        "dlq": ("cometmq.cli.dlq", "dead letters: list, replay"),
        "export": ("cometmq.cli.export", "write messages of a topic to a file"),
        "import": ("cometmq.cli.import_", "send the messages of a file"),
    },
    "programs": {
        "run": ("cometmq.cli.run", "run a push consumer of a module, in one process or several"),
    },
    "cluster": {
        "topic": ("cometmq.cli.topic", "list, create, describe, alter, delete"),
        "group": ("cometmq.cli.group", "consumer groups: list, describe, lag, seek, clone, create, alter, delete"),
        "cluster": ("cometmq.cli.cluster", "brokers: list, health, top"),
        "health": ("cometmq.cli.health", "ask a server of this host whether it is alive, or ready"),
        "config": ("cometmq.cli.config", "settings of running servers: get, set"),
        "user": ("cometmq.cli.user", "who may sign requests: list, create, passwd, disable, enable, remove"),
        "acl": ("cometmq.cli.acl", "what users may do: list, grant, revoke, explain, migrate"),
        "rtt": ("cometmq.cli.rtt", "how long a request takes to each server"),
        "bench": ("cometmq.cli.bench", "load from the tool itself: send, consume, latency"),
        "context": ("cometmq.cli.context", "names for clusters: add, use, list"),
    },
    "tools": {
        "store": ("cometmq.cli.store", "look into a store directory: dump, check, stats, rebuild"),
        "lake": ("cometmq.cli.lake", "topics that are Iceberg tables: create, run, status, schema, compact, expire"),
        "pipeline": ("cometmq.cli.pipeline", "Spark jobs over topics, stores and archives: list, init, run"),
        "tls": ("cometmq.cli.tls", "certificates of one's own: init, issue"),
        "doctor": ("cometmq.cli.doctor", "check this machine: ports, disk, settings, clock"),
        "mqadmin": ("cometmq.cli.mqadmin", "RocketMQ's admin commands by their own names"),
        "completion": ("cometmq.cli.completion", "completion for bash, zsh and fish"),
        "explain": ("cometmq.cli.explain", "what a response code means and what to do"),
        "version": ("cometmq.cli.version", "print version and kind of build"),
    },
}
COMMANDS: Final = {name: entry for group in GROUPS.values() for name, entry in group.items()}

EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments:
        print(_overview(), file=sys.stderr)
        return EXIT_USAGE
    name, rest = arguments[0], arguments[1:]
    if name in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if name == "--version":
        name = "version"
    if name == "complete":  # asked by the shell, not by people
        from cometmq.cli.completion import main_complete

        return main_complete(rest)
    if name not in COMMANDS:
        print(f"cometmq: unknown command {name!r}; {_suggestion(name)}", file=sys.stderr)
        return EXIT_USAGE
    module = importlib.import_module(COMMANDS[name][0])
    run: Callable[[list[str]], int] = module.main
    try:
        code = run(rest)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep the interpreter from complaining at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, 1)
    return f"did you mean {close[0]}? cometmq --help lists all" if close else f"known: {', '.join(COMMANDS)}"


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["usage: cometmq COMMAND [ARGUMENTS]      cometmq COMMAND --help says more", ""]
    for group, commands in GROUPS.items():
        lines.append(group)
        lines += [f"  {name:<{width}}  {purpose}" for name, (_, purpose) in commands.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
