"""The topics that `benchmarks.spark` reads: the same bodies in a store directory, behind our broker, and in Kafka.

    KEEP/BYTES-COUNT/store          written by the store itself, topic `bench`, four queues by turns
    KEEP/BYTES-COUNT/kafka          a Kafka broker's directory, filled from the store by Spark's Kafka sink

Both are made once and used by later runs. A body is a line of JSON with words in it, each another, so that it can be
compressed about as well as orders and logs can. Each message has tag, key and the properties that a client adds.

    python -m benchmarks.spark_topics fill DIRECTORY COUNT BYTES
    python -m benchmarks.spark_topics trickle NAMESRV TOPIC PER_SECOND SECONDS BYTES
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.compat.harness.build import REPO, once, run_tool, tool
from tests.compat.harness.processes import START_TIMEOUT_S, Child, free_ports, wait_until
from tests.compat.harness.servers import CometBroker, CometNameServer

TOPIC: Final = "bench"
STREAM_TOPIC: Final = "trickle"
QUEUES: Final = 4
OVERLAY: Final = REPO / "build" / "compiled"
FILES: Final = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "fileReservedTime": 1_000_000,
}
_WORDS: Final = (b"amber", b"birch", b"cedar", b"delta", b"ember", b"fjord", b"grove", b"haven", b"inlet", b"jetty")


def bodies(count: int, size: int) -> Iterator[bytes]:
    chance = random.Random(size)
    text = b" ".join(b"%s%d" % (chance.choice(_WORDS), chance.randrange(1000)) for _ in range(1 << 20))
    for number in range(count):
        head = b'{"order": %d, "note": "' % number
        left = max(0, size - len(head) - 2)
        # Far enough from the one before, and not again for a while: no compression sees the same text twice.
        at = number * 1_299_709 % (len(text) - left)
        yield head + text[at : at + left] + b'"}'


def fill_store(directory: str, count: int, size: int) -> None:
    """All of it through `Store.put`, with consume queues and index, as a broker would have written it."""
    from cometmq.clock import SystemClock
    from cometmq.store.disk import OsDisk
    from cometmq.store.log.append import AppendRequest
    from cometmq.store.options import StoreOptions
    from cometmq.store.results import PutStatus
    from cometmq.store.store import Store

    store = Store(StoreOptions(root_dir=directory, segment_bytes=1 << 30), OsDisk(), SystemClock())
    for number, body in enumerate(bodies(count, size)):
        properties = (
            f"KEYS\x01order-{number}\x02UNIQ_KEY\x017F0000010C2B18B4AAC2{number:012X}\x02"
            "CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02TAGS\x01paid\x02"
        )
        born_ms = time.time_ns() // 1_000_000
        done = store.put(AppendRequest(TOPIC, number % QUEUES, body, properties, born_time_ms=born_ms))
        assert done.status == PutStatus.OK, done
        if number % 100_000 == 0:
            store.flush_queues_now()
    store.flush_now()
    store.close()


class Filled:
    """One filled directory, made if it is not there."""

    def __init__(self, keep: Path, count: int, size: int) -> None:
        self.count = count
        self.size = size
        self.directory = keep.resolve() / f"{size}-{count}"
        self.store = self.directory / "store"

    def make_store(self) -> Filled:
        done = self.directory / "store.done"
        if not done.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            _run_here("fill", str(self.store), str(self.count), str(self.size))
            done.touch()
        return self

    @contextmanager
    def served(self) -> Iterator[str]:
        """Our name server and broker on the store; the name server's address. Compiled, where that was built."""
        self.make_store()
        before = os.environ.get("PYTHONPATH")
        if OVERLAY.is_dir():
            os.environ["PYTHONPATH"] = str(OVERLAY)
        try:
            with CometNameServer(self.directory) as names:
                names.start()
                paths = {"storePathRootDir": self.store, "storePathCommitLog": self.store / "commitlog"}
                with CometBroker(self.directory, names.address, {**FILES, **paths}) as broker:
                    broker.start()
                    for topic in (TOPIC, STREAM_TOPIC):
                        _make_topic(names.address, topic)
                    yield names.address
                    broker.stop()
        finally:
            os.environ.pop("PYTHONPATH", None)
            if before is not None:
                os.environ["PYTHONPATH"] = before


def _make_topic(namesrv: str, topic: str) -> None:
    from cometmq import Client

    async def main() -> None:
        async with Client(namesrv) as client:
            await client.admin().create_topic(topic, queues=QUEUES)

    asyncio.run(main())


# Kafka


def kafka_jars(name: str) -> Path:
    """build/kafka/NAME/lib: `broker`, or `source` for `spark.jars`."""
    pom = REPO / "benchmarks" / "kafka" / name / "pom.xml"

    def fetch(target: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}/lib"]
        run_tool("mvn", "-B", "-q", "-f", pom, *goal, cwd=target)

    return once(f"kafka/{name}", [pom], fetch) / "lib"


class KafkaBroker(Child):
    """One Kafka broker that is its own controller, with the settings that it comes with."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__("kafka", directory)
        self.port = free_ports(0, 1)
        self.address = f"127.0.0.1:{self.port}"
        self.conf = directory / "server.properties"

    def java(self, main: str, *args: str, heap: str = "1g") -> list[str]:
        options = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC"]
        return [tool("java"), *options, "-cp", f"{kafka_jars('broker')}/*", main, *args]

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """It logs nothing without a library for that; it serves when it can be reached."""
        wait_until(self._can_be_reached, f"start of Kafka, see {self.log_path}", timeout_s)

    def _can_be_reached(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def command(self) -> Sequence[str]:
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.port + 1}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.directory / "data",
            "num.partitions": QUEUES,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "log.retention.hours": 1000,
        }
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.directory / "data" / "meta.properties").exists():
            cluster = "MkU3OEVBNTcwNTJENDM2Qg"
            format_it = self.java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.conf), heap="128m")
            subprocess.run(format_it, check=True, stdout=subprocess.DEVNULL, timeout=60)
        return self.java("kafka.Kafka", str(self.conf))

    def trickle(self, per_second: int, seconds: float, size: int) -> list[str]:
        """The command that sends so many a second, with Kafka's own load program."""
        numbers = ["--num-records", str(int(per_second * seconds)), "--record-size", str(size)]
        numbers += ["--throughput", str(per_second), "--topic", STREAM_TOPIC]
        producer = ["--producer-props", f"bootstrap.servers={self.address}"]
        return self.java("org.apache.kafka.tools.ProducerPerformance", *numbers, *producer, heap="128m")


# Programs


def trickle_command(namesrv: str, per_second: int, seconds: float, size: int) -> list[str]:
    return _here("trickle", namesrv, STREAM_TOPIC, str(per_second), str(seconds), str(size))


async def trickle(namesrv: str, topic: str, per_second: int, seconds: float, size: int) -> None:
    from cometmq import Client

    made = bodies(int(per_second * seconds), size)
    async with Client(namesrv) as client, client.producer("trickle") as producer:
        began_s = time.monotonic()
        for number, body in enumerate(made):
            await producer.ready()
            producer.send_soon(topic, body)
            if number % 10 == 0:
                await asyncio.sleep(max(0.0, began_s + number / per_second - time.monotonic()))
        await producer.flush()


def _here(*args: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.spark_topics", *args]


def _run_here(*args: str) -> None:
    path = os.pathsep.join(map(str, [*([OVERLAY] if OVERLAY.is_dir() else []), REPO / "src", REPO]))
    subprocess.run(_here(*args), check=True, env={**os.environ, "PYTHONPATH": path}, cwd=REPO)


def main(args: list[str]) -> None:
    if args[0] == "fill":
        fill_store(args[1], int(args[2]), int(args[3]))
    else:
        asyncio.run(trickle(args[1], args[2], int(args[3]), float(args[4]), int(args[5])))


if __name__ == "__main__":
    main(sys.argv[1:])
