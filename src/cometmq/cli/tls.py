"""`cometmq tls`: certificates for a cluster that has no authority of its own.

    cometmq tls init certs --host mq.example.com --host 10.0.0.5     an authority, a server's pair, a client's pair
    cometmq tls issue certs broker-2 --host 10.0.0.6                 one more server's pair
    cometmq tls issue certs shop                                     one more client's pair: it has no host

What it writes; keys are readable by their owner only, and nothing is ever written over:

    ca.pem        what clients and servers trust; give it to everybody
    ca.key        signs certificates: keep it away from servers
    server.pem, server.key, client.pem, client.key
    server.conf   settings of name servers and brokers that use them

Servers look at their files twice a second and take a new pair for new connections.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cometmq.cli.shared import certificates, output
from cometmq.cli.shared.arguments import Verb, count, run_noun
from cometmq.cli.shared.certificates import Pair
from cometmq.cli.shared.failures import EXIT_FILE, Failure
from cometmq.state_file import PRIVATE_MODE
from cometmq.wire import java_properties

PUBLIC_MODE: Final = 0o644
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
DAYS: Final = 825
AUTHORITY: Final = "ca"
PEM_BYTES_MAX: Final = 65_536
CONF: Final = "server.conf"


def main(argv: list[str]) -> int:
    return run_noun("tls", "Certificates of one's own: init, issue.", VERBS, argv)


def _init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("--name", default="CometMQ authority", help="of the authority, shown in its certificates")
    _add_pair(parser, f"by which servers are dialled; default: {', '.join(LOOPBACK)}")


def _add_pair(parser: argparse.ArgumentParser, hosts: str) -> None:
    parser.add_argument("--host", dest="hosts", action="append", default=[], metavar="NAME|IP",
                        help=f"{hosts}; may be given again")  # fmt: skip
    parser.add_argument("--days", type=count, default=DAYS, help=f"that certificates are good; default {DAYS}")


def _init(options: argparse.Namespace) -> None:
    certificates.need_cryptography()
    hosts = options.hosts or list(LOOPBACK)
    authority = certificates.make_authority(options.name)
    pairs = {
        AUTHORITY: authority,
        "server": certificates.make_server(authority, "server", hosts, options.days),
        "client": certificates.make_client(authority, "client", options.days),
    }
    directory = options.directory.absolute()
    settings = _server_settings(directory, "server")
    conf = directory / CONF
    if conf.exists():
        raise Failure(EXIT_FILE, f"{conf} is there already: take another directory")
    _write(directory, pairs)
    _write_file(conf, java_properties.write(settings).encode(), PUBLIC_MODE)
    if options.output in ("json", "yaml"):
        use = {"server": settings, "client": _client_options(directory, "client")}
        output.record(options.output, {"directory": str(directory), "files": _names(pairs), "hosts": hosts, **use})
        return
    output.note(f"wrote {output.joined([*_names(pairs), CONF])} to {directory}; servers are {output.joined(hosts)}")
    output.note(f"\nsettings of name servers and brokers, in {conf}; permissive until all clients use TLS:")
    for key, value in settings.items():
        print(f"{key}={value}")
    output.note(f"\ntls.server.need.client.auth=require also asks clients for a certificate of {directory / 'ca.pem'}:")
    output.note(" ".join(f"{name} {value}" for name, value in _client_options(directory, "client").items()))
    output.note(f"\nkeep {directory / 'ca.key'} away from servers: who has it can pose as any of them")


def _issue_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", type=Path, help="what tls init has made")
    parser.add_argument("name", help="of the pair: NAME.pem and NAME.key")
    _add_pair(parser, "of a server; without it the pair is a client's")


def _issue(options: argparse.Namespace) -> None:
    certificates.need_cryptography()
    name, directory = options.name, options.directory.absolute()
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or not name.isascii() or name[0] == ".":
        raise Failure(EXIT_FILE, f"{name[:80]!r} does not make a file name: letters, digits, - _ . only")
    authority = Pair(_read(directory / f"{AUTHORITY}.pem"), _read(directory / f"{AUTHORITY}.key"))
    if options.hosts:
        made = certificates.make_server(authority, name, options.hosts, options.days)
        use: Mapping[str, str] = _server_settings(directory, name)
    else:
        made = certificates.make_client(authority, name, options.days)
        use = _client_options(directory, name)
    _write(directory, {name: made})
    output.record(options.output, {"files": _names({name: made}), "hosts": options.hosts, **use})


def _server_settings(directory: Path, name: str) -> dict[str, str]:
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(directory / f"{name}.pem"),
        "tls.server.keyPath": str(directory / f"{name}.key"),
        "tls.server.trustCertPath": str(directory / f"{AUTHORITY}.pem"),
        "tls.enable": "true",
        "tls.client.trustCertPath": str(directory / f"{AUTHORITY}.pem"),
        "tls.client.certPath": str(directory / f"{name}.pem"),
        "tls.client.keyPath": str(directory / f"{name}.key"),
    }


def _client_options(directory: Path, name: str) -> dict[str, str]:
    return {
        "--tls-ca": str(directory / f"{AUTHORITY}.pem"),
        "--tls-cert": str(directory / f"{name}.pem"),
        "--tls-key": str(directory / f"{name}.key"),
    }


def _names(pairs: Mapping[str, Pair]) -> list[str]:
    return [f"{name}.{kind}" for name in pairs for kind in ("pem", "key")]


def _write(directory: Path, pairs: Mapping[str, Pair]) -> None:
    """All or nothing where a file is there already."""
    there = [name for name in _names(pairs) if (directory / name).exists()]
    if there:
        raise Failure(EXIT_FILE, f"{directory} has {output.joined(there)} already: take another directory or name")
    directory.mkdir(parents=True, exist_ok=True)
    for name, pair in pairs.items():
        _write_file(directory / f"{name}.key", pair.key, PRIVATE_MODE)
        _write_file(directory / f"{name}.pem", pair.certificate, PUBLIC_MODE)


def _write_file(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(PEM_BYTES_MAX)
    except OSError as error:
        fix = f"cometmq tls init {path.parent} makes an authority"
        raise Failure(EXIT_FILE, f"{path}: {error.strerror or error}; {fix}") from None


VERBS: Final[Sequence[Verb]] = (
    Verb("init", "an authority, a pair for servers and one for clients", _init, _init_arguments, cluster=False,
         example="cometmq tls init certs --host mq.example.com --host 10.0.0.5"),
    Verb("issue", "one more pair: a server's with --host, a client's without", _issue, _issue_arguments, cluster=False,
         example="cometmq tls issue certs broker-2 --host 10.0.0.6"),
)  # fmt: skip
