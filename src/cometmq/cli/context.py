"""`cometmq context`: names for clusters, so that nobody types addresses.

    cometmq context add prod --namesrv ns1:9876,ns2:9876      cometmq context use prod      cometmq context list

Where a command finds its cluster, first match: `--namesrv`; `--context`; COMETMQ_NAMESRV or NAMESRV_ADDR;
COMETMQ_CONTEXT; the context in use; 127.0.0.1:9876. Keys: `--access-key` and `--secret-key`; COMETMQ_ACCESS_KEY and
COMETMQ_SECRET_KEY; those of the context.

They are kept in `contexts.json` below COMETMQ_CONFIG, XDG_CONFIG_HOME/cometmq or ~/.config/cometmq, readable by its
owner only: a context may have keys.
"""

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from cometmq import statefile
from cometmq.cli import output
from cometmq.cli.arguments import Verb, run_noun
from cometmq.cli.failures import EXIT_FILE, EXIT_MISSING, Failure
from cometmq.errors import ConfigError

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
FILE: Final = "contexts.json"


@dataclass(frozen=True, slots=True)
class Context:
    namesrv: str
    access_key: str | None = None
    secret_key: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster of one command, and why it is this one."""

    namesrv: str
    access_key: str | None
    secret_key: str | None
    source: str


class Contexts:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.current: str | None = None
        self.known: dict[str, Context] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        try:
            data: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            self.known = {name: Context(**fields) for name, fields in data["contexts"].items()}
            self.current = data.get("current")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            text = f"{self.path} is no list of contexts ({error}): mend it, or delete it and add them again"
            raise Failure(EXIT_FILE, text) from None

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data = {"current": self.current, "contexts": {name: asdict(one) for name, one in self.known.items()}}
        before = os.umask(0o077)
        try:
            statefile.save(self.path, json.dumps(data, indent=2).encode())
        finally:
            os.umask(before)

    def find(self, name: str) -> Context:
        found = self.known.get(name)
        if found is None:
            known = output.joined(sorted(self.known)) or "none"
            fix = f"cometmq context add {name} --namesrv HOST:PORT"
            raise Failure(EXIT_MISSING, f"there is no context {name!r} (known: {known}): {fix}")
        return found


def contexts_file(environment: Mapping[str, str] = os.environ) -> Path:
    own = environment.get("COMETMQ_CONFIG")
    if own:
        return Path(own) / FILE
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "cometmq" / FILE


def resolve(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Target:
    """The cluster that the options and the environment of a command mean."""
    context, source = _context(options, environment)
    namesrv = context.namesrv if context is not None else DEFAULT_NAMESRV
    if options.context is None:
        for name in ("NAMESRV_ADDR", "COMETMQ_NAMESRV"):
            if environment.get(name, "").strip():
                namesrv, source = environment[name], name
    if options.namesrv is not None:
        namesrv, source = options.namesrv, "--namesrv"
    access_key = options.access_key or environment.get("COMETMQ_ACCESS_KEY") or (context and context.access_key)
    secret_key = options.secret_key or environment.get("COMETMQ_SECRET_KEY") or (context and context.secret_key)
    if bool(access_key) != bool(secret_key):
        raise ConfigError("an access key and a secret key belong together: give --access-key and --secret-key, or none")
    return Target(namesrv, access_key or None, secret_key or None, source)


def _context(options: argparse.Namespace, environment: Mapping[str, str]) -> tuple[Context | None, str]:
    if options.context is not None:
        return Contexts(contexts_file(environment)).find(options.context), f"context {options.context}"
    named = environment.get("COMETMQ_CONTEXT")
    if named:
        return Contexts(contexts_file(environment)).find(named), f"context {named}"
    if options.namesrv is not None:
        return None, "--namesrv"  # whoever names an address does not want another cluster's keys
    kept = Contexts(contexts_file(environment))
    if kept.current is not None:
        return kept.find(kept.current), f"context {kept.current}"
    return None, "default"


def main(argv: list[str]) -> int:
    return run_noun("context", "Names for clusters.", VERBS, argv)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--namesrv", metavar="HOST:PORT", required=True, help="several separated by ,")
    parser.add_argument("--access-key", metavar="KEY")
    parser.add_argument("--secret-key", metavar="KEY")
    parser.add_argument("--use", action="store_true", help="and use it from now on")


def _add(options: argparse.Namespace) -> None:
    if bool(options.access_key) != bool(options.secret_key):
        raise ConfigError("an access key and a secret key belong together: give both or none")
    for address in options.namesrv.replace(",", ";").split(";"):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 0xFFFF:
            raise ConfigError(f"name server {address!r} is not HOST:PORT; several are separated by ,")
    kept = Contexts(contexts_file())
    kept.known[options.name] = Context(options.namesrv, options.access_key, options.secret_key)
    if options.use or kept.current is None:
        kept.current = options.name
    kept.save()
    output.note(f"added context {options.name}" + (", in use now" if kept.current == options.name else ""))


def _use(options: argparse.Namespace) -> None:
    kept = Contexts(contexts_file())
    kept.find(options.name)
    kept.current = options.name
    kept.save()
    output.note(f"using context {options.name}")


def _remove(options: argparse.Namespace) -> None:
    kept = Contexts(contexts_file())
    kept.find(options.name)
    del kept.known[options.name]
    if kept.current == options.name:
        kept.current = None
    kept.save()
    output.note(f"removed context {options.name}")


def _list(options: argparse.Namespace) -> None:
    kept = Contexts(contexts_file())
    found = [
        {"name": name, "namesrv": one.namesrv, "current": name == kept.current, "keys": one.access_key is not None}
        for name, one in sorted(kept.known.items())
    ]
    output.rows(options.output, found, ("name", "namesrv", "current", "keys"))


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


VERBS: Final = (
    Verb("add", "remember a cluster by a name", _add, _add_arguments, cluster=False, output=False),
    Verb("use", "use it when nothing else is said", _use, _name, cluster=False, output=False),
    Verb("list", "all that are remembered", _list, cluster=False),
    Verb("remove", "forget one", _remove, _name, cluster=False, output=False),
)
