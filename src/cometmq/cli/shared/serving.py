"""What the commands that run servers share: reading settings, logging, exit codes, stopping by signal.

    0   stopped by SIGTERM or SIGINT
    2   the command line is wrong
    3   a settings file or a file of the store cannot be used
    4   an address cannot be listened on
    5   stopped after a disk had failed: what was not flushed by then may be lost

Each failure is one line on stderr that names the cause.
"""

import argparse
import asyncio
import ctypes
import gc
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.build_info import build_info
from cometmq.errors import ConfigError, StoreError, WireError
from cometmq.log_lines import write_one_line_an_event
from cometmq.settings import SettingError
from cometmq.wire import java_properties

if TYPE_CHECKING:
    from cometmq.broker.server import Broker

logger = logging.getLogger(__name__)

EXIT_USAGE: Final = 2
EXIT_SETTINGS: Final = 3
EXIT_ADDRESS: Final = 4
EXIT_DISK: Final = 5

# Parameters of glibc's mallopt, and the bytes that are set.
TRIM_THRESHOLD: Final = (-1, 16 << 20)
MMAP_THRESHOLD: Final = (-3, 4 << 20)

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def host_and_port(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
    return host.strip("[]"), port


def port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port of 0 to 65535")
    return int(text)


def read_settings(path: str) -> dict[str, str]:
    try:
        return java_properties.parse(Path(path).read_bytes())
    except OSError as error:
        raise StoreError(f"cannot read settings file {path}: {error.strerror or error}") from error
    except WireError as error:
        raise StoreError(f"settings file {path}: {error}") from error


def placed(error: Exception, path: str | None) -> str:
    """What `error` says, after the line of the settings file that it is about."""
    if path is None or not isinstance(error, SettingError) or not error.key:
        return str(error)
    line = java_properties.line_of(Path(path).read_bytes(), error.key)
    return f"{path} line {line}: {error}" if line else str(error)


def set_up_logging(level: str) -> None:
    logging.basicConfig(stream=sys.stderr, level=level.upper(), format=LOG_FORMAT)
    write_one_line_an_event()
    if level != "debug":
        logging.getLogger("cometmq.nameserver.watermark").setLevel(logging.WARNING)


def exit_code_of(error: Exception) -> int:
    is_file = isinstance(error, StoreError | ConfigError)
    return EXIT_ADDRESS if isinstance(error.__cause__, OSError) and not is_file else EXIT_SETTINGS


def end(command: str, failure: OSError | None) -> int:
    """The exit code of a broker that was told to stop; `failure` is what its disk said meanwhile."""
    if failure is None:
        return 0
    return fail(command, EXIT_DISK, f"the disk failed while running: {failure}; check the device before a restart")


async def stop(broker: "Broker") -> None:
    """What a failed disk refuses at the end is part of that failure, not a fault of the program."""
    try:
        await broker.stop()
    except OSError as error:
        logger.error("fail to stop in order cause=%s", error)
        broker.store.fail(error)


def fail(command: str, code: int, cause: object) -> int:
    print(f"cometmq {command}: {cause}", file=sys.stderr)
    return code


def say_ready(line: str) -> None:
    """In one write, also without a buffer: several brokers of one command say it on one stdout."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def warn_of_build() -> None:
    """A line of the log if this is the slower build."""
    if advice := build_info().advice:
        logger.warning("slow build: %s", advice)


def stop_signal() -> asyncio.Event:
    """Set by SIGTERM or SIGINT. Ask for it before starting, so that a signal during the start ends it cleanly too."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


def tune_collector() -> None:
    """Decoding the 5,000 topics of a large broker takes 4 ms instead of 8, and no 45 ms pauses, when the garbage
    collector does not run for every 700 new objects nor visit what was there at the start.

    The middle generation holds what peers have parked lately: at 200,000 objects a look at it held the loop for 77 ms,
    at 40,000 it takes 15. The oldest is looked at as rarely as before, after two million objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 4, 50)


def keep_heap() -> None:
    """Frames of batches come and go by the megabyte: glibc gives the top of its heap back at 128 KiB and gets it again
    for the next one, zeroed page by page. Up to 16 MiB are kept instead. With another C library nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(*TRIM_THRESHOLD)
        mallopt(*MMAP_THRESHOLD)
