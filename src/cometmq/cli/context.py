"""`cometmq context`: names for clusters, so that nobody types addresses.

    cometmq context add prod --namesrv ns1:9876,ns2:9876      cometmq context use prod      cometmq context list

Where a command finds its cluster, first match: `--namesrv`; `--context`; COMETMQ_NAMESRV or NAMESRV_ADDR;
COMETMQ_CONTEXT; the context in use; 127.0.0.1:9876. Keys: `--access-key` and `--secret-key`; COMETMQ_ACCESS_KEY and
COMETMQ_SECRET_KEY; those of the context. Each may be `@FILE`, a file whose first line is the key. TLS: `--tls` and its
kin; COMETMQ_TLS=true, COMETMQ_TLS_CA, COMETMQ_TLS_NAME, COMETMQ_TLS_CERT, COMETMQ_TLS_KEY, COMETMQ_TLS_INSECURE=true;
those of the context. Any of them switches TLS on.

They are kept in `contexts.json` below COMETMQ_CONFIG, XDG_CONFIG_HOME/cometmq or ~/.config/cometmq, readable by its
owner only: a context may have keys.
"""

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cometmq import state_file
from cometmq.cli.shared import output
from cometmq.cli.shared.arguments import Verb, add_keys, add_tls, run_noun
from cometmq.cli.shared.failures import EXIT_FILE, EXIT_MISSING, Failure
from cometmq.errors import ConfigError
from cometmq.secret_text import FILE_MARK, read_secret

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
FILE: Final = "contexts.json"
TOOLS_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Tls:
    """How servers prove who they are, and what they are shown of us."""

    ca: str | None = None
    name: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    namesrv: str
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster of one command, and why it is this one."""

    namesrv: str
    access_key: str | None
    secret_key: str | None = field(repr=False)
    source: str
    tls: Tls | None = None


class Contexts:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.current: str | None = None
        self.known: dict[str, Context] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        state_file.close_to_others(self.path)
        try:
            data: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            self.known = {name: _context_of(entry) for name, entry in data["contexts"].items()}
            self.current = data.get("current")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            text = f"{self.path} is no list of contexts ({error}): mend it, or delete it and add them again"
            raise Failure(EXIT_FILE, text) from None

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data = {"current": self.current, "contexts": {name: asdict(one) for name, one in self.known.items()}}
        state_file.save(self.path, json.dumps(data, indent=2).encode(), state_file.PRIVATE_FILES)

    def find(self, name: str) -> Context:
        found = self.known.get(name)
        if found is None:
            known = output.joined(sorted(self.known)) or "none"
            fix = f"cometmq context add {name} --namesrv HOST:PORT"
            raise Failure(EXIT_MISSING, f"there is no context {name!r} (known: {known}): {fix}")
        return found


def _context_of(entry: dict[str, Any]) -> Context:
    tls = entry.pop("tls", None)
    return Context(**entry, tls=Tls(**tls) if tls is not None else None)


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
    access_key = _key("access_key", options, environment, context)
    secret_key = _key("secret_key", options, environment, context)
    if bool(access_key) != bool(secret_key):
        raise ConfigError("an access key and a secret key belong together: give --access-key and --secret-key, or none")
    tls = tls_of(options, environment, context.tls if context is not None else None)
    return Target(namesrv, access_key, secret_key, source, tls)


def _key(
    name: str, options: argparse.Namespace, environment: Mapping[str, str], context: Context | None
) -> str | None:
    flag, variable = f"--{name.replace('_', '-')}", f"COMETMQ_{name.upper()}"
    kept = getattr(context, name) if context is not None else None
    for place, text in ((flag, getattr(options, name)), (variable, environment.get(variable)), ("the context", kept)):
        if text:
            return read_secret(place, text)
    return None


def tls_of(options: argparse.Namespace, environment: Mapping[str, str], kept: Tls | None = None) -> Tls | None:
    """None: plain connections. Each setting by itself: flag, then environment, then what is kept."""

    def text(name: str) -> str | None:
        return getattr(options, f"tls_{name}", None) or environment.get(f"COMETMQ_TLS_{name.upper()}") or None

    given = {name: text(name) for name in ("ca", "name", "cert", "key")}
    insecure = getattr(options, "tls_insecure", None) or _is_true(environment, "COMETMQ_TLS_INSECURE")
    is_wanted = getattr(options, "tls", None) or _is_true(environment, "COMETMQ_TLS")
    if not (is_wanted or insecure or any(given.values()) or kept is not None):
        return None
    kept = kept if kept is not None else Tls()
    chosen = {name: given[name] or getattr(kept, name) for name in given}
    found = Tls(**chosen, insecure=bool(insecure or kept.insecure))
    if bool(found.cert) != bool(found.key):
        raise ConfigError("a certificate and its key belong together: give --tls-cert and --tls-key, or none")
    if found.insecure and found.name:
        raise ConfigError("--tls-insecure compares no name: leave out --tls-name, or --tls-insecure")
    return found


def _is_true(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").strip().lower()
    if text not in ("", "true", "false"):
        raise ConfigError(f"{name} is {text!r}: it is true or false")
    return text == "true"


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
    add_keys(parser)
    parser.add_argument("--from-tools-yml", metavar="FILE", help="keys as RocketMQ's mqadmin has them, conf/tools.yml")
    add_tls(parser)
    parser.add_argument("--use", action="store_true", help="and use it from now on")


def _add(options: argparse.Namespace) -> None:
    access_key, secret_key = options.access_key, options.secret_key
    if options.from_tools_yml is not None:
        if access_key or secret_key:
            raise ConfigError("--from-tools-yml has the keys: leave out --access-key and --secret-key")
        access_key, secret_key = tools_keys(Path(options.from_tools_yml))
    if bool(access_key) != bool(secret_key):
        raise ConfigError("an access key and a secret key belong together: give both or none")
    for address in options.namesrv.replace(",", ";").split(";"):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 0xFFFF:
            raise ConfigError(f"name server {address!r} is not HOST:PORT; several are separated by ,")
    kept = Contexts(contexts_file())
    tls = tls_of(options, {})
    kept.known[options.name] = Context(
        options.namesrv, _findable(access_key), _findable(secret_key), _findable_files(tls) if tls is not None else None
    )
    if options.use or kept.current is None:
        kept.current = options.name
    kept.save()
    output.note(f"added context {options.name}" + (", in use now" if kept.current == options.name else ""))


def _findable(key: str | None) -> str | None:
    """`@FILE` from wherever the context will be used."""
    if key is None or not key.startswith(FILE_MARK):
        return key
    return FILE_MARK + os.path.abspath(os.path.expanduser(key.removeprefix(FILE_MARK)))


def _findable_files(tls: Tls) -> Tls:
    files = {name: getattr(tls, name) for name in ("ca", "cert", "key")}
    return replace(tls, **{name: os.path.abspath(os.path.expanduser(file)) for name, file in files.items() if file})


def tools_keys(path: Path) -> tuple[str, str]:
    """The keys of RocketMQ's tool: `accessKey` and `secretKey` at the top of a YAML file."""
    import yaml

    try:
        with path.open("rb") as file:
            content = file.read(TOOLS_BYTES_MAX + 1)
        # BaseLoader makes texts only: a secret 12345678 stays one.
        tree = yaml.load(content, Loader=yaml.BaseLoader) if len(content) <= TOOLS_BYTES_MAX else None  # noqa: S506
    except OSError as error:
        raise ConfigError(f"--from-tools-yml: cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ConfigError(f"--from-tools-yml: {path} is not YAML") from None
    found = [str(tree.get(key) or "").strip() if isinstance(tree, dict) else "" for key in ("accessKey", "secretKey")]
    if not all(found):
        raise ConfigError(f"--from-tools-yml: {path} has no accessKey and secretKey")
    return found[0], found[1]


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
        {
            "name": name,
            "namesrv": one.namesrv,
            "current": name == kept.current,
            "keys": one.access_key is not None,
            "tls": one.tls is not None,
        }
        for name, one in sorted(kept.known.items())
    ]
    output.rows(options.output, found, ("name", "namesrv", "current", "keys", "tls"))


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


VERBS: Final = (
    Verb("add", "remember a cluster by a name", _add, _add_arguments, cluster=False, output=False),
    Verb("use", "use it when nothing else is said", _use, _name, cluster=False, output=False),
    Verb("list", "all that are remembered", _list, cluster=False),
    Verb("remove", "forget one", _remove, _name, cluster=False, output=False),
)
