"""`cometmq completion SHELL`: a script that lets the shell ask this program what could come next.

    bash    eval "$(cometmq completion bash)"          in ~/.bashrc
    zsh     eval "$(cometmq completion zsh)"           in ~/.zshrc
    fish    cometmq completion fish | source           in ~/.config/fish/config.fish

The shell calls `cometmq complete -- WORDS`, the last word being the one under the cursor. Commands, verbs and options
come from the parsers; topics and groups from the cluster, if it answers within a second.
"""

import argparse
import asyncio
import importlib
import sys
from collections.abc import Iterable
from typing import Final

from cometmq.cli.shared.arguments import Parser, Verb, noun_parser, run_verb, verb_parser
from cometmq.errors import CometError

CLUSTER_LIMIT_S: Final = 1.0

SCRIPTS: Final = {
    "bash": """_cometmq() {
  local IFS=$'\\n'
  COMPREPLY=($(cometmq complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _cometmq cometmq""",
    "zsh": """_cometmq() {
  local -a found
  found=("${(@f)$(cometmq complete -- "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
  compadd -a found
}
compdef _cometmq cometmq""",
    "fish": """function __cometmq
  cometmq complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c cometmq -f -a '(__cometmq)'""",
}


def main(argv: list[str]) -> int:
    return run_verb(COMPLETION, argv)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS))


def _completion(options: argparse.Namespace) -> None:
    print(SCRIPTS[options.shell])


def complete(words: list[str]) -> list[str]:
    """What could stand in place of the last word, given those before it."""
    from cometmq.cli.main import COMMANDS

    *before, begun = words or [""]
    if not before:
        return _matching(COMMANDS, begun)
    if before[0] == "mqadmin" and len(before) == 1:
        from cometmq.cli.mqadmin import ALIASES

        return _matching(ALIASES, begun)
    parser = _parser_of(before[0])
    if parser is None:
        return []
    rest = before[1:]
    verbs = _verbs(parser)
    if verbs:
        if not rest:
            return _matching(verbs, begun)
        if rest[0] not in verbs:
            return []
        parser, rest = verbs[rest[0]], rest[1:]
    return _complete_argument(parser, rest, begun)


def _matching(known: Iterable[str], begun: str) -> list[str]:
    return sorted(name for name in known if name.startswith(begun))


def _parser_of(command: str) -> argparse.ArgumentParser | None:
    from cometmq.cli.main import COMMANDS

    if command not in COMMANDS:
        return None
    module = importlib.import_module(COMMANDS[command][0])
    if hasattr(module, "VERBS"):
        return noun_parser(command, "", module.VERBS)
    found = [value for value in vars(module).values() if isinstance(value, Verb)]
    return verb_parser(found[0]) if found else None


def _verbs(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _complete_argument(parser: argparse.ArgumentParser, before: list[str], begun: str) -> list[str]:
    options = {name: action for action in parser._actions for name in action.option_strings}
    waiting = options.get(before[-1]) if before else None
    if waiting is not None and waiting.nargs != 0:
        return _values(parser, waiting, before, begun)
    if begun.startswith("-"):
        return _matching(list(options), begun)
    positionals = [action for action in parser._actions if not action.option_strings]
    given = _positional_count(before, options)
    if given >= len(positionals) and not (positionals and positionals[-1].nargs in ("*", "+")):
        return _matching(list(options), begun) if not begun else []
    return _values(parser, positionals[min(given, len(positionals) - 1)], before, begun)


def _positional_count(words: list[str], options: dict[str, argparse.Action]) -> int:
    count = 0
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word in options:
            takes_value = options[word].nargs != 0
        elif not word.startswith("-"):
            count += 1
    return count


def _values(
    parser: argparse.ArgumentParser, action: argparse.Action, before: list[str], begun: str
) -> list[str]:
    if action.choices is not None:
        return _matching([str(choice) for choice in action.choices], begun)
    if action.dest in ("topic", "group", "target"):
        return _matching(_from_cluster("topics" if action.dest == "topic" else "groups", before), begun)
    if parser.prog == "cometmq pipeline run" and action.dest in ("name", "settings"):
        return _of_pipelines(action.dest, before, begun)
    if parser.prog in ("cometmq config set", "cometmq config get") and action.dest in ("changes", "keys"):
        return _matching(_setting_keys(is_assigned=action.dest == "changes"), begun)
    if action.dest == "context":
        from cometmq.cli.context import Contexts, contexts_file

        return _matching(list(Contexts(contexts_file()).known), begun)
    return []


def _of_pipelines(what: str, before: list[str], begun: str) -> list[str]:
    from cometmq.cli.pipeline import PIPELINES
    from cometmq.cli.shared.pipeline_settings import describe

    if what == "name":
        return _matching(list(PIPELINES), begun)
    name = next((word for word in before if word in PIPELINES), None)
    return _matching([f"{one.name}=" for one in describe(name).settings], begun) if name is not None else []


def _setting_keys(*, is_assigned: bool) -> list[str]:
    """A broker's settings; of those that are changed only what may change while it runs."""
    from cometmq.broker.config import BrokerConfig
    from cometmq.settings import Live, settings_of
    from cometmq.store.options import StoreOptions

    known = {**settings_of(BrokerConfig), **settings_of(StoreOptions)}
    if not is_assigned:
        return sorted(known)
    return sorted(f"{key}=" for key, (_, rule) in known.items() if rule.live is not Live.NEVER)


def _from_cluster(what: str, before: list[str]) -> list[str]:
    """Names of topics or groups; nothing if nobody answers soon."""
    from cometmq.cli.shared.connect import administration

    chosen = {name: before[place + 1] for place, name in enumerate(before[:-1]) if name in ("--namesrv", "--context")}
    options = argparse.Namespace(
        namesrv=chosen.get("--namesrv"),
        context=chosen.get("--context"),
        access_key=None,
        secret_key=None,
        timeout=CLUSTER_LIMIT_S,
    )

    async def ask() -> list[str]:
        async with administration(options) as admin:
            return await (admin.topics() if what == "topics" else admin.groups())

    try:
        return asyncio.run(ask())
    except (CometError, OSError):
        return []


def main_complete(argv: list[str]) -> int:
    words = argv[1:] if argv[:1] == ["--"] else argv
    sys.stdout.write("".join(f"{name}\n" for name in complete(words)))
    return 0


COMPLETION: Final = Verb("completion", "A script that completes commands, topics and groups.", _completion,
                         _arguments, cluster=False, output=False)  # fmt: skip
