"""What clients cost: sends and receives a second, latency, and CPU of the client for one message.

    python -m benchmarks.client [--messages N] [--rounds N] [--only comet,compiled,java,official] [--broker java]

One broker for all, started here: ours, compiled if `make build/compiled/.ready` was run, or RocketMQ's. Then, one after
the other and in turns, the clients: ours interpreted and compiled, RocketMQ's Java client, and the official Python
client through RocketMQ's gRPC proxy. The last needs `--official-python` (an interpreter that has
`rocketmq-python-client`) and `--proxy-lib` (a directory with the jars of org.apache.rocketmq:rocketmq-proxy).

    one        one message of 1 KiB at a time, the next when its receipt is there; latency is of these
    window     64 of them under way
    batch      messages of 100 bytes, as the client sends many: send_many, or collections of 1000 in Java
    receive    what `batch` sent, by a push consumer with default settings, from its first message to its last

Every client is a process of its own and says itself what CPU it used; the JVM lives through all rounds, so that the
last ones show it warm. Nothing is pinned: on two cores broker and client share them with everything else, so compare
rounds of one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.compat.harness.java import CURRENT, OPENED, release
from tests.compat.harness.processes import Child, free_ports
from tests.compat.harness.remoting import create_topic
from tests.compat.harness.servers import CometBroker, CometNameServer, JavaBroker, JavaNameServer
from tests.compat.harness.shell import JavaShell

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
SETTINGS = {
    "mappedFileSizeCommitLog": 256 * MIB,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "brokerFastFailureEnable": False,
}
JVM = ("-Xms512m", "-Xmx1g", "-XX:-UsePerfData", "-Dtls.server.mode=disabled")
RUN_TIMEOUT_S = 600.0
MODES = ("one", "window", "batch", "receive")

JAVA = """
    import com.sun.management.OperatingSystemMXBean;
    import java.lang.management.ManagementFactory;
    OperatingSystemMXBean os = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    String topic = args[1];
    int count = Integer.parseInt(args[3]);
    if (args[2].equals("receive")) {
        DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(topic + "_java_" + System.nanoTime()));
        c.setNamesrvAddr(args[0]);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.subscribe(topic, "*");
        AtomicLong left = new AtomicLong(count), first = new AtomicLong(), cpu = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (first.compareAndSet(0, System.nanoTime())) cpu.set(os.getProcessCpuTime());
            if (left.addAndGet(-messages.size()) <= 0) done.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        done.await();
        emit("seconds", (System.nanoTime() - first.get()) / 1e9, "cpu", (os.getProcessCpuTime() - cpu.get()) / 1e9,
            "latencies", List.of());
        return;
    }
    DefaultMQProducer p = use(new DefaultMQProducer("bench_java_" + System.nanoTime()));
    p.setNamesrvAddr(args[0]);
    p.setSendMsgTimeout(20_000);
    p.start();
    byte[] body = new byte[args[2].equals("batch") ? 100 : 1024];
    List<Long> latencies = new ArrayList<>();
    for (int i = 0; i < 5_000; i++) p.send(new Message(topic + "_warm", body));
    long began = System.nanoTime(), cpu = os.getProcessCpuTime();
    if (args[2].equals("one")) {
        for (int i = 0; i < count; i++) {
            long at = System.nanoTime();
            p.send(new Message(topic, body));
            latencies.add((System.nanoTime() - at) / 1000);
        }
    } else if (args[2].equals("window")) {
        Semaphore window = new Semaphore(64);
        for (int i = 0; i < count; i++) {
            window.acquire();
            p.send(new Message(topic, body), new SendCallback() {
                public void onSuccess(SendResult r) { window.release(); }
                public void onException(Throwable e) { emit(e.toString()); window.release(); }
            });
        }
        window.acquire(64);
    } else {
        for (int i = 0; i < count; i += 1000) {
            List<Message> chunk = new ArrayList<>();
            for (int j = 0; j < 1000; j++) chunk.add(new Message(topic, body));
            p.send(chunk);
        }
    }
    emit("seconds", (System.nanoTime() - began) / 1e9, "cpu", (os.getProcessCpuTime() - cpu) / 1e9,
        "latencies", latencies);
"""


class Proxy(Child):
    """RocketMQ's gRPC proxy in front of the cluster."""

    def __init__(self, directory: Path, namesrv: str, lib: Path) -> None:
        super().__init__("proxy", directory)
        self.port = free_ports(0, 1)
        self._namesrv = namesrv
        self._lib = lib

    def command(self) -> list[str]:
        conf = self.directory / "proxy.json"
        ports = {"grpcServerPort": self.port, "remotingListenPort": self.port + 1}
        conf.write_text(json.dumps({"rocketMQClusterName": "compat", "namesrvAddr": self._namesrv, **ports}))
        home = [f"-Duser.home={self.home}", f"-Drocketmq.home.dir={self.home}"]
        main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(conf), "-pm", "cluster", "-n", self._namesrv]
        return ["java", "-Xmx1g", *OPENED, *home, "-cp", f"{self._lib}/*", *main]

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while "startup successfully" not in self.log():
            if time.monotonic() > deadline:
                raise SystemExit(f"the proxy did not start\n{self.log_tail()}")
            time.sleep(0.2)
        time.sleep(5)  # it serves routes some seconds after it says so


Figures = dict[str, float]


def figures(count: int, seconds: float, cpu: float, latencies: list[float]) -> Figures:
    found = {"rate": count / seconds, "cpu_us": cpu / count * 1e6}
    if latencies:
        latencies.sort()
        found["p50_us"] = latencies[len(latencies) // 2]
        found["p99_us"] = latencies[len(latencies) * 99 // 100]
    return found


class Bench:
    def __init__(self, options: argparse.Namespace, directory: Path, stack: ExitStack) -> None:
        self._options = options
        self._directory = directory
        self._stack = stack
        self._java: JavaShell | None = None
        self._proxy: Proxy | None = None
        if options.broker == "java":
            names: CometNameServer | JavaNameServer = JavaNameServer(directory, options=JVM)
            stack.enter_context(names.start())
            broker: CometBroker | JavaBroker = JavaBroker(directory, names.address, SETTINGS, options=JVM)
        else:
            names = CometNameServer(directory)
            stack.enter_context(names.start())
            broker = CometBroker(directory, names.address, SETTINGS)
            if options.overlay.is_dir():
                broker.env["PYTHONPATH"] = f"{options.overlay}{os.pathsep}{broker.env['PYTHONPATH']}"
        self._namesrv = names.address
        self._broker = stack.enter_context(broker.start())

    def topic(self, name: str) -> str:
        create_topic(self._broker.address, name, 8)
        return name

    def run(self, client: str, mode: str, topic: str, count: int) -> Figures:
        if client == "java":
            return self._run_java(mode, topic, count)
        if client == "official":
            return self._run_official(mode, topic, count)
        path = str(ROOT / "src") if client == "comet" else f"{self._options.overlay}{os.pathsep}{ROOT / 'src'}"
        command = [sys.executable, "-m", "benchmarks.client_load", self._namesrv, topic, mode, str(count)]
        return self._run_child(command, {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}, count)

    def _run_child(self, command: list[str], env: dict[str, str], count: int) -> Figures:
        done = subprocess.run(
            command, env={**os.environ, **env}, stdout=subprocess.PIPE, check=True, timeout=RUN_TIMEOUT_S, cwd=ROOT
        )
        said = json.loads(done.stdout.splitlines()[-1])
        return figures(count, said["seconds"], said["cpu"], said["latencies"])

    def _run_java(self, mode: str, topic: str, count: int) -> Figures:
        if self._java is None:
            self._java = JavaShell(self._directory, CURRENT, options=JVM)
            self._stack.callback(self._java.close)
            self.topic(f"{topic}_warm")
        row = self._java.run(JAVA, self._namesrv, topic, mode, count, timeout_s=RUN_TIMEOUT_S).rows[-1]
        return figures(count, row["seconds"], row["cpu"], row["latencies"])

    def _run_official(self, mode: str, topic: str, count: int) -> Figures:
        if self._proxy is None:
            self._proxy = Proxy(self._directory, self._namesrv, self._options.proxy_lib)
            self._stack.enter_context(self._proxy.start())
        address = f"127.0.0.1:{self._proxy.port}"
        script = str(ROOT / "benchmarks" / "client_official.py")
        command = [str(self._options.official_python), script, address, topic, mode, str(count)]
        return self._run_child(command, {"HOME": str(self._directory)}, count)


@contextmanager
def started(options: argparse.Namespace) -> Iterator[Bench]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)))
        yield Bench(options, directory, stack)


def counts(client: str, mode: str, messages: int) -> int:
    """One at a time a fifth; the official client is so much slower that a fiftieth must do."""
    count = messages * 4 if mode in ("batch", "receive") else messages // 5 if mode == "one" else messages
    return max(1000, count // (50 if client == "official" else 1) // 1000 * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="comet,compiled,java")
    parser.add_argument("--broker", choices=["comet", "java"], default="comet")
    parser.add_argument("--overlay", type=Path, default=ROOT / "build" / "compiled", help="the compiled build")
    parser.add_argument("--official-python", type=Path)
    parser.add_argument("--proxy-lib", type=Path)
    options = parser.parse_args()
    clients = options.only.split(",")
    if "compiled" in clients and not options.overlay.is_dir():
        sys.exit(f"there is no compiled build in {options.overlay}: run make build/compiled/.ready")
    if "official" in clients and not (options.official_python and options.proxy_lib):
        sys.exit("the official client needs --official-python and --proxy-lib")
    if {"java", "official"} & set(clients) or options.broker == "java":
        release()
    found: dict[tuple[str, str], list[Figures]] = {}
    with started(options) as bench:
        for number in range(options.rounds):
            for client in clients:
                for mode in MODES:
                    if client == "official" and mode == "batch":
                        continue  # it has none
                    count = counts(client, mode, options.messages)
                    topic = f"Bench_{client}_{'batch' if mode == 'receive' else mode}_{number}"
                    if mode != "receive" or client == "official":
                        bench.topic(topic)
                    if mode == "receive" and client == "official":
                        bench.run("comet", "batch", topic, count)
                    found.setdefault((client, mode), []).append(bench.run(client, mode, topic, count))
                    print(f"round {number} {client} {mode}: {found[client, mode][-1]}", file=sys.stderr)
    report(clients, found)


def report(clients: list[str], found: dict[tuple[str, str], list[Figures]]) -> None:
    """The median of all rounds."""
    print(f"{'client':10} {'mode':8} {'a second':>10} {'CPU us':>8} {'p50 us':>8} {'p99 us':>8}")
    for client in clients:
        for mode in MODES:
            rounds = found.get((client, mode), [])
            if not rounds:
                continue
            values = [
                statistics.median(each[name] for each in rounds) if name in rounds[0] else None
                for name in ("rate", "cpu_us", "p50_us", "p99_us")
            ]
            shown = ["-" if value is None else f"{value:,.0f}" if value > 100 else f"{value:.1f}" for value in values]
            print(f"{client:10} {mode:8} {shown[0]:>10} {shown[1]:>8} {shown[2]:>8} {shown[3]:>8}")


if __name__ == "__main__":
    main()
