"""`cometmq console`: the cluster in the browser; a process of its own, which only uses the client.

    cometmq console --namesrv 127.0.0.1:9876              http://127.0.0.1:8099/
    cometmq console --host 0.0.0.0 --auth users:users.json
    cometmq console user add ada --role admin --file users.json

When it serves, one line goes to stdout: `console http://127.0.0.1:8099/`; with `--auth token` the link that logs in.
What was changed is in STATE/audit.jsonl, which dead letters were sent again in STATE/ledger.
"""

import argparse
import asyncio
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.context import resolve
from cometmq.cli.shared import failures, serving
from cometmq.cli.shared.arguments import Parser, add_cluster
from cometmq.cli.shared.connect import _tls
from cometmq.cli.shared.passwords import add_password, generated
from cometmq.errors import CometError
from cometmq.secret_text import read_secret

if TYPE_CHECKING:
    from cometmq.console.options import Options

PORT: Final = 8099
HOW_TO_GET: Final = "the console needs Starlette and uvicorn: pip install 'cometmq[console]'"


def main(argv: list[str]) -> int:
    is_user = argv[:1] == ["user"]
    try:
        options = _user_parser().parse_args(argv[1:]) if is_user else _parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    if not is_installed():
        print(f"cometmq console: {HOW_TO_GET}", file=sys.stderr)
        return failures.EXIT_USAGE
    try:
        return _user(options) if is_user else _serve(options)
    except (CometError, OSError) as error:
        return failures.fail("console user" if is_user else "console", error)


def is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("starlette") is not None and find_spec("uvicorn") is not None


def _parser() -> Parser:
    parser = Parser(prog="cometmq console", description="Show and steer a cluster in the browser.",
                    epilog="cometmq console user --help: who may log in")  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; any other needs --auth")
    parser.add_argument("--port", type=serving.port, default=PORT, help=f"0 is any; default {PORT}")
    parser.add_argument("--auth", default="none", metavar="HOW", help="none, token, users:FILE or header:NAME")
    parser.add_argument("--trust", action="append", default=[], metavar="NETWORK", help="of the proxy, for header:NAME")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a name that it is called by")
    parser.add_argument("--read-only", action="store_true", help="no route that changes anything exists")
    parser.add_argument("--no-bodies", action="store_true", help="show nobody what is in messages")
    parser.add_argument("--no-export", action="store_true", help="no downloads")
    parser.add_argument(
        "--mask", action="append", default=[], metavar="FIELDS", help="json.card,prop.token: hide values"
    )
    parser.add_argument("--schemas", type=Path, metavar="DIR", help="TOPIC.avsc, or TOPIC.desc with TOPIC.message")
    parser.add_argument("--history", type=Path, metavar="DIR", help="keep the charts' values; default: in memory")
    parser.add_argument("--state", type=Path, metavar="DIR", help="audit log and ledger; default: below XDG_STATE_HOME")
    parser.add_argument("--pipelines", type=Path, metavar="DIR", help="where Spark pipelines report")
    parser.add_argument("--lake", type=Path, metavar="DIR", help="where archives are")
    parser.add_argument("--log-level", choices=serving.LOG_LEVELS, default="warning")
    parser.add_argument("--end-with-stdin", action="store_true", help=argparse.SUPPRESS)  # for cometmq up
    add_cluster(parser)
    return parser


def _user_parser() -> Parser:
    parser = Parser(prog="cometmq console user", description="Who may log in to a console with --auth users:FILE.")
    choices = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    add = choices.add_parser("add", help="add a user, or give one another role and password")
    add.add_argument("name")
    add.add_argument("--role", default="viewer", choices=("viewer", "operator", "admin"))
    add_password(add)
    remove = choices.add_parser("remove", help="take a user out")
    remove.add_argument("name")
    shown = choices.add_parser("list", help="names and roles")
    for each in (add, remove, shown):
        each.add_argument("--file", type=Path, required=True, metavar="FILE", help="the users file")
    return parser


def _user(options: argparse.Namespace) -> int:
    from cometmq.console.login import Users

    users = Users(options.file)
    if options.verb == "list":
        for name, role in users.names().items():
            print(f"{name}\t{role}")
        return 0
    if options.verb == "remove":
        users.remove(options.name)
        return 0
    password = read_secret("--password", options.password) if options.password else generated()
    users.put(options.name, options.role, password)
    if options.save is not None:
        handle = os.open(options.save, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(password + "\n")
    elif not options.password:
        print(f"password of {options.name}, shown this once: {password}")
    return 0


def state_directory(namesrv: str, given: Path | None) -> Path:
    if given is not None:
        return given
    base = os.environ.get("XDG_STATE_HOME")
    name = hashlib.sha256(namesrv.encode()).hexdigest()[:12]
    return (Path(base) if base else Path.home() / ".local" / "state") / "cometmq" / "console" / name


def _options(options: argparse.Namespace) -> "Options":
    from cometmq.console.options import Options

    target = resolve(options)
    state = state_directory(target.namesrv, options.state)
    return Options(
        namesrv=target.namesrv.replace(",", ";"),
        host=options.host,
        port=options.port,
        auth=options.auth,
        trust=tuple(options.trust),
        hosts=tuple(options.allow_host),
        read_only=options.read_only,
        bodies=not options.no_bodies,
        export=not options.no_export,
        masks=tuple(mask for text in options.mask for mask in text.split(",") if mask),
        schemas=options.schemas,
        history=options.history,
        audit=state / "audit.jsonl",
        ledger=state / "ledger",
        lake=options.lake,
        pipelines=options.pipelines,
        timeout_s=min(options.timeout, 30.0),
        access_key=target.access_key,
        secret_key=target.secret_key,
        tls=_tls(target.tls),
    )


def _serve(options: argparse.Namespace) -> int:
    serving.set_up_logging(options.log_level)
    given = _options(options)
    from cometmq.console.serving import serve

    async def told(address: str) -> None:
        print(f"console {address}", flush=True)

    async def run() -> None:
        watch: asyncio.Task[Any] | None = None
        stopping = serving.stop_signal()
        if options.end_with_stdin:
            watch = asyncio.create_task(_until_stdin_ends(stopping))
        await serve(given, told, stopping)
        if watch is not None:
            watch.cancel()

    asyncio.run(run())
    return 0


async def _until_stdin_ends(stopping: asyncio.Event) -> None:
    """The parent holds the other end: when it is gone, so are we."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    stopping.set()
