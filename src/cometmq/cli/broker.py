"""`cometmq broker`: run one broker until it is told to stop, or several side by side.

When it serves, one line goes to stdout:

    ready namesrv=127.0.0.1:9876 broker=127.0.0.1:10911

With `grpcServerPort` it goes on with ` grpc=127.0.0.1:8081`.

`--count N` runs N brokers in N processes: NAME-0, NAME-1, ... each with its own store directory and ports, ten apart.
One broker uses one core; more cores are used by more brokers, and clients spread over them by themselves. If one of
them ends, all are stopped.

Exit codes: see `serving`.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.cli.shared import serving
from cometmq.errors import CometError
from cometmq.settings import SettingError
from cometmq.wire import java_properties

if TYPE_CHECKING:
    from cometmq.broker.admin.settings import LiveSettings
    from cometmq.broker.replicas.set_member import SetMember

PORTS_APART = 10


def main(argv: list[str]) -> int:
    try:
        options = _parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    serving.set_up_logging(options.log_level)
    from cometmq.broker.admin import settings as live

    try:
        settings = live.load(_texts(options))
    except (SettingError, CometError) as error:
        return serving.fail("broker", serving.EXIT_SETTINGS, serving.placed(error, options.config))
    if options.print_config:
        print(java_properties.write(settings.texts()), end="")
        return 0
    from cometmq.net.loop import run

    return run(_serve_several(options, settings) if options.count > 1 else _serve(settings))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cometmq broker",
        description="Run a broker: it stores messages and serves producers and consumers.",
        epilog="exit codes: 0 stopped, 2 wrong arguments, 3 bad settings or files, 4 address taken, 5 disk failed",
    )
    parser.add_argument("-c", "--config", "--configFile", metavar="FILE", help="settings, as RocketMQ's broker.conf")
    parser.add_argument("-n", "--namesrv", "--namesrvAddr", metavar="LIST", help="name servers, separated by ;")
    parser.add_argument("--set", metavar="KEY=VALUE", type=serving.key_and_value, action="append", default=[])
    parser.add_argument("--count", metavar="N", type=_count, default=1, help="how many brokers to run on this host")
    parser.add_argument(
        "-p", "--print-config", "--printConfigItem", action="store_true", help="print every setting and exit"
    )
    parser.add_argument("--log-level", choices=serving.LOG_LEVELS, default="info")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of brokers from 1 to 64")
    return int(text)


def _texts(options: argparse.Namespace) -> dict[str, str]:
    """Environment, over it the settings file, over that the command line."""
    texts = {"namesrvAddr": os.environ.get("NAMESRV_ADDR", "")}
    if options.config is not None:
        texts |= serving.read_settings(options.config)
        texts["brokerConfigPath"] = str(Path(options.config).absolute())
    if options.namesrv is not None:
        texts["namesrvAddr"] = options.namesrv
    return texts | dict(options.set)


async def _serve(settings: "LiveSettings") -> int:
    from cometmq.broker.server import Broker

    serving.tune_collector()
    serving.keep_heap()
    stopping = serving.stop_signal()
    try:
        broker = Broker(settings)
        await broker.start()
    except (CometError, OSError) as error:
        return serving.fail("broker", serving.exit_code_of(error), error)
    ready = f"ready namesrv={settings.config.namesrv_addresses} broker={broker.address}"
    member = broker.rooms.replicas.member
    if member is not None:
        failure = await _settled(member, stopping)
        if failure is not None:
            await serving.stop(broker)
            return serving.fail("broker", serving.exit_code_of(failure), failure)
        ready += f" {member.status_line()}"
    if broker.grpc_address is not None:
        ready += f" grpc={broker.grpc_address}"
    if not stopping.is_set():
        serving.say_ready(ready)
        serving.warn_of_build()
    await stopping.wait()
    await serving.stop(broker)
    return serving.end("broker", broker.store.failure)


async def _settled(member: "SetMember", stopping: asyncio.Event) -> Exception | None:
    """Until a member of a set leads or follows, or is told to stop; why it never will."""
    told = asyncio.ensure_future(stopping.wait())
    settled: asyncio.Future[None] = member.settled
    waiting: list[asyncio.Future[Any]] = [settled, told]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not member.settled.done():
        return None
    error = member.settled.exception()
    return error if isinstance(error, Exception) else None


def own_settings(settings: "LiveSettings", number: int) -> dict[str, str]:
    """What one of several brokers must not share with the others."""
    config, store = settings.config, settings.store_options
    name = f"{config.broker_name}-{number}"
    own = {
        "brokerName": name,
        "listenPort": str(config.listen_port + number * PORTS_APART if config.listen_port else 0),
        "storePathRootDir": os.path.join(store.root_dir, name),
        "grpcServerPort": str(config.grpc_port + number * PORTS_APART if config.grpc_port > 0 else config.grpc_port),
        "brokerConfigPath": "",  # the file is for all of them: none may write its own settings there
    }
    if store.commitlog_paths:
        own["storePathCommitLog"] = ",".join(os.path.join(path, name) for path in store.commitlog_dirs())
    if store.ha_listen_port:
        own["haListenPort"] = str(store.ha_listen_port + number * PORTS_APART)
    return own


async def _serve_several(options: argparse.Namespace, settings: "LiveSettings") -> int:
    """Children do the work; this process passes signals on and waits for the first of them to end."""
    stopping = serving.stop_signal()
    children: list[asyncio.subprocess.Process] = []
    for number in range(options.count):
        own = own_settings(settings, number)
        arguments = [f"--set={key}={value}" for key, value in (dict(options.set) | own).items()]
        if options.config is not None:
            arguments += ["-c", options.config]
        if options.namesrv is not None:
            arguments += ["-n", options.namesrv]
        children.append(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cometmq.cli.main", "broker", "--log-level", options.log_level, *arguments
            )
        )
    endings = [asyncio.create_task(child.wait()) for child in children]
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait([*endings, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    for child in children:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
    codes = await asyncio.gather(*endings)
    if stopping.is_set():
        return max(codes)
    return serving.fail("broker", max(codes) or 1, "one of the brokers ended; all are stopped")
