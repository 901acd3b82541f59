"""Long polling beside RocketMQ's broker: how soon a waiting consumer has a message, and what waiting costs.

    python -m benchmarks.longpoll [--messages N] [--parked N] [--idle SECONDS] [-o json]

    latency     one JVM with a producer and a push consumer, RocketMQ's own: from the call of send() to the call of the
                listener. The next message is sent when the last one has arrived, so the consumer always waits.
    parked      CPU of the broker process with so many pulls parked on 50 connections, less its CPU without them,
                as parts of one core. Nothing arrives meanwhile, and no pull reaches its time.

Both brokers are measured one after the other in the same run, with the same client processes. The compiled build is
used if it exists. Needs Java and Maven, as the compatibility tests do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.broker_path import frame
from benchmarks.footprint import JAVA_OPTIONS
from tests.compat.harness import remoting
from tests.compat.harness.servers import Broker, CometBroker, CometNameServer, JavaBroker, JavaNameServer, NameServer
from tests.compat.harness.shell import JavaShell

OVERLAY = Path(__file__).resolve().parents[1] / "build" / "compiled"
TOPIC = "LongPoll"
PARKED_TOPIC = "Parked"
CONNECTIONS = 50
QUEUES = 100
WARM_UP = 300
SETTLE_S = 3.0
SUSPEND_MS = 600_000
# Waiting longer than any measurement; and a busy machine is not a slow broker.
SETTINGS = {"brokerFastFailureEnable": False, "mappedFileSizeCommitLog": 256 << 20}

MEASURE = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer("longpoll_consumer"));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    java.util.concurrent.SynchronousQueue<Long> arrived = new java.util.concurrent.SynchronousQueue<>();
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        long now = System.nanoTime();
        try {
            for (MessageExt m : messages) arrived.put(now);
        } catch (InterruptedException e) {
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    DefaultMQProducer p = use(new DefaultMQProducer("longpoll_producer"));
    p.setNamesrvAddr(args[0]);
    p.setSendMsgTimeout(20_000);
    p.start();
    int warmUp = Integer.parseInt(args[2]);
    int count = warmUp + Integer.parseInt(args[3]);
    for (int i = 0; i < count; i++) {
        Thread.sleep(5);  // the consumer has asked again
        long began = System.nanoTime();
        p.sendOneway(new Message(args[1], ("message " + i).getBytes()));
        long took = arrived.take() - began;
        if (i >= warmUp) emit(took);
    }
"""


@dataclass
class Figures:
    median_ms: float
    p99_ms: float
    idle_cpu_percent: float
    parked_cpu_percent: float


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def cpu_percent(pid: int, seconds: float) -> float:
    await asyncio.sleep(SETTLE_S)
    began_s = cpu_s(pid)
    await asyncio.sleep(seconds)
    return (cpu_s(pid) - began_s) / seconds * 100


def pull_frame(number: int) -> bytes:
    ext = {
        "consumerGroup": "longpoll_parked", "topic": PARKED_TOPIC, "queueId": str(number % QUEUES), "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": str(SUSPEND_MS),
        "subscription": "*", "subVersion": "1", "expressionType": "TAG",
    }  # fmt: skip
    return frame(11, number, ext)


async def parked_cpu(broker: Broker, count: int, seconds: float) -> tuple[float, float]:
    """CPU of the broker in percent of a core: idle, and with pulls parked."""
    remoting.create_topic(broker.address, PARKED_TOPIC, queues=QUEUES)
    idle = await cpu_percent(broker.pid, seconds)
    host, _, port = broker.address.partition(":")
    links = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS)]
    for number in range(count):
        links[number % CONNECTIONS][1].write(pull_frame(number))
    for _, writer in links:
        await writer.drain()
    parked = await cpu_percent(broker.pid, seconds)
    for reader, writer in links:
        assert not reader._buffer, f"a pull was answered: {bytes(reader._buffer)[:300]!r}"  # type: ignore[attr-defined]
        writer.close()
    return idle, parked


def latencies_ms(java: JavaShell, namesrv: str, count: int) -> list[float]:
    rows = java.run(MEASURE, namesrv, TOPIC, WARM_UP, count, timeout_s=300).rows
    assert len(rows) == count, len(rows)
    return sorted(row / 1e6 for row in rows)


def start(make_name: str, directory: Path, stack: ExitStack) -> tuple[NameServer, Broker]:
    if make_name == "java":
        java_namesrv = stack.enter_context(JavaNameServer(directory / "namesrv", options=JAVA_OPTIONS)).start()
        java = JavaBroker(directory / "broker", java_namesrv.address, SETTINGS, options=JAVA_OPTIONS)
        return java_namesrv, stack.enter_context(java).start()
    namesrv = stack.enter_context(CometNameServer(directory / "namesrv")).start()
    return namesrv, stack.enter_context(CometBroker(directory / "broker", namesrv.address, SETTINGS)).start()


def measure(make_name: str, options: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        directory = Path(text)
        namesrv, broker = start(make_name, directory, stack)
        broker.await_registration()
        remoting.create_topic(broker.address, TOPIC, queues=1)
        idle, parked = asyncio.run(parked_cpu(broker, options.parked, options.idle))
        java = JavaShell(directory)
        try:
            took = latencies_ms(java, namesrv.address, options.messages)
        finally:
            java.close()
    return Figures(took[len(took) // 2], took[len(took) * 99 // 100], idle, parked)


def main() -> int:
    parser = argparse.ArgumentParser(description="Long polling beside RocketMQ's broker.")
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--parked", type=int, default=5_000)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds for each measurement of CPU")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(OVERLAY) if (OVERLAY / ".ready").exists() else ""
    results = {name: measure(name, options) for name in ("java", "comet")}
    if options.output == "json":
        print(json.dumps({name: asdict(figures) for name, figures in results.items()}, indent=1))
        return 0
    print(f"{'':10}{'median':>11}{'p99':>11}{'idle':>10}{f'{options.parked} parked':>16}")
    for name, it in results.items():
        latency = f"{it.median_ms:8.2f} ms{it.p99_ms:8.2f} ms"
        print(f"{name:10}{latency}{it.idle_cpu_percent:8.1f} %{it.parked_cpu_percent:14.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
