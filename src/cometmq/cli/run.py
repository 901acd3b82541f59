"""`cometmq run MODULE:APP`: run a push consumer that a module makes.

    shop.py     app = PushConsumer("shop-cg", concurrency=32)

                @app.on("orders")
                async def handle(order: Order) -> None: ...

    cometmq run shop:app                        until SIGTERM or Ctrl-C; handlers that run are finished
    cometmq run shop:app --workers 4            in four processes, which share the queues as members of one group
    cometmq run shop:app --reload               again after each change of a .py file below this directory

A worker that ends by itself is started again; five that end within their first seconds, one after the other, end the
command. Without `:APP` it is `app`. The directory of the command is on the path of imports.

Exit codes: 0 stopped, 2 wrong arguments, 3 the module cannot be imported or has no such consumer, 4 no name server.
"""

import argparse
import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.context import resolve
from cometmq.cli.shared import serving
from cometmq.cli.shared.arguments import Verb, count, run_verb
from cometmq.cli.shared.failures import EXIT_FILE, EXIT_UNREACHABLE, EXIT_USAGE, Failure
from cometmq.errors import CallError, NoNameServer, NoRoute

if TYPE_CHECKING:
    from cometmq.client.consume.push import PushConsumer

logger = logging.getLogger("cometmq.run")

WORKERS_MAX: Final = 256
EARLY_S: Final = 3.0
EARLY_ENDS_MAX: Final = 5
LOOK_S: Final = 0.3
# Set for workers: they are run by a command that watches them.
WORKER: Final = "COMETMQ_RUN_WORKER"


def main(argv: list[str]) -> int:
    return run_verb(RUN, argv)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", metavar="MODULE:APP")
    parser.add_argument("--workers", type=count, default=1, metavar="N", help="processes; default 1")
    parser.add_argument("--reload", action="store_true", help="start again when a .py file here changes")
    parser.add_argument("--log-level", choices=serving.LOG_LEVELS, default="info")


def _run(options: argparse.Namespace) -> int:
    from cometmq.net.loop import run

    serving.set_up_logging(options.log_level)
    if options.workers > WORKERS_MAX:
        raise Failure(EXIT_USAGE, f"--workers {options.workers}: at most {WORKERS_MAX}")
    os.environ |= _environment(options)
    if (options.workers > 1 or options.reload) and WORKER not in os.environ:
        return run(_supervise(options))
    return run(_consume(load(options.app)))


def _environment(options: argparse.Namespace) -> dict[str, str]:
    """How the clients that the module makes find their cluster."""
    target = resolve(options)
    found = {"COMETMQ_NAMESRV": target.namesrv}
    if target.access_key and target.secret_key:
        found |= {"COMETMQ_ACCESS_KEY": target.access_key, "COMETMQ_SECRET_KEY": target.secret_key}
    if target.tls is not None:
        given = {name: getattr(target.tls, name) for name in ("ca", "name", "cert", "key")}
        found |= {f"COMETMQ_TLS_{name.upper()}": text for name, text in given.items() if text}
        found |= {"COMETMQ_TLS": "true", "COMETMQ_TLS_INSECURE": "true" if target.tls.insecure else "false"}
    return found


def load(place: str) -> "PushConsumer":
    """Failure says what is wrong: with the name, the import or what was found."""
    from cometmq.client.consume.push import PushConsumer

    module_name, _, name = place.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise Failure(EXIT_FILE, f"there is no module {module_name} in {here} or on the path of imports") from error
        raise
    found: Any = module
    for part in (name or "app").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, PushConsumer):
        what = "nothing" if found is None else f"a {type(found).__qualname__}"
        raise Failure(
            EXIT_FILE,
            f"{module_name}:{name or 'app'} is {what}, not a PushConsumer: write app = PushConsumer(GROUP) in "
            f"{module_name}, or name another (MODULE:APP)",
        )
    return found


async def _consume(app: "PushConsumer") -> int:
    try:
        await app.start()
    except (NoNameServer, NoRoute, CallError) as error:
        await app.stop()
        raise Failure(EXIT_UNREACHABLE, str(error)) from error
    logger.info("run group=%s pid=%d", app.group, os.getpid())
    await app.run()
    return 0


async def _supervise(options: argparse.Namespace) -> int:
    stopping = serving.stop_signal()
    command = _worker_command(options)
    workers = [Worker(number, command) for number in range(options.workers)]
    changes = Changes(Path.cwd()) if options.reload else None
    watching = [asyncio.create_task(worker.run(changes is not None)) for worker in workers]
    asked = asyncio.create_task(stopping.wait())
    while not stopping.is_set():
        done, _ = await asyncio.wait([*watching, asked], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        if any(task in done for task in watching):
            break
        if changes is not None and (changed := await asyncio.to_thread(changes.look)):
            logger.info("reload because of %s", changed)
            for worker in workers:
                worker.restart()
    asked.cancel()
    for worker in workers:
        worker.stop()
    codes = await asyncio.gather(*watching)
    return max(codes)


def _worker_command(options: argparse.Namespace) -> list[str]:
    return [sys.executable, "-m", "cometmq.cli.main", "run", options.app, "--log-level", options.log_level]


class Worker:
    """A process that is started again when it ends."""

    def __init__(self, number: int, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._number = number
        self._command = command
        self._environment = {**os.environ, **(environment or {}), WORKER: str(number)}
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._is_restarting = False
        self._again = asyncio.Event()

    async def run(self, waits_for_changes: bool) -> int:
        """The exit code that ends the command; returns after `stop`, or when it cannot be kept alive."""
        loop = asyncio.get_running_loop()
        early_ends = 0
        while True:
            began_s = loop.time()
            self._again.clear()
            self._process = await asyncio.create_subprocess_exec(*self._command, env=self._environment)
            if self._stopping.is_set():
                self._signal()
            code = await self._process.wait()
            if self._stopping.is_set():
                return max(code, 0)
            if self._is_restarting:
                self._is_restarting = False
                continue
            logger.error("end worker=%d code=%d", self._number, code)
            if waits_for_changes:  # the next edit may mend it
                await self._again.wait()
                self._is_restarting = False
                if self._stopping.is_set():
                    return max(code, 0)
                continue
            early_ends = early_ends + 1 if loop.time() - began_s < EARLY_S else 0
            if code == EXIT_FILE or early_ends == EARLY_ENDS_MAX:
                return code if code > 0 else 1

    def restart(self) -> None:
        self._is_restarting = True
        self._again.set()
        self._signal()

    def stop(self) -> None:
        self._stopping.set()
        self._again.set()
        self._signal()

    def _signal(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)


class Changes:
    """Which .py files below a directory have changed since the last look."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._times = self._stat()

    def look(self) -> str | None:
        """The path of one that changed."""
        times = self._stat()
        before, self._times = self._times, times
        for path in times.keys() | before.keys():
            if times.get(path) != before.get(path):
                return path
        return None

    def _stat(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, folders, files in os.walk(self._root):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with contextlib.suppress(OSError):
                        found[path] = os.stat(path).st_mtime_ns
        return found


_SKIPPED: Final = frozenset(("__pycache__", "node_modules", "venv", "build"))

RUN: Final = Verb("run", "Run a push consumer of a module: in one process or several, reloaded when its files change.",
                  _run, _arguments, output=False, example="cometmq run shop:app --workers 4")  # fmt: skip
