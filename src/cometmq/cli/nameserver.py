"""`cometmq nameserver`: run one name server until it is told to stop.

    0   stopped by SIGTERM or SIGINT; also -h and -p
    2   the command line is wrong
    3   a settings file or the key-value file cannot be read, or says something that is not allowed
    4   the address cannot be listened on

Each failure is one line on stderr that names the cause. When it serves, one line goes to stdout:

    ready namesrv=127.0.0.1:9876
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

from cometmq.errors import CometError, StoreError, WireError
from cometmq.nameserver import live
from cometmq.settings import SettingError
from cometmq.wire import properties_text

EXIT_USAGE: Final = 2
EXIT_SETTINGS: Final = 3
EXIT_ADDRESS: Final = 4

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def main(argv: list[str]) -> int:
    try:
        options = _parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    try:
        settings = live.load(_texts(options))
    except (SettingError, StoreError) as error:
        return _fail(EXIT_SETTINGS, str(error))
    if options.print_config:
        print(properties_text.write(settings.texts()), end="")
        return 0
    _set_up_logging(options.log_level)
    from cometmq.net.loop import run

    return run(_serve(settings))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cometmq nameserver",
        description="Run a name server: brokers register here, clients ask here where a topic is.",
        epilog="exit codes: 0 stopped, 2 wrong arguments, 3 bad settings or key-value file, 4 address not available",
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", type=_host_and_port, help="default 127.0.0.1:9876; port 0 is any"
    )
    parser.add_argument("-c", "--config", "--configFile", metavar="FILE", help="settings, as Java properties")
    parser.add_argument("--set", metavar="KEY=VALUE", type=_key_and_value, action="append", default=[])
    parser.add_argument(
        "-p", "--print-config", "--printConfigItem", action="store_true", help="print every setting and exit"
    )
    parser.add_argument("-n", "--namesrvAddr", metavar="LIST", help="accepted for RocketMQ's scripts, without effect")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="info")
    return parser


def _host_and_port(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
    return host.strip("[]"), port


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def _texts(options: argparse.Namespace) -> dict[str, str]:
    """The settings file, over it --set, over that --listen."""
    texts = {"rocketmq.namesrv.addr": os.environ.get("NAMESRV_ADDR", "")}
    if options.config is not None:
        texts |= _read_settings(options.config)
        texts["configStorePath"] = str(Path(options.config).absolute())
    texts |= dict(options.set)
    if options.listen is not None:
        texts["bindAddress"], texts["listenPort"] = options.listen
    return texts


def _read_settings(path: str) -> dict[str, str]:
    try:
        return properties_text.parse(Path(path).read_bytes())
    except OSError as error:
        raise StoreError(f"cannot read settings file {path}: {error.strerror or error}") from error
    except WireError as error:
        raise StoreError(f"settings file {path}: {error}") from error


def _set_up_logging(level: str) -> None:
    logging.basicConfig(stream=sys.stderr, level=level.upper(), format=LOG_FORMAT)
    if level != "debug":
        logging.getLogger("cometmq.nameserver.watermark").setLevel(logging.WARNING)


async def _serve(settings: live.LiveSettings) -> int:
    from cometmq.nameserver.server import NameServer

    _tune_collector()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    try:
        server = NameServer(settings)
        await server.start()
    except CometError as error:
        return _fail(EXIT_ADDRESS if isinstance(error.__cause__, OSError) else EXIT_SETTINGS, str(error))
    print(f"ready namesrv={server.address}", flush=True)
    await stopping.wait()
    await server.stop()
    return 0


def _tune_collector() -> None:
    """Decoding the 5,000 topics of a large broker takes 4 ms instead of 8, and no 45 ms pauses, when the garbage
    collector does not run for every 700 new objects nor visit what was there at the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def _fail(code: int, cause: str) -> int:
    print(f"cometmq nameserver: {cause}", file=sys.stderr)
    return code
