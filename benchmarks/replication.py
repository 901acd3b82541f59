"""Synchronous replication, ours and RocketMQ's in one run: sends per second, CPU per message, catch-up rate.

    python -m benchmarks.replication [--seconds N] [--threads N] [--body BYTES] [--log-mb N] [--makes comet,java]
                                     [--only sends|catch-up] [--rounds N]
    PYTHONPATH=$PWD/build/compiled python -m benchmarks.replication   the compiled build; brokers run elsewhere, so the
                                                                      path must be a whole one

For each make a master (SYNC_MASTER, two copies, ASYNC_FLUSH) and a replica, as processes on this machine:

    sends      a Java producer with synchronous sends, until a million messages have passed and three windows agree
               within 5 %: those count. A message counts when the answer was SEND_OK. CPU is that of the whole process,
               master and replica apart; all processes are in one scheduling group
    catch-up   an empty replica gets a log that was there before; the median of `--rounds`, with the CPU of both.
               Beside it what two plain processes move over the loopback in the same rounds with frames of the same
               1 MiB, and what the receiver does with them: nothing; writes them to a file; the same, and syncs that
               file meanwhile; the same, with a thread for the writes; the same, spliced from the socket to the file

The third limit is what a replica owes at least: it reports what is on its disk. A plain loop looks for no records.
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
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.windows import AGREEING, WARM_COUNT, Reading, between, cpu_s, groups_of, settle
from cometmq.clock import ManualClock
from cometmq.store.disk import OsDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.replication.links import BACKLOG_FRAME_BYTES
from cometmq.store.replication.replica import LANDING_BYTES
from cometmq.store.store import Store
from tests.compat.harness import remoting
from tests.compat.harness.processes import wait_until
from tests.compat.harness.servers import Broker, CometBroker, CometNameServer, JavaBroker
from tests.compat.harness.shell import JavaShell

SERVER_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-Dtls.server.mode=disabled")
GET_HA_STATUS = 907
FRAME_BYTES = BACKLOG_FRAME_BYTES
READ_BYTES = LANDING_BYTES
POLL_S = 0.02

SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "messageIndexEnable": False,
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
    settled: bool = True


def typical(rounds: list[CatchUp]) -> CatchUp:
    """What a kernel does varies by half."""
    return CatchUp(
        median(each.mb_per_s for each in rounds),
        median(each.master_ms_per_mb for each in rounds),
        median(each.replica_ms_per_mb for each in rounds),
    )


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
        groups = groups_of([os.getpid(), master.pid, replica.pid])
        if len(groups) != 1:
            raise SystemExit(f"the brokers are in several scheduling groups: {', '.join(sorted(groups))}")
        others: list[int] = []
        replicas: list[Reading] = []

        def read() -> Reading:
            load.send("look")
            seen = load.next()
            others.append(seen["others"])
            at_s = seen["nanos"] / 1e9
            replicas.append(Reading(seen["stored"], cpu_s([replica.pid]), 0.0, at_s))
            return Reading(seen["stored"], cpu_s([master.pid]), 0.0, at_s)

        settled = settle(read, options.seconds, WARM_COUNT)
        load.stop()
    last = between(replicas[-1 - min(AGREEING, settled.windows)], replicas[-1])
    return Figures(
        sends_per_s=settled.whole.per_s,
        others=others[-1] - others[-1 - min(AGREEING, settled.windows)],
        master_us=settled.whole.server_us,
        replica_us=last.server_us,
        settled=settled.settled,
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
        began_s, master_s, replica_s = time.monotonic(), cpu_s([master.pid]), cpu_s([replica.pid])
        while (now := received()) < end:
            time.sleep(POLL_S)
        took_s, moved_mb = time.monotonic() - began_s, (now - first) / 1e6
        master_s, replica_s = cpu_s([master.pid]) - master_s, cpu_s([replica.pid]) - replica_s
        return CatchUp(moved_mb / took_s, master_s / moved_mb * 1000, replica_s / moved_mb * 1000)


RECEIVE = """
import fcntl, os, queue, socket, sys, threading, time
port, end, read_bytes, path, how = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
over = False
if how != "forget":
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, end)

def sync_on():
    while not over:
        os.fdatasync(file)

def receive():
    view = memoryview(bytearray(read_bytes))
    at = 0
    while count := link.recv_into(view):
        if how != "forget":
            os.pwrite(file, view[:count], at)
        at += count

def receive_beside_writes():
    free, full = queue.SimpleQueue(), queue.SimpleQueue()
    def write_on():
        at = 0
        while (part := full.get()) is not None:
            at += os.pwrite(file, part, at)
            free.put(part.obj)
    writing = threading.Thread(target=write_on)
    writing.start()
    for _ in range(4):
        free.put(bytearray(read_bytes))
    while count := link.recv_into(memory := free.get()):
        full.put(memoryview(memory)[:count])
    full.put(None)
    writing.join()

def splice():
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 1 << 20)
    at = 0
    while count := os.splice(link.fileno(), into, 1 << 20):
        while count:
            moved = os.splice(out, file, count, offset_dst=at)
            at += moved
            count -= moved

link = socket.create_connection(("127.0.0.1", port))
began_s = time.process_time()
if how not in ("forget", "write"):
    threading.Thread(target=sync_on).start()
{"thread": receive_beside_writes, "splice": splice}.get(how, receive)()
over = True
print(time.process_time() - began_s, flush=True)
link.close()
"""
LIMITS = {
    "forget": "loopback",
    "write": "into a file",
    "sync": "into a file that is synced",
    "thread": "the same, a thread writes",
    "splice": "the same, spliced",
}


def measure_limit(how: str, count: int, path: Path) -> CatchUp:
    """Frames that nobody looks at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = [sys.executable, "-c", RECEIVE, port, str(count), str(READ_BYTES), str(path), how]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        link, _ = server.accept()
        data = os.urandom(FRAME_BYTES)
        began_s, cpu_began_s = time.monotonic(), time.process_time()
        with link:
            for _ in range(count // FRAME_BYTES):
                link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            link.recv(1)
        took_s, sender_s = time.monotonic() - began_s, time.process_time() - cpu_began_s
        receiver_s = float(child.communicate()[0])
    path.unlink(missing_ok=True)
    moved_mb = count / 1e6
    return CatchUp(moved_mb / took_s, sender_s / moved_mb * 1000, receiver_s / moved_mb * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="how long a window is")
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--log-mb", type=int, default=768)
    parser.add_argument("--makes", default="comet,java")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("sends", "catch-up"), default=None)
    options = parser.parse_args()
    makes = options.makes.split(",")
    figures: dict[str, Figures] = {}
    catch_ups: dict[str, list[CatchUp]] = {}
    limits: dict[str, list[CatchUp]] = {}
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
                for _ in range(options.rounds):
                    for make in makes:
                        caught_up = measure_catch_up(make, directory / make, namesrv.address, filled, end)
                        catch_ups.setdefault(make, []).append(caught_up)
                    for how in LIMITS:
                        limits.setdefault(how, []).append(measure_limit(how, end, directory / "received"))
    show_sends(figures)
    show_catch_up(
        {make: typical(rounds) for make, rounds in catch_ups.items()},
        {LIMITS[how]: typical(rounds) for how, rounds in limits.items()},
    )


def show_sends(figures: dict[str, Figures]) -> None:
    for make, row in figures.items():
        print(
            f"{make}: {row.sends_per_s:.0f} sends/s, not ok {row.others}, CPU of master {row.master_us:.1f} us, "
            f"of replica {row.replica_us:.1f} us{'' if row.settled else ', NOT SETTLED'}"
        )
    if {"comet", "java"} <= figures.keys():
        ours, theirs = figures["comet"], figures["java"]
        cpu = (ours.master_us + ours.replica_us) / (theirs.master_us + theirs.replica_us)
        print(f"ours / RocketMQ: sends/s {ours.sends_per_s / theirs.sends_per_s:.2f}, CPU per message {cpu:.2f}")


def show_catch_up(rows: dict[str, CatchUp], limits: dict[str, CatchUp]) -> None:
    for name, row in {**rows, **limits}.items():
        print(
            f"{name}: {row.mb_per_s:.0f} MB/s, CPU of sender {row.master_ms_per_mb:.2f} ms a MB, "
            f"of receiver {row.replica_ms_per_mb:.2f} ms"
        )
    for name, row in rows.items():
        parts = [f"{row.mb_per_s / limit.mb_per_s:.2f} of {limited}" for limited, limit in limits.items()]
        print(f"{name}: {', '.join(parts)}")
    if {"comet", "java"} <= rows.keys():
        print(f"ours / RocketMQ: catch-up {rows['comet'].mb_per_s / rows['java'].mb_per_s:.2f}")


if __name__ == "__main__":
    main()
