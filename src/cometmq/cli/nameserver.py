"""`cometmq nameserver`: run one name server until it is told to stop.

    0   stopped by SIGTERM or SIGINT; also -h and -p
    2   the command line is wrong
    3   a settings file or the key-value file cannot be read, or says something that is not allowed
    4   the address cannot be listened on

Each failure is one line on stderr that names the cause. When it serves, one line goes to stdout:

    ready namesrv=127.0.0.1:9876
"""

import argparse
import os
from pathlib import Path

from cometmq.cli.shared import serving
from cometmq.errors import CometError, StoreError
from cometmq.nameserver import settings as live
from cometmq.settings import SettingError
from cometmq.wire import java_properties


def main(argv: list[str]) -> int:
    try:
        options = _parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    try:
        settings = live.load(_texts(options))
    except (SettingError, StoreError) as error:
        return serving.fail("nameserver", serving.EXIT_SETTINGS, serving.placed(error, options.config))
    if options.print_config:
        print(java_properties.write(settings.texts()), end="")
        return 0
    serving.set_up_logging(options.log_level)
    from cometmq.net.loop import run

    return run(_serve(settings))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cometmq nameserver",
        description="Run a name server: brokers register here, clients ask here where a topic is.",
        epilog="exit codes: 0 stopped, 2 wrong arguments, 3 bad settings or key-value file, 4 address not available",
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", type=serving.host_and_port, help="default 127.0.0.1:9876; port 0 is any"
    )
    parser.add_argument(
        "--controller", metavar="STORE", help="answer mqadmin about sets that elect their master: etcd://host:2379,..."
    )
    parser.add_argument("-c", "--config", "--configFile", metavar="FILE", help="settings, as Java properties")
    parser.add_argument("--set", metavar="KEY=VALUE", type=serving.key_and_value, action="append", default=[])
    parser.add_argument(
        "-p", "--print-config", "--printConfigItem", action="store_true", help="print every setting and exit"
    )
    parser.add_argument("-n", "--namesrvAddr", metavar="LIST", help="accepted for RocketMQ's scripts, without effect")
    parser.add_argument("--log-level", choices=serving.LOG_LEVELS, default="info")
    return parser


def _texts(options: argparse.Namespace) -> dict[str, str]:
    """The settings file, over it --set, over that --listen."""
    texts = {"rocketmq.namesrv.addr": os.environ.get("NAMESRV_ADDR", "")}
    if options.config is not None:
        texts |= serving.read_settings(options.config)
        texts["configStorePath"] = str(Path(options.config).absolute())
    texts |= dict(options.set)
    if options.controller is not None:
        texts["controllerStore"] = options.controller
    if options.listen is not None:
        texts["bindAddress"], texts["listenPort"] = options.listen
    return texts


async def _serve(settings: live.LiveSettings) -> int:
    from cometmq.nameserver.server import NameServer

    serving.tune_collector()
    stopping = serving.stop_signal()
    try:
        server = NameServer(settings)
        await server.start()
    except CometError as error:
        return serving.fail("nameserver", serving.exit_code_of(error), error)
    serving.say_ready(f"ready namesrv={server.address}")
    await stopping.wait()
    await server.stop()
    return 0
