"""Route queries: CometMQ's name server beside RocketMQ's, with the same load from the same client.

    python -m benchmarks.nameserver [--rounds N] [--seconds S] [--connections N] [--depth N] [-o json]

Each server gets one fake broker with 100 topics over a connection that stays open. The load is a process of its own:
N connections, each with a fixed number of queries (request 105, JSON header) under way. It sends bytes that were made
beforehand and counts answers by their length words, so it costs little beside any server. Each server is first asked a
million times, and until three windows in a row agree within 5 %; then the servers take turns. All processes are in one
scheduling group. Printed per server: the median over the rounds of queries a second and of server CPU (user + system,
from /proc) a query, and both as ratios to RocketMQ's.

The compiled build is measured if it exists (`make build/compiled/.ready`); Java needs what the compat tests need.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.windows import cpu_s, groups_of, until_agree
from tests.compat.harness.build import ToolMissing
from tests.compat.harness.processes import Child
from tests.compat.harness.servers import CometNameServer, JavaNameServer

TOPICS = 100
GET_ROUTE, REGISTER_BROKER = 105, 103
VERSION = 513
REPO = Path(__file__).resolve().parents[1]
OVERLAY = REPO / "build" / "compiled"
# Like RocketMQ's own start script, with a heap that fits a small machine and TLS off as on our side.
JAVA_OPTIONS = ("-server", "-Xms1g", "-Xmx1g", "-Dtls.server.mode=disabled")


def topic_name(number: int) -> str:
    return f"BenchmarkTopic{number:04d}"


def frame(code: int, opaque: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    header = {
        "code": code,
        "extFields": ext,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


# The load, run as a process of its own


@dataclass(slots=True)
class Peer:
    """One connection: how many answers it got, and what is left of an answer that is still arriving."""

    socket: socket.socket
    answers: int = 0
    rest: bytes = b""


def load(port: int, connections: int, depth: int, seconds: float) -> int:
    """Keep `depth` queries under way on each connection for `seconds`; gives the number of answers."""
    # Every query is equally long, so that any number of them is one slice of this.
    queries = b"".join(frame(GET_ROUTE, 10_000 + n, {"topic": topic_name(n % TOPICS)}) for n in range(1_000))
    query_bytes = len(queries) // 1_000
    selector = selectors.DefaultSelector()
    peers = [Peer(socket.create_connection(("127.0.0.1", port))) for _ in range(connections)]
    for peer in peers:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(peer.socket, selectors.EVENT_READ, peer)
        peer.socket.sendall(queries[: depth * query_bytes])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in selector.select(1):
            peer = key.data
            count = take(peer)
            peer.answers += count
            # Somewhere in the buffer, so that all topics are asked for.
            at = peer.answers % (1_000 - depth) * query_bytes
            peer.socket.sendall(queries[at : at + count * query_bytes])
    return sum(peer.answers for peer in peers)


def take(peer: Peer) -> int:
    """How many answers one read completed."""
    data = peer.rest + peer.socket.recv(1 << 18)
    position = count = 0
    size = len(data)
    while size - position >= 4:
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        if end > size:
            break
        position = end
        count += 1
    peer.rest = data[position:]
    if not data:
        raise ConnectionError("the server closed a connection")
    return count


# The servers


@dataclass(slots=True)
class Subject:
    name: str
    server: Child
    port: int = 0
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)


@contextmanager
def registered(port: int) -> Iterator[None]:
    """A broker with its topics, as long as its connection is open."""
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    table = {
        topic_name(n): {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic_name(n),
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for n in range(TOPICS)
    }
    wrapper = {"dataVersion": version, "mappingDataVersion": version, "topicConfigTable": table}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    ext = {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:10912",
        "brokerId": "0",
        "enableActingMaster": "false",
        "heartbeatTimeoutMillis": "3600000",
    }
    with socket.create_connection(("127.0.0.1", port)) as broker:
        broker.sendall(frame(REGISTER_BROKER, 1, ext, body))
        answer = broker.recv(65_536)
        if b'"code":0' not in answer:
            raise RuntimeError(f"registration was refused: {answer!r}")
        check_route(port)
        yield


def check_route(port: int) -> None:
    """Both servers must say the same, or the comparison means nothing."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(frame(GET_ROUTE, 1, {"topic": topic_name(7)}))
        answer = client.recv(65_536)
    expected = (
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]'
    )
    if expected not in answer:
        raise RuntimeError(f"not the route that was registered: {answer!r}")


def measure(subject: Subject, options: argparse.Namespace, seconds: float) -> tuple[float, float]:
    """Queries a second, and microseconds of server CPU a query."""
    command = [sys.executable, "-m", "benchmarks.nameserver", "--load", str(subject.port)]
    command += ["--connections", str(options.connections), "--depth", str(options.depth), "--seconds", str(seconds)]
    cpu_before = cpu_s([subject.server.pid])
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True)
    cpu = cpu_s([subject.server.pid]) - cpu_before
    answers = int(done.stdout)
    return answers / seconds, cpu * 1e6 / answers


def warm(subject: Subject, options: argparse.Namespace) -> None:
    def window() -> tuple[float, int]:
        rate, _ = measure(subject, options, options.seconds)
        return rate, round(rate * options.seconds)

    if not until_agree(window):
        print(f"NOT SETTLED: {subject.name}", file=sys.stderr)


def subjects(directory: Path, overlay: Path) -> list[Subject]:
    found = []
    try:
        found.append(Subject("rocketmq", JavaNameServer(directory / "java", options=JAVA_OPTIONS)))
    except ToolMissing as error:
        print(f"NOT MEASURED: RocketMQ's name server: {error}", file=sys.stderr)
    if overlay.exists():
        compiled = CometNameServer(directory / "compiled", name="comet-compiled")
        compiled.env["PYTHONPATH"] = str(overlay)
        found.append(Subject("cometmq compiled", compiled))
    else:
        print("NOT MEASURED: the compiled build; make build/compiled/.ready makes it", file=sys.stderr)
    interpreted = CometNameServer(directory / "interpreted", name="comet-interpreted")
    interpreted.env["PYTHONPATH"] = str(REPO / "src")
    found.append(Subject("cometmq interpreted", interpreted))
    return found


def run(options: argparse.Namespace) -> list[Subject]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cometmq-bench-")))
        measured = subjects(directory, options.overlay)
        for subject in measured:
            stack.enter_context(subject.server)
            subject.server.start()
            subject.port = int(str(getattr(subject.server, "address")).rpartition(":")[2])  # noqa: B009
            stack.enter_context(registered(subject.port))
        groups = groups_of([os.getpid(), *(subject.server.pid for subject in measured)])
        if len(groups) != 1:
            raise SystemExit(f"the servers are in several scheduling groups: {', '.join(sorted(groups))}")
        for subject in measured:
            warm(subject, options)
        for _ in range(options.rounds):
            for subject in measured:
                rate, cpu = measure(subject, options, options.seconds)
                subject.rates.append(rate)
                subject.cpu_us.append(cpu)
                print(f"{subject.name:20} {rate:10,.0f} queries/s {cpu:8.2f} us CPU a query", file=sys.stderr)
        return measured


def report(measured: list[Subject]) -> list[dict[str, object]]:
    base = next((subject for subject in measured if subject.name == "rocketmq"), None)
    rows: list[dict[str, object]] = []
    for subject in measured:
        rate, cpu = statistics.median(subject.rates), statistics.median(subject.cpu_us)
        row: dict[str, object] = {"server": subject.name, "queries_per_s": round(rate), "cpu_us": round(cpu, 2)}
        if base is not None:
            row["rate_ratio"] = round(rate / statistics.median(base.rates), 2)
            row["cpu_ratio"] = round(cpu / statistics.median(base.cpu_us), 3)
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.nameserver")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--overlay", type=Path, default=OVERLAY, help="where the compiled build is")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("--load", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        print(load(options.load, options.connections, options.depth, options.seconds))
        return 0
    rows = report(run(options))
    if options.output == "json":
        print(json.dumps(rows))
        return 0
    for row in rows:
        print("  ".join(f"{name}={value}" for name, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
