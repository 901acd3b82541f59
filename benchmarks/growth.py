"""Whether a broker's work for a message grows with what it has: topics, connections, consumer groups, stored bytes.

    python -m benchmarks.growth [topics] [connections] [groups] [store] [--gib N] [--interpreted] [-o json]

    topics        1, 100, 10,000: sends in turn to all of them, 32 at once on one connection
    connections   1, 100, 2,000: one send at a time, each on the next connection; the others are open and silent
    groups        1, 1,000: each in turn pulls 32 messages and says how far it is
    store         empty, and `--gib` of messages of 16 KiB (2 unless told; the directory is removed afterwards): sends,
                  and pulls of the newest messages

A broker is a process of its own; its processor time comes from the kernel's clock of it, in nanoseconds. So
other programs disturb little. Each figure is the cheapest of `--rounds`. A figure is flat when it is at most 1.15 times
that of the smallest size.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.versus.sides import OVERLAY
from cometmq.clock import ManualClock
from cometmq.store.disk import OsDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.store import Store
from cometmq.wire.command import ROCKETMQ, encode, request
from tests.compat.harness import remoting
from tests.compat.harness.processes import wait_until
from tests.compat.harness.servers import CometBroker, CometNameServer

TOGETHER: Final = 32
FLAT_MAX: Final = 1.15
BODY: Final = bytes(1024)
LARGE_BODY: Final = bytes(16 << 10)
SEGMENT_BYTES: Final = 1 << 30
# With a process number above it, a clock of Linux: all processor time of that process (CPUCLOCK_SCHED).
CPU_OF_PROCESS: Final = 2
QUEUES_MADE_S: Final = 120.0
IDLE_CPU_S: Final = 0.2
TOPIC: Final = "Growth"
SETTINGS: Final[dict[str, object]] = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 40_000,  # 10,000 topics have as many files
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "brokerFastFailureEnable": False,
    "autoCreateSubscriptionGroup": True,
}


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    size: str
    us: float


@contextmanager
def broker(settings: dict[str, object] | None = None, store: Path | None = None) -> Iterator[CometBroker]:
    with tempfile.TemporaryDirectory(prefix="growth-") as place, ExitStack() as stack:
        directory = Path(place)
        names = stack.enter_context(CometNameServer(directory)).start()
        own: dict[str, object] = {**SETTINGS, **(settings or {})}
        if store is not None:
            own |= {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
        yield stack.enter_context(CometBroker(directory, names.address, own)).start()


def cpu_s(pid: int) -> float:
    """Of all its threads, those that have ended too: a thorough flush of many queues has sixteen for a moment."""
    return time.clock_gettime(~pid << 3 | CPU_OF_PROCESS)


def connect(to: CometBroker) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", to.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(connection: socket.socket, frames: list[bytes]) -> None:
    """Send them at once and read as many answers."""
    connection.sendall(b"".join(frames))
    left, received = len(frames), bytearray()
    while left:
        received += connection.recv(1 << 20)
        while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
            del received[:end]
            left -= 1


def send_frame(topic: str, number: int, queue_id: int = 0) -> bytes:
    ext = {
        "a": "growth", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1794725598148",
        "h": "0", "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01TagA\x02", "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip
    return encode(request(310, ext, BODY, opaque=number, form=ROCKETMQ))


def pull_frame(group: str, number: int, offset: int, count: int = TOGETHER) -> bytes:
    ext = {
        "consumerGroup": group, "topic": TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": str(count),
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1",
        "expressionType": "TAG",
    }  # fmt: skip
    return encode(request(11, ext, opaque=number, form=ROCKETMQ))


def commit_frame(group: str, number: int, offset: int) -> bytes:
    ext = {"consumerGroup": group, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    return encode(request(15, ext, opaque=number, form=ROCKETMQ))


Turn = tuple[socket.socket, list[bytes]]


def turns_on(connection: socket.socket, frames: list[bytes], together: int = TOGETHER) -> list[Turn]:
    return [(connection, frames[at : at + together]) for at in range(0, len(frames), together)]


def cheapest(on: CometBroker, rounds: int, count: int, turns: list[Turn]) -> float:
    """Processor time of the broker for one of `count` messages, in us."""
    found = []
    for _ in range(rounds + 1):
        began_s = cpu_s(on.pid)
        for connection, batch in turns:
            exchange(connection, batch)
        time.sleep(0.05)  # what follows from the last message
        found.append((cpu_s(on.pid) - began_s) / count * 1e6)
    return min(found[1:])


def topics(sizes: list[int], rounds: int, count: int) -> Iterator[Figure]:
    for size in sizes:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="growth-")))
            write_topics(directory, [f"{TOPIC}{number}" for number in range(size)])
            on = stack.enter_context(broker(store=directory))
            frames = [send_frame(f"{TOPIC}{number % size}", number) for number in range(count)]
            with connect(on) as connection:
                for number in range(0, size, TOGETHER):
                    names = range(number, min(size, number + TOGETHER))
                    exchange(connection, [send_frame(f"{TOPIC}{name}", name) for name in names])
                wait_for_queues(on, directory / "consumequeue", size)
                yield Figure("topics", f"{size:,}", cheapest(on, rounds, count, turns_on(connection, frames)))


def wait_for_queues(on: CometBroker, queues: Path, count: int) -> None:
    """Until each has its file, which a file system makes in 0.8 ms, and the broker is idle again."""
    wait_until(lambda: sum(1 for _ in queues.glob(f"{TOPIC}*/0/0*")) >= count, "files of all queues", QUEUES_MADE_S)
    before_s = -1.0
    while cpu_s(on.pid) - before_s > IDLE_CPU_S:
        before_s = cpu_s(on.pid)
        time.sleep(2)


def write_topics(store: Path, names: list[str]) -> None:
    """What a broker reads at its start; made one by one, 10,000 topics would take it minutes."""
    (store / "config").mkdir(parents=True, exist_ok=True)
    table = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in names}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def connections(sizes: list[int], rounds: int, count: int) -> Iterator[Figure]:
    for size in sizes:
        with broker() as on, ExitStack() as stack:
            remoting.create_topic(on.address, TOPIC, queues=1)
            opened = [stack.enter_context(connect(on)) for _ in range(size)]
            frames = [send_frame(TOPIC, number) for number in range(count)]
            turns = [(opened[number % size], [frame]) for number, frame in enumerate(frames)]
            yield Figure("connections", f"{size:,}", cheapest(on, rounds, count, turns))


def groups(sizes: list[int], rounds: int, count: int) -> Iterator[Figure]:
    for size in sizes:
        with broker() as on, connect(on) as connection:
            remoting.create_topic(on.address, TOPIC, queues=1)
            sends = [send_frame(TOPIC, number) for number in range(4096)]
            for _, batch in turns_on(connection, sends):
                exchange(connection, batch)
            turns: list[Turn] = []
            for number in range(count):
                group = f"growth_{number % size}"
                offset = number % 100 * TOGETHER
                turns.append((connection, [pull_frame(group, number, offset), commit_frame(group, number, offset)]))
            yield Figure("groups", f"{size:,}", cheapest(on, rounds, count, turns))


def store(gib: float, rounds: int, count: int) -> Iterator[Figure]:
    place = Path(tempfile.mkdtemp(prefix="growth-store-"))
    try:
        for size in (0.0, gib):
            directory = place / f"{size:g}"
            if size:
                fill(directory, size)
            began_s = time.monotonic()
            with broker({"mappedFileSizeConsumeQueue": 6_000_000}, directory) as on, connect(on) as connection:
                ready_s = time.monotonic() - began_s
                if not size:
                    remoting.create_topic(on.address, TOPIC, queues=1)
                said = f"{size:g} GiB"
                print(f"  a store of {said} is ready after {ready_s:.1f} s", file=sys.stderr, flush=True)
                frames = [send_frame(TOPIC, number) for number in range(count)]
                yield Figure("store, send", said, cheapest(on, rounds, count, turns_on(connection, frames)))
                end = int(remoting.call(on.address, 30, {"topic": TOPIC, "queueId": 0}).ext["offset"])
                newest = [pull_frame("growth", number, end - TOGETHER) for number in range(500)]
                cost = cheapest(on, rounds, 500 * TOGETHER, turns_on(connection, newest, 1))
                yield Figure("store, pull of the newest", said, cost)
    finally:
        shutil.rmtree(place)


def fill(directory: Path, gib: float) -> None:
    """A store as a broker leaves it, written through the store itself."""
    filled = Store(StoreOptions(root_dir=str(directory)), OsDisk(), ManualClock(time.time_ns() // 1_000_000))
    for number in range(int(gib * (1 << 30)) // len(LARGE_BODY)):
        filled.put(AppendRequest(TOPIC, 0, LARGE_BODY, f"UNIQ_KEY\x01{number:032X}\x02"))
        if number % 10_000 == 0:
            filled.write_queues()
    filled.close()
    write_topics(directory, [TOPIC])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ("topics", "connections", "groups", "store")
    parser.add_argument("kinds", nargs="*", default=list(kinds), metavar="KIND", help=", ".join(kinds))
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--interpreted", action="store_true", help="not the compiled build")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = "" if options.interpreted else str(OVERLAY)  # the harness takes it from there
    rounds, count = options.rounds, options.messages
    makers: dict[str, Callable[[], Iterator[Figure]]] = {
        "topics": lambda: topics([1, 100, 10_000], rounds, count),
        "connections": lambda: connections([1, 100, 2_000], rounds, count // 4),
        "groups": lambda: groups([1, 1_000], rounds, count // 4),
        "store": lambda: store(options.gib, rounds, count),
    }
    found: list[Figure] = []
    for kind in options.kinds:
        for figure in makers[kind]():
            found.append(figure)
            if options.output == "table":
                first = next(other for other in found if other.what == figure.what)
                times = figure.us / first.us
                print(f"{figure.what:28} {figure.size:>8} {figure.us:7.2f} us {times:6.2f}   "
                      f"{'flat' if times <= FLAT_MAX else 'GROWS'}", flush=True)  # fmt: skip
    if options.output == "json":
        print(json.dumps([asdict(figure) for figure in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
