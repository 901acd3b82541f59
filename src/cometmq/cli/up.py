"""`cometmq up`: a name server and a broker in one process, the shortest way to a message queue.

When both serve, one line goes to stdout:

    ready namesrv=127.0.0.1:9876 broker=127.0.0.1:10911 grpc=127.0.0.1:8081

The last is where RocketMQ's 5.x clients connect; `--set grpcServerPort=-1` serves none. Then, where the extra
`cometmq[console]` is installed, a second line has the address of the console, a process of its own:

    console http://127.0.0.1:8099/

With `--secure` the broker checks who sends a request and what it may do. The first start makes a Super user `admin` and
shows its password once; later starts keep the users that there are. TLS settings are for both servers.

With `--set-of 3` there are three brokers that elect their master, and an etcd of one node: see set_of.py.

Exit codes: see `serving`.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.cli.console import HOW_TO_GET as CONSOLE_HOW_TO_GET
from cometmq.cli.console import PORT as CONSOLE_PORT
from cometmq.cli.console import is_installed as console_is_installed
from cometmq.cli.context import DEFAULT_NAMESRV
from cometmq.cli.shared import serving
from cometmq.cli.shared.passwords import generated
from cometmq.errors import CometError

if TYPE_CHECKING:
    from cometmq.broker.server import Broker
    from cometmq.cli.shared.console_process import ConsoleProcess
    from cometmq.net.tls import ClientTls

FIRST_USER: Final = "admin"
BROKER_PORT: Final = 10911
GRPC_PORT: Final = 8081


@dataclass(frozen=True, slots=True)
class Access:
    """What `--secure` adds to the settings, and the user that was made just now, if one was."""

    settings: dict[str, str] = field(default_factory=dict, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def keys(self) -> tuple[str, str] | tuple[()]:
        return (FIRST_USER, self.password) if self.password is not None else ()


NO_ACCESS: Final = Access()


def main(argv: list[str]) -> int:
    try:
        options = _parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    serving.set_up_logging(options.log_level)
    from cometmq.net.loop import run

    if options.set_of:
        from cometmq.cli import set_of

        return run(set_of.serve(options))
    return run(_serve(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cometmq up",
        description="Run a name server and a broker in one process.",
        epilog="exit codes: 0 stopped, 2 wrong arguments, 3 bad settings or files, 4 address taken, 5 disk failed",
    )
    parser.add_argument("--data", metavar="DIR", type=os.path.abspath, default="data", help="where all is kept")
    parser.add_argument("--host", metavar="HOST", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--namesrv-port", metavar="PORT", type=serving.port, default=9876, help="0 is any")
    parser.add_argument("--broker-port", metavar="PORT", type=serving.port, default=BROKER_PORT, help="0 is any")
    parser.add_argument(
        "--grpc-port",
        metavar="PORT",
        type=serving.port,
        help="for 5.x clients: default 8081, or any if --broker-port is not the usual one",
    )
    parser.add_argument("-c", "--config", metavar="FILE", help="settings of the broker, as RocketMQ's broker.conf")
    parser.add_argument("--set", metavar="KEY=VALUE", type=serving.key_and_value, action="append", default=[])
    parser.add_argument(
        "--set-of", metavar="N", type=int, choices=(3, 5), help="3 or 5 brokers that elect their master, with an etcd"
    )
    parser.add_argument("--secure", action="store_true", help="ask who is there; the first start makes a user admin")
    parser.add_argument("--hello", action="store_true", help="send a first message and say what to try next")
    parser.add_argument("--no-console", action="store_true", help="serve no pages")
    parser.add_argument(
        "--console-port",
        metavar="PORT",
        type=serving.port,
        help=f"of the console: default {CONSOLE_PORT}, or any if --broker-port is not the usual one",
    )
    parser.add_argument("--log-level", choices=serving.LOG_LEVELS, default="warning")
    return parser


async def _serve(options: argparse.Namespace) -> int:
    from cometmq.broker.admin import settings as broker_live
    from cometmq.broker.server import Broker
    from cometmq.client.cluster.credentials import configured
    from cometmq.nameserver import settings as nameserver_live
    from cometmq.nameserver.server import NameServer
    from cometmq.net.tls import ClientTls

    serving.tune_collector()
    serving.keep_heap()
    stopping = serving.stop_signal()
    data = Path(options.data)
    try:
        given = (serving.read_settings(options.config) if options.config else {}) | dict(options.set)
        access = first_access(given, data) if options.secure else NO_ACCESS
        name_server = NameServer(nameserver_live.load(_name_server_texts(options, data) | _tls_texts(given)))
        await name_server.start()
    except CometError as error:
        return serving.fail("up", serving.exit_code_of(error), serving.placed(error, options.config))
    try:
        own = {
            "storePathRootDir": str(data / "store"),
            "bindAddress": options.host,
            "listenPort": str(options.broker_port),
            "namesrvAddr": name_server.address,
        }
        # Another broker on this machine is expected to have the usual ports.
        front = {"grpcServerPort": str(GRPC_PORT if options.broker_port == BROKER_PORT else 0)}
        if options.grpc_port is not None:
            own["grpcServerPort"] = str(options.grpc_port)
        broker = Broker(broker_live.load(front | access.settings | given | own | dict(options.set)))
        await broker.start()
    except (CometError, OSError) as error:
        await name_server.stop()
        return serving.fail("up", serving.exit_code_of(error), serving.placed(error, options.config))
    grpc = f" grpc={broker.grpc_address}" if broker.grpc_address is not None else ""
    serving.say_ready(f"ready namesrv={name_server.address} broker={broker.address}{grpc}")
    serving.warn_of_build()
    console = await _start_console(options, given, name_server.address, data, access)
    if options.secure:
        _say_access(access, name_server.address)
    elif _users_file(data).exists() and not broker.settings.config.authentication_enabled:
        print("cometmq up: there are users, but anybody may do anything: add --secure", file=sys.stderr, flush=True)
    failed = False
    if options.hello and (not options.secure or access.keys or configured(None, None) is not None):
        tls = ClientTls.of_server(broker.settings.config)
        failed = not await _show(name_server.address, broker, data, access, tls)
    if not failed:
        await stopping.wait()
    if console is not None:
        await console.stop()
    await serving.stop(broker)
    await name_server.stop()
    return 1 if failed else serving.end("up", broker.store.failure)


async def _start_console(
    options: argparse.Namespace, given: Mapping[str, str], name_server: str, data: Path, access: Access
) -> "ConsoleProcess | None":
    """None without it, with one line about how to get it. A console that does not start is no reason not to serve."""
    from cometmq.cli.shared.console_process import ConsoleProcess

    if options.no_console:
        return None
    if (options.secure and not access.keys) or given.get("tls.server.mode") == "enforcing":
        # It would need a user's password or an authority that only the operator has.
        how = f"cometmq console --namesrv {name_server} --access-key USER --secret-key @FILE"
        print(f"cometmq up: the console needs to know who it is here: {how}", file=sys.stderr, flush=True)
        return None
    if not console_is_installed():
        print(f"cometmq up: {CONSOLE_HOW_TO_GET}", file=sys.stderr, flush=True)
        return None
    # Another cluster on this machine is expected to have the usual ports.
    port = options.console_port if options.console_port is not None else CONSOLE_PORT if _is_usual(options) else 0
    console = ConsoleProcess(name_server, port, data / "console", access.keys)
    address = await console.start()
    if address is None:
        print(f"cometmq up: the console did not start: {console.fault}", file=sys.stderr, flush=True)
        return None
    print(f"console {address}", flush=True)
    return console


def _is_usual(options: argparse.Namespace) -> bool:
    return bool(options.broker_port == BROKER_PORT)


async def _show(name_server: str, broker: "Broker", data: Path, access: Access, tls: "ClientTls | None") -> bool:
    """For people, on stderr: stdout has the ready line only."""
    from cometmq.build_info import build_info
    from cometmq.cli.shared import self_test

    build = build_info()
    try:
        proof = await self_test.say_hello(name_server, *access.keys, tls=tls)
    except CometError as error:
        serving.fail("up", 1, f"the first message did not come back: {error}")
        return False
    at = "" if name_server == DEFAULT_NAMESRV else f"COMETMQ_NAMESRV={name_server} "
    lines = (
        f"  it works      {proof}",
        f"  name server   {name_server}     clients of every language connect here",
        f"  broker        {broker.address}",
        f"  gRPC          {broker.grpc_address or 'off'}     RocketMQ's 5.x clients connect here",
        f"  data          {data}",
        f"  memory        {self_test.memory_text()}",
        f"  build         {'compiled' if build.compiled else 'interpreted'}, Python {build.python}",
        "  try next      any RocketMQ client with this name server address, or in another terminal:",
        f"                {at}cometmq topic create orders",
        f"                {at}cometmq send orders hello",
        f"                {at}cometmq tail orders",
        f"                cometmq store dump {data / 'store'} -o json",
        "                cometmq --help",
        "  stop          Ctrl-C",
    )
    print("\n".join(lines), file=sys.stderr, flush=True)
    return True


def first_access(given: Mapping[str, str], data: Path) -> Access:
    """A first user where there is none and the settings name none."""
    switches = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    if given.get("initAuthenticationUser") or _users_file(data).exists():
        return Access(switches)
    password = generated()
    user = json.dumps({"username": FIRST_USER, "password": password})
    return Access(switches | {"initAuthenticationUser": user}, password)


def _users_file(data: Path) -> Path:
    return data / "store" / "config" / "users.json"


def _say_access(access: Access, name_server: str) -> None:
    if access.password is None:
        lines = [
            "  access        on, for the users that there are (cometmq user list)",
            "  no password?  --set initAuthenticationUser=@FILE makes another Super user; the file has",
            '                {"username":"...","password":"..."}',
        ]
    else:
        lines = [
            "  access        on: who sends a request signs it, and may do what it was granted",
            f"  first user    {FIRST_USER}, a Super user",
            f"  password      {access.password}     shown this once: put it into a file of yours, then",
            f"                cometmq context add local --namesrv {name_server} --access-key {FIRST_USER} "
            "--secret-key @FILE --use",
            "                cometmq user create shop",
            "                cometmq acl grant shop 'Topic:orders_*' Pub --yes",
            "  settings      authenticationEnabled=true and authorizationEnabled=true in broker.conf do the same",
        ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _tls_texts(given: Mapping[str, str]) -> dict[str, str]:
    """The name server is as open or closed as the broker."""
    return {key: text for key, text in given.items() if key.startswith("tls.")}


def _name_server_texts(options: argparse.Namespace, data: Path) -> dict[str, str]:
    return {
        "bindAddress": options.host,
        "listenPort": str(options.namesrv_port),
        "kvConfigPath": str(data / "namesrv" / "kvConfig.json"),
        "configStorePath": str(data / "namesrv" / "namesrv.properties"),
    }
