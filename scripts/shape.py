"""How hard the source is to find one's way in: python scripts/shape.py [-o json]

    files a folder       the largest flat folders; a folder should read like a table of contents
    one importer         modules that exactly one other module imports: candidates for merging
    assembly             modules that broker/server.py imports
    cycle                the largest group of modules that import each other, imports for types only included
    lines                of source and of tests
    visits               files, functions and changes of folder that one message takes, traced in an embedded cluster:
                         a send, a delivery to a push consumer, a transaction, a batch that Spark reads

`--journey` prints instead the files that one message enters, in the order in which it does: docs/journey.md is that
order, and its test asks here.

Visits count calls into src/cometmq of all tasks of the process between the first line of the step and its end, client
and servers together; what the servers do by the clock is in it too, a few functions.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src" / "cometmq"
LARGEST: Final = 6
SETTLE_S: Final = 0.1
# Whatever they call runs by the clock.
TIMED_FILES: Final = (
    "broker/periodic.py", "store/background.py", "broker/replicas/registration.py", "client/cluster/heartbeats.py",
)  # fmt: skip
TIMED_FUNCTIONS: Final = ("_tick", "_sweep")


# What the files say


def modules() -> dict[str, Path]:
    """Dotted name -> file."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["cometmq", *path.relative_to(SOURCE).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: set[str]) -> set[str]:
    """Modules of ours that a file imports, for types too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found |= {inner if inner in known else node.module} & known
    return found


def largest_cycle(graph: dict[str, set[str]]) -> list[str]:
    """The largest strongly connected part, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    largest: list[str] = []

    def visit(name: str) -> None:
        nonlocal largest
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in order:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], order[target])
        if low[name] == order[name]:
            at = stack.index(name)
            part, stack[at:] = stack[at:], []
            largest = max(largest, part, key=len)

    for name in graph:
        if name not in order:
            visit(name)
    return sorted(largest)


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def static_figures() -> dict[str, Any]:
    files = modules()
    graph = {name: imports(path, set(files)) - {name} for name, path in files.items()}
    importers = Counter(target for targets in graph.values() for target in targets)
    folders = Counter(str(path.parent.relative_to(SOURCE.parent)) for path in files.values())
    return {
        "files a folder": dict(folders.most_common(LARGEST)),
        "one importer": sum(1 for count in importers.values() if count == 1),
        "assembly": len(graph["cometmq.broker.server"]),
        "cycle": len(largest_cycle(graph)),
        "lines": {"source": lines(SOURCE), "tests": lines(ROOT / "tests")},
    }


# What a message visits


@dataclass
class Visits:
    """`files` in the order of their first visits."""

    files: dict[str, None] = field(default_factory=dict)
    functions: set[tuple[str, str]] = field(default_factory=set)
    folder_changes: int = 0
    _folder: str = ""

    def note(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(str(SOURCE)) or "/testing/" in name:
            return
        key = (name, frame.f_code.co_qualname)
        folder = name.rpartition("/")[0]
        if key not in self.functions and folder != self._folder:
            self.folder_changes += 1
        self._folder = folder
        self.files.setdefault(name)
        self.functions.add(key)

    def figures(self) -> dict[str, int]:
        return {"files": len(self.files), "functions": len(self.functions), "folder changes": self.folder_changes}


class Way(Visits):
    """Without what runs by the clock, which is entered at any time."""

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)) and not by_the_clock(frame):
            super().note(frame, event, argument)


def by_the_clock(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.endswith(TIMED_FILES) or frame.f_code.co_name in TIMED_FUNCTIONS:
            return True
        frame = frame.f_back
    return False


class Tracer:
    """Notes calls of this thread and of all that start while it is installed, as long as it has something to fill."""

    def __init__(self) -> None:
        self.into: Visits | None = None

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self.into is not None:
            self.into.note(frame, event, argument)

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def filling(self, into: Visits) -> Iterator[None]:
        self.into = into
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.into = None


async def visits() -> dict[str, dict[str, int]]:
    tracer = Tracer()
    with tracer.installed():
        return await _visits(tracer)


async def _visits(tracer: Tracer) -> dict[str, dict[str, int]]:
    from cometmq import StartFrom, Tx
    from cometmq.testing import Cluster

    found: dict[str, dict[str, int]] = {}

    async def step(name: str, act: Callable[[], Awaitable[object]]) -> None:
        await act()  # what only a first time does is not a message's way
        seen = Visits()
        with tracer.filling(seen):
            await act()
        found[name] = seen.figures()

    async with Cluster(topics=["orders"], queues=1) as cluster, cluster.client() as client:
        async with client.producer("shape") as producer:
            await step("send", lambda: producer.send("orders", b"x", tag="a", keys="k"))
            arrived: asyncio.Queue[bytes] = asyncio.Queue()
            app = client.push_consumer("shape_c", start=StartFrom.LAST)

            @app.on("orders")
            async def handle(body: bytes) -> None:
                arrived.put_nowait(body)

            async def deliver() -> None:
                await producer.send("orders", b"x")
                await arrived.get()

            async with app:
                await step("send and push", deliver)
        async with client.transaction_producer("shape_t", check=lambda _: Tx.COMMIT) as transactions:

            async def transact() -> None:
                async with transactions.begin("orders", b"x"):
                    pass

            await step("transaction", transact)
        if find_spec("pyspark") and find_spec("pyarrow"):
            await step("Spark batch", lambda: asyncio.to_thread(read_batch, cluster.namesrv))
    return found


async def journey() -> list[str]:
    """The files below src/cometmq that a message enters: sent, delivered to a push consumer, committed, read by Spark.

    Another message went the same way before. The consumer stops at the end, which commits its progress.
    """
    from cometmq import StartFrom
    from cometmq.testing import Cluster

    tracer = Tracer()
    seen = Way()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async with Cluster(topics=["orders"], queues=1) as cluster, cluster.client() as client:
        app = client.push_consumer("shape_c", start=StartFrom.LAST)

        @app.on("orders")
        async def handle(body: bytes) -> None:
            arrived.put_nowait(body)

        async def deliver() -> None:
            await producer.send("orders", b"x", tag="a", keys="k")
            await arrived.get()

        async with client.producer("shape") as producer:
            await app.start()
            await deliver()
            await asyncio.sleep(SETTLE_S)  # the first message's outcome, the next pull
            with tracer.filling(seen):
                await deliver()
                await app.stop()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor() as before, ThreadPoolExecutor() as traced:
            await loop.run_in_executor(before, read_batch, cluster.namesrv)
            with tracer.installed(), tracer.filling(seen):
                await loop.run_in_executor(traced, read_batch, cluster.namesrv)
    return [str(Path(name).relative_to(SOURCE)) for name in seen.files]


def read_batch(name_servers: str) -> None:
    """What Spark's driver and worker call for one batch, without Spark around it."""
    from cometmq.spark.live.source import CometReader

    reader = CometReader({"namesrvAddr": name_servers, "subscribe": "orders"}, ("body",))
    for partition in reader.partitions():
        assert sum(batch.num_rows for batch in reader.read(partition)) > 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="shape", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("--journey", action="store_true", help="the files that one message enters, in order")
    options = parser.parse_args()
    if options.journey:
        print("\n".join(asyncio.run(journey())))
        return 0
    figures = static_figures() | {"visits": asyncio.run(visits())}
    if options.output == "json":
        print(json.dumps(figures, indent=1))
        return 0
    for name, value in figures.items():
        shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        print(f"{name:16} {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
