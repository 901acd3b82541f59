"""Timers and filtered pulls beside RocketMQ's broker; transactions are a path of `make bench`.

    python -m benchmarks.messages [timers] [filters] [--timers N] [--precision-ms N]
    make build/compiled/.ready      first, for the compiled build; --interpreted measures the other

    timers         100,000 messages, due at random moments of 60 s; how late each was stored in its topic, and how many
                   were early
    filters        a group with an SQL92 expression that one in five messages passes reads a topic of 1 KiB messages,
                   again and again until a million were read and three reads in a row agree within 5 %: those count

Both brokers run as child processes in the scheduling group of the load, one at a time, with default settings but for
smaller segments and the precision of timers. CPU is the broker's, from /proc.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.nameserver import OVERLAY
from benchmarks.windows import AGREEING, cpu_s, until_agree
from cometmq.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from cometmq.wire.codes import Request
from cometmq.wire.command import FLAG_RESPONSE, Command, encode, request
from cometmq.wire.frame import FrameSplitter
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.properties import decode
from tests.compat.harness.remoting import create_group, create_topic
from tests.compat.harness.servers import Broker, CometBroker, CometNameServer, JavaBroker, NameServer
from tests.support.brokers import pull_request, send_request

TOPIC, GROUP = "BenchmarkTopic", "benchmark_group"
JAVA_OPTIONS = ("-server", "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-Dtls.server.mode=disabled")
TIMER_SPAN_S = 60.0
BODY = bytes(1024)
CONNECTIONS = 4
DEPTH = 64
FILTERED_MESSAGES = 100_000
EXPRESSION = "region IN ('eu', 'us') AND size < 20"


class Wire:
    """A connection that has many requests under way; answers come in any order."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = FrameSplitter()

    def ask(self, commands: list[Command]) -> list[Command]:
        """Answers in the order of the requests."""
        return self.ask_bytes(frames(commands), len(commands))

    def ask_bytes(self, data: bytes, count: int) -> list[Command]:
        self._socket.sendall(data)
        answers: list[Command] = []
        while len(answers) < count:
            received = self._socket.recv(1 << 20)
            if not received:
                raise ConnectionError("the broker closed the connection")
            # A broker tells consumers of changes, too.
            answers += [command for command in self._splitter.feed(received) if command.flag & FLAG_RESPONSE]
        answers.sort(key=lambda answer: answer.opaque)
        return answers

    def close(self) -> None:
        self._socket.close()


def frames(commands: list[Command]) -> bytes:
    for number, command in enumerate(commands):
        command.opaque = number
    return b"".join([encode(command) for command in commands])


# Timers


def timers(broker: Broker, count: int) -> dict[str, float]:
    """Lateness in ms by the times that the broker wrote; CPU of the broker from the first send to the last delivery."""
    wire = Wire(broker.address)
    cpu = cpu_s([broker.pid])
    chance = random.Random(1)
    first_ms = _now_ms() + 15_000 + count * 3 // 10  # the load sends some thousands a second
    wanted = [first_ms + int(chance.random() * TIMER_SPAN_S * 1000) for _ in range(count)]
    for at in range(0, count, DEPTH):
        batch = [
            send_request(TOPIC, BODY, properties={"TIMER_DELIVER_MS": str(due_ms), "wanted": str(due_ms)})
            for due_ms in wanted[at : at + DEPTH]
        ]
        assert all(answer.code == 0 for answer in wire.ask(batch))
    assert _now_ms() < first_ms, "the load was too slow: messages were due before all were sent"
    late = []
    offset = 0
    deadline_s = time.monotonic() + TIMER_SPAN_S * 3
    while offset < count and time.monotonic() < deadline_s:
        found = pull(wire, offset)
        offset += len(found)
        late += [each.store_timestamp_ms - int(decode(each.properties)["wanted"]) for each in found]
        if not found:
            time.sleep(0.5)
    wire.close()
    late.sort()
    return {
        "arrived": len(late),
        "early": sum(ms < 0 for ms in late),
        "median ms": statistics.median(late),
        "p99 ms": late[len(late) * 99 // 100],
        "max ms": late[-1],
        "cpu us": (cpu_s([broker.pid]) - cpu) / count * 1e6,
    }


def pull(wire: Wire, offset: int) -> list[StoredMessage]:
    (answer,) = wire.ask([pull_request(TOPIC, 0, offset, group=GROUP)])
    return decode_records(answer.body) if answer.body else []


def measured(broker: Broker, work: Callable[[int], None], done: Callable[[], int]) -> dict[str, float]:
    """Run `work` on every connection; how many were done in a second, and what one of them cost the broker."""
    cpu, began_s = cpu_s([broker.pid]), time.monotonic()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.monotonic() - began_s
    return {"per s": done() / elapsed_s, "cpu us": (cpu_s([broker.pid]) - cpu) / max(1, done()) * 1e6}


# Filters


def filters(broker: Broker) -> dict[str, float]:
    fill(broker)
    wires = [Wire(broker.address) for _ in range(CONNECTIONS)]
    subscription = SubscriptionData(topic=TOPIC, sub_string=EXPRESSION, expression_type="SQL92", sub_version=1)
    consumer = ConsumerData(
        group_name=GROUP,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscription_data_set=[subscription],
    )
    for number, wire in enumerate(wires):
        body = HeartbeatData(client_id=f"reader-{number}", consumer_data_set=[consumer]).encode()
        assert wire.ask([request(Request.HEART_BEAT, {}, body)])[0].code == 0
    reads: list[dict[str, float]] = []

    def read() -> tuple[float, int]:
        reads.append(filtered_read(broker, wires))
        return reads[-1]["per s"], CONNECTIONS * FILTERED_MESSAGES

    if not until_agree(read):
        print(f"NOT SETTLED: {broker.name} after {len(reads)} reads")
    for wire in wires:
        wire.close()
    return {name: statistics.mean(each[name] for each in reads[-AGREEING:]) for name in reads[0]}


def filtered_read(broker: Broker, wires: list[Wire]) -> dict[str, float]:
    """Every reader reads the whole topic once."""
    counts = [0] * CONNECTIONS

    def work(number: int) -> None:
        offset = 0
        while offset < FILTERED_MESSAGES:
            command = pull_request(TOPIC, 0, offset, group=GROUP, tags=None, sub_version=1, expression_type="SQL92")
            (answer,) = wires[number].ask([command])
            offset = int(answer.ext["nextBeginOffset"])
            counts[number] += count_records(answer.body)

    result = measured(broker, work, lambda: sum(counts))
    assert sum(counts) == CONNECTIONS * FILTERED_MESSAGES // 5, counts
    return result


def count_records(data: bytes) -> int:
    """Each begins with its size."""
    count = at = 0
    while at < len(data):
        at += int.from_bytes(data[at : at + 4], "big")
        count += 1
    return count


def fill(broker: Broker) -> None:
    wire = Wire(broker.address)
    regions = ("eu", "us", "cn", "jp", "br")
    for at in range(0, FILTERED_MESSAGES, DEPTH):
        numbers = range(at, min(at + DEPTH, FILTERED_MESSAGES))
        names = [{"region": regions[number % 5], "size": str(number % 2 * 10 + 10)} for number in numbers]
        while names:  # a busy broker refuses some
            answers = wire.ask([send_request(TOPIC, BODY, properties=each) for each in names])
            names = [each for each, answer in zip(names, answers, strict=True) if answer.code != 0]
    wire.close()


# Brokers


def settings(precision_ms: int) -> dict[str, object]:
    return {
        "mappedFileSizeCommitLog": 256 << 20,
        "mappedFileSizeConsumeQueue": 6_000_000,
        "mappedFileSizeTimerLog": 100 << 20,
        "maxHashSlotNum": 500_000,
        "maxIndexNum": 2_000_000,
        "enablePropertyFilter": True,
        "timerPrecisionMs": precision_ms,
    }


@contextmanager
def running(make: str, namesrv: NameServer, given: dict[str, object]) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory() as directory:
        broker: Broker
        if make == "java":
            broker = JavaBroker(Path(directory), namesrv.address, given, options=JAVA_OPTIONS)
        else:
            broker = CometBroker(Path(directory), namesrv.address, given)
        with broker.start():
            create_topic(broker.address, TOPIC, queues=1)
            create_group(broker.address, GROUP)
            yield broker


def show(title: str, results: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}")
    for make, row in results.items():
        print(f"  {make:8}" + "  ".join(f"{name} {value:,.0f}" for name, value in row.items()))
    if len(results) == 2:
        names = [name for name in results["java"] if name in ("per s", "cpu us")]
        ratios = [f"{name} {results['comet'][name] / results['java'][name]:.2f}" for name in names]
        print("  comet to java: " + ", ".join(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["timers", "filters"])
    parser.add_argument("--timers", type=int, default=100_000)
    parser.add_argument("--precision-ms", type=int, default=100)
    parser.add_argument("--makes", default="java,comet")
    parser.add_argument("--interpreted", action="store_true")
    options = parser.parse_args()
    if not options.interpreted and OVERLAY.exists():
        os.environ["PYTHONPATH"] = str(OVERLAY)
    acts: dict[str, Callable[[Broker], dict[str, float]]] = {
        "timers": lambda broker: timers(broker, options.timers),
        "filters": filters,
    }
    makes = options.makes.split(",")
    with tempfile.TemporaryDirectory() as directory, CometNameServer(Path(directory)).start() as namesrv:
        for part in options.parts:
            results: dict[str, dict[str, float]] = {}
            for make in makes:
                with running(make, namesrv, settings(options.precision_ms)) as broker:
                    results[make] = acts[part](broker)
            show(part, results)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
