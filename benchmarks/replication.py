"""Synchronous replication, ours and RocketMQ's in one run: sends per second, CPU per message, catch-up rate.

    python -m benchmarks.replication [--seconds N] [--threads N] [--body BYTES] [--log-mb N] [--makes comet,java]
                                     [--only sends|catch-up] [--rounds N]
    PYTHONPATH=$PWD/build/compiled python -m benchmarks.replication   the compiled build; brokers run elsewhere, so the
                                                                      path must be a whole one

For each make a master (SYNC_MASTER, two copies, ASYNC_FLUSH) and a replica, as processes on this machine:

    sends      a Java producer with synchronous sends; a message counts when the answer was SEND_OK. CPU is that of the
               whole process, master and replica apart
    catch-up   an empty replica gets a log that was there before; the median of `--rounds`, with the CPU of both.
               Beside it what two processes move over the loopback in the same run with frames of the same 32 KiB and
               a plain loop each, and do with it: nothing; write it to a file; the same, and sync that file meanwhile

The last limit is what a replica owes at least: it reports what is on its disk. A plain loop looks for no records.
Ours reports what is on its disk, RocketMQ's replica what it has appended: the figures compare unequal promises.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from cometmq.clock import ManualClock
from cometmq.store.disk import OsDisk
from cometmq.store.options import StoreOptions
from cometmq.store.puts import AppendRequest
from cometmq.store.store import Store
from tests.compat.harness import remoting
from tests.compat.harness.processes import wait_until
from tests.compat.harness.servers import Broker, CometBroker, CometNameServer, JavaBroker
from tests.compat.harness.shell import JavaShell

SERVER_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-Dtls.server.mode=disabled")
GET_HA_STATUS = 907
FRAME_BYTES = 32 << 10
WARM_UP_S = 8
POLL_S = 0.02
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "messageIndexEnable": False,
    "brokerFastFailureEnable": False,
    "inSyncReplicas": 2,
    "haSendHeartbeatInterval": 500,
}
LOAD = """
    DefaultMQProducer p = use(new DefaultMQProducer("bench"));
    p.setNamesrvAddr(args[0]);
    p.start();
    byte[] body = new byte[Integer.parseInt(args[3])];
    AtomicLong stored = new AtomicLong();
    AtomicLong others = new AtomicLong();
    AtomicBoolean over = new AtomicBoolean();
    Runnable work = () -> {
        while (!over.get()) {
            try {
                SendResult r = p.send(new Message(args[1], body), 10_000);
                (r.getSendStatus() == SendStatus.SEND_OK ? stored : others).incrementAndGet();
            } catch (Exception e) {
                others.incrementAndGet();
            }
        }
    };
    for (int i = 0; i < Integer.parseInt(args[2]); i++) new Thread(work).start();
    while (receive() != null) emit("stored", stored.get(), "others", others.get(), "nanos", System.nanoTime());
    over.set(true);
    Thread.sleep(500);
"""


@dataclass(slots=True)
class CatchUp:
    mb_per_s: float
    master_ms_per_mb: float
    replica_ms_per_mb: float


@dataclass(slots=True)
class Figures:
    sends_per_s: float = 0.0
    others: int = 0
    master_us: float = 0.0
    replica_us: float = 0.0
    catch_ups: list[CatchUp] = field(default_factory=list)

    @property
    def catch_up(self) -> CatchUp:
        return sorted(self.catch_ups, key=lambda each: each.mb_per_s)[len(self.catch_ups) // 2]


def cpu_s(broker: Broker) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def make_broker(make: str, directory: Path, namesrv: str, **settings: object) -> Broker:
    directory.mkdir(parents=True)
    if make == "java":
        return JavaBroker(directory, namesrv, {**SETTINGS, **settings}, options=SERVER_JVM)
    return CometBroker(directory, namesrv, {**SETTINGS, **settings})


@contextmanager
def pair(make: str, directory: Path, namesrv: str, store: Path | None = None) -> Iterator[tuple[Broker, Broker]]:
    """A master, on an existing store if one is given, and a replica that is not started yet."""
    master = make_broker(make, directory / "master", namesrv, brokerRole="SYNC_MASTER")
    if store is not None:
        shutil.copytree(store, master.store)
        os.sync()  # so that the replica has the disk for itself
    replica = make_broker(make, directory / "replica", namesrv, brokerRole="SLAVE", brokerId=1)
    with master, replica:
        master.start()
        yield master, replica
    shutil.rmtree(directory)


def measure_sends(make: str, directory: Path, namesrv: str, java: JavaShell, options: argparse.Namespace) -> Figures:
    with pair(make, directory, namesrv) as (master, replica):
        topic = f"Bench_{make}"
        remoting.create_topic(master.address, topic, queues=16)
        replica.start()
        wait_until(lambda: _has_replica(master), f"replica of {make}", 60)
        load = java.begin(LOAD, namesrv, topic, str(options.threads), str(options.body))
        time.sleep(WARM_UP_S)
        load.send("look")
        first, master_s, replica_s = load.next(), cpu_s(master), cpu_s(replica)
        time.sleep(options.seconds)
        load.send("look")
        last, master_s, replica_s = load.next(), cpu_s(master) - master_s, cpu_s(replica) - replica_s
        load.stop()
    count = last["stored"] - first["stored"]
    return Figures(
        sends_per_s=count / (last["nanos"] - first["nanos"]) * 1e9,
        others=last["others"] - first["others"],
        master_us=master_s / max(1, count) * 1e6,
        replica_us=replica_s / max(1, count) * 1e6,
    )


def _has_replica(master: Broker) -> bool:
    links = remoting.call(master.address, GET_HA_STATUS).json()["haConnectionInfo"]
    return any(link["inSync"] and link["slaveAckOffset"] >= 0 for link in links)


def fill_store(directory: Path, log_mb: int) -> int:
    """A store with so much in its log, all in one segment; returns the end of the log."""
    options = StoreOptions(root_dir=str(directory), index_enabled=False)
    store = Store(options, OsDisk(), ManualClock(time.time_ns() // 1_000_000))
    body = os.urandom(1024)
    number = 0
    while store.log.max_offset < log_mb << 20:
        store.put(AppendRequest("Filled", number % 16, body))
        number += 1
        if number % 10_000 == 0:
            store.write_queues()
    end = store.log.max_offset
    store.close()
    return end


def measure_catch_up(make: str, directory: Path, namesrv: str, store: Path, end: int) -> CatchUp:
    with pair(make, directory, namesrv, store) as (master, replica):
        replica.start()
        connection = remoting.Connection(replica.address)

        def received() -> int:
            status = connection.call(GET_HA_STATUS).json()
            count: int = status["haClientRuntimeInfo"]["maxOffset"]
            return count

        first = wait_until(received, "first bytes at the replica", 60)
        began_s, master_s, replica_s = time.monotonic(), cpu_s(master), cpu_s(replica)
        while (now := received()) < end:
            time.sleep(POLL_S)
        took_s, moved_mb = time.monotonic() - began_s, (now - first) / 1e6
        master_s, replica_s = cpu_s(master) - master_s, cpu_s(replica) - replica_s
        return CatchUp(moved_mb / took_s, master_s / moved_mb * 1000, replica_s / moved_mb * 1000)


RECEIVE = """
import os, socket, sys, threading
port, end, path, sync = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "sync"
view = memoryview(bytearray(1 << 20))
over = False
if path:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, end)
def sync_on():
    while not over:
        os.fdatasync(file)
syncing = threading.Thread(target=sync_on)
link = socket.create_connection(("127.0.0.1", port))
if sync:
    syncing.start()
at = 0
while count := link.recv_into(view):
    if path:
        os.pwrite(file, view[:count], at)
    at += count
over = True
link.close()
"""


def measure_loopback(count: int, path: Path | None = None, sync: bool = False) -> float:
    """MB/s of frames that nobody looks at; `path`: they are written to that file."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        how = "sync" if sync else ""
        child = subprocess.Popen([sys.executable, "-c", RECEIVE, port, str(count), str(path or ""), how])
        link, _ = server.accept()
        data = os.urandom(FRAME_BYTES)
        began_s = time.monotonic()
        with link:
            for _ in range(count // FRAME_BYTES):
                link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            link.recv(1)
        took_s = time.monotonic() - began_s
        child.wait()
    if path is not None:
        path.unlink()
    return count / took_s / 1e6


def measure_limits(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    """The median of the rounds of each, because what the kernel does varies by half."""
    count = options.log_mb << 20
    file = directory / "received"
    ways: dict[str, tuple[Path | None, bool]] = {
        "loopback": (None, False),
        "into a file": (file, False),
        "into a file that is synced": (file, True),
    }
    return {
        name: median([measure_loopback(count, path, sync) for _ in range(max(3, options.rounds))])
        for name, (path, sync) in ways.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--log-mb", type=int, default=768)
    parser.add_argument("--makes", default="comet,java")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("sends", "catch-up"), default=None)
    options = parser.parse_args()
    makes = options.makes.split(",")
    figures: dict[str, Figures] = {}
    limits: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with CometNameServer(directory).start() as namesrv:
            if options.only != "catch-up":
                java = JavaShell(directory)
                for make in makes:
                    figures[make] = measure_sends(make, directory / make, namesrv.address, java, options)
                java.close()
            if options.only != "sends":
                filled = directory / "filled"
                end = fill_store(filled, options.log_mb)
                for make in makes * options.rounds:
                    caught_up = measure_catch_up(make, directory / make, namesrv.address, filled, end)
                    figures.setdefault(make, Figures()).catch_ups.append(caught_up)
                limits = measure_limits(directory, options)
    show_sends(figures)
    show_catch_up(figures, limits)


def show_sends(figures: dict[str, Figures]) -> None:
    rows = {make: row for make, row in figures.items() if row.sends_per_s}
    for make, row in rows.items():
        print(
            f"{make}: {row.sends_per_s:.0f} sends/s, not ok {row.others}, CPU of master {row.master_us:.1f} us, "
            f"of replica {row.replica_us:.1f} us"
        )
    if {"comet", "java"} <= rows.keys():
        ours, theirs = rows["comet"], rows["java"]
        cpu = (ours.master_us + ours.replica_us) / (theirs.master_us + theirs.replica_us)
        print(f"ours / RocketMQ: sends/s {ours.sends_per_s / theirs.sends_per_s:.2f}, CPU per message {cpu:.2f}")


def show_catch_up(figures: dict[str, Figures], limits: dict[str, float]) -> None:
    rows = {make: row.catch_up for make, row in figures.items() if row.catch_ups}
    for make, row in rows.items():
        print(
            f"{make}: catch-up {row.mb_per_s:.0f} MB/s, CPU of master {row.master_ms_per_mb:.2f} ms a MB, "
            f"of replica {row.replica_ms_per_mb:.2f} ms"
        )
        for name, limit in limits.items():
            print(f"    {row.mb_per_s / limit:.2f} of {name}, {limit:.0f} MB/s")
    if {"comet", "java"} <= rows.keys():
        print(f"ours / RocketMQ: catch-up {rows['comet'].mb_per_s / rows['java'].mb_per_s:.2f}")


if __name__ == "__main__":
    main()
