"""`cometmq proxy`: serve RocketMQ's 5.x clients (gRPC) for a cluster of brokers, until it is told to stop.

    0   stopped by SIGTERM or SIGINT; also -h and -p
    2   the command line is wrong
    3   a settings file cannot be read, or says something that is not allowed
    4   the address cannot be listened on

Each failure is one line on stderr that names the cause. When it serves, one line goes to stdout:

    ready grpc=127.0.0.1:8081 namesrv=127.0.0.1:9876
"""

import argparse
import os

from cometmq.cli.shared import serving
from cometmq.errors import CometError, StoreError
from cometmq.proxy.config import ProxyConfig, load
from cometmq.settings import SettingError, texts_of
from cometmq.wire import java_properties


def main(argv: list[str]) -> int:
    try:
        options = _parser().parse_args(argv)
    except SystemExit as leaving:  # argparse has said what is wrong, or printed its help
        return int(leaving.code or 0)
    try:
        config = load(_texts(options))
    except (SettingError, StoreError) as error:
        return serving.fail("proxy", serving.EXIT_SETTINGS, error)
    if options.print_config:
        print(java_properties.write(texts_of(config)), end="")
        return 0
    serving.set_up_logging(options.log_level)
    from cometmq.net.loop import run

    return run(_serve(config))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cometmq proxy",
        description="Serve RocketMQ's 5.x clients (gRPC) for a cluster of CometMQ or RocketMQ brokers.",
        epilog="exit codes: 0 stopped, 2 wrong arguments, 3 bad settings, 4 address not available",
    )
    parser.add_argument("-n", "--namesrv", "--namesrvAddr", metavar="LIST", help="name servers, host:port;host:port")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", type=serving.host_and_port, help="default 127.0.0.1:8081; port 0 is any"
    )
    parser.add_argument("-c", "--config", metavar="FILE", help="settings, as Java properties")
    parser.add_argument("--set", metavar="KEY=VALUE", type=serving.key_and_value, action="append", default=[])
    parser.add_argument("-p", "--print-config", action="store_true", help="print every setting and exit")
    parser.add_argument("--log-level", choices=serving.LOG_LEVELS, default="info")
    return parser


def _texts(options: argparse.Namespace) -> dict[str, str]:
    """The settings file, over it --set, over that the other arguments."""
    texts = {"namesrvAddr": os.environ.get("NAMESRV_ADDR", "")}
    if options.config is not None:
        texts |= serving.read_settings(options.config)
    texts |= dict(options.set)
    if options.namesrv is not None:
        texts["namesrvAddr"] = options.namesrv
    if options.listen is not None:
        texts["bindAddress"], texts["grpcServerPort"] = options.listen
    return texts


async def _serve(config: ProxyConfig) -> int:
    from cometmq.proxy.server import Proxy

    serving.tune_collector()
    stopping = serving.stop_signal()
    proxy = Proxy(config)
    try:
        await proxy.start()
    except CometError as error:
        return serving.fail("proxy", serving.exit_code_of(error), error)
    serving.say_ready(f"ready grpc={proxy.address} namesrv={config.namesrv_addresses}")
    await stopping.wait()
    await proxy.stop()
    return 0
