"""Synchronous replication, ours and RocketMQ's in one run: sends per second, CPU per message, catch-up rate.

    python -m benchmarks.replication [--seconds N] [--threads N] [--body BYTES] [--log-mb N] [--makes comet,java]
    PYTHONPATH=build/compiled python -m benchmarks.replication        the compiled build

For each make a master (SYNC_MASTER, two copies, ASYNC_FLUSH) and a replica, as processes on this machine:

    sends      a Java producer with synchronous sends; a message counts when the answer was SEND_OK. CPU is that of the
               whole process, master and replica apart
    catch-up   an empty replica gets a log that was there before. The limit beside it is what two processes move over
               the loopback with the same frames of 32 KiB and do nothing with

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
class Figures:
    sends_per_s: float = 0.0
    others: int = 0
    master_us: float = 0.0
    replica_us: float = 0.0
    catch_up_mb_per_s: float = 0.0


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


def measure_catch_up(make: str, directory: Path, namesrv: str, store: Path, end: int) -> float:
    with pair(make, directory, namesrv, store) as (_, replica):
        replica.start()
        connection = remoting.Connection(replica.address)

        def received() -> int:
            status = connection.call(GET_HA_STATUS).json()
            count: int = status["haClientRuntimeInfo"]["maxOffset"]
            return count

        first = wait_until(received, "first bytes at the replica", 60)
        began_s = time.monotonic()
        while (now := received()) < end:
            time.sleep(0.005)
        return (now - first) / (time.monotonic() - began_s) / 1e6


RECEIVE = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
buffer = bytearray(1 << 20)
while link.recv_into(buffer):
    pass
link.close()
"""


def measure_loopback(count: int) -> float:
    """MB/s of frames that nobody looks at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = subprocess.Popen([sys.executable, "-c", RECEIVE, str(server.getsockname()[1])])
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
    return count / took_s / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--log-mb", type=int, default=768)
    parser.add_argument("--makes", default="comet,java")
    options = parser.parse_args()
    makes = options.makes.split(",")
    figures: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with CometNameServer(directory).start() as namesrv:
            java = JavaShell(directory)
            for make in makes:
                figures[make] = measure_sends(make, directory / make, namesrv.address, java, options)
            java.close()
            end = fill_store(directory / "filled", options.log_mb)
            for make in makes:
                rate = measure_catch_up(make, directory / make, namesrv.address, directory / "filled", end)
                figures[make].catch_up_mb_per_s = rate
    limit = measure_loopback(options.log_mb << 20)
    show(figures, limit)


def show(figures: dict[str, Figures], limit: float) -> None:
    print(f"{'make':8}{'sends/s':>10}{'not ok':>8}{'master us':>11}{'replica us':>12}{'catch-up MB/s':>15}")
    for make, row in figures.items():
        print(
            f"{make:8}{row.sends_per_s:10.0f}{row.others:8d}{row.master_us:11.1f}{row.replica_us:12.1f}"
            f"{row.catch_up_mb_per_s:15.0f}"
        )
    print(f"loopback limit {limit:.0f} MB/s")
    if {"comet", "java"} <= figures.keys():
        ours, theirs = figures["comet"], figures["java"]
        cpu = (ours.master_us + ours.replica_us) / (theirs.master_us + theirs.replica_us)
        print(
            f"ours / RocketMQ: sends/s {ours.sends_per_s / theirs.sends_per_s:.2f}, CPU per message {cpu:.2f}, "
            f"catch-up {ours.catch_up_mb_per_s / theirs.catch_up_mb_per_s:.2f}"
        )


if __name__ == "__main__":
    main()
