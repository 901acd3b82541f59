"""Three real brokers, a name server and etcd on the loopback, faults, and a judge who reads what is left.

Each worker sends its next number to its own queue only after the last one was acked; a consumer notes what it sees and
where. At the end every log is read from its files: what was acked must lie where it was said to lie, in order, and what
was seen must be there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from cometmq import Client, Message
from cometmq.broker.hosts import free_port
from cometmq.clock import SystemClock
from cometmq.errors import CometError
from cometmq.failover.document import Document
from cometmq.failover.operators import Sets, SetView
from cometmq.failover.stores import open_store
from cometmq.store.disk import OsDisk
from cometmq.store.offline.dump import dump
from cometmq.store.offline.log_files import LogFiles
from cometmq.wire.bodies import MessageQueue
from tests.broker.processes import command_line
from tests.support.etcd import Etcd, free_ports
from tests.support.namespaces import Network

TOPIC: Final = "Ordered"
WORKERS: Final = 4
START_S: Final = 60


class Child:
    """One of our servers; `line` is what it said when it was ready."""

    def __init__(self, home: Path, name: str, *arguments: str, where: Sequence[str] = ()) -> None:
        """`where`: the command before it, that runs it on another machine."""
        self.name = name
        self._log = (home / f"{name}.log").open("ab")
        self.process = subprocess.Popen(
            [*where, *command_line(*arguments)], stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "HOME": str(home)},
        )  # fmt: skip
        self.line = ""

    def ready(self) -> None:
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        assert self.line.startswith("ready "), f"{self.name} said {self.line!r}, see {self._log.name}"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        if self._log.closed:
            return
        self.process.kill()
        self.process.communicate()
        self._log.close()


class RealSet:
    """`network`: each broker is on a machine of its own."""

    def __init__(
        self, home: Path, etcd: Etcd, count: int = 3, *, network: Network | None = None, **settings: object
    ) -> None:
        self.network = network
        self.home = home
        self.etcd = etcd
        home.mkdir(parents=True, exist_ok=True)
        host = "127.0.0.1" if network is None else network.clients
        self.name_server = f"{host}:{free_ports(1)[0]}"
        kept = f"kvConfigPath={home}/kv"
        controller = ("--controller", etcd.address)
        self._names = Child(home, "names", "nameserver", "--listen", self.name_server, "--set", kept, *controller)
        self._names.ready()
        self._settings = settings
        self.ports = ports_apart(count)
        self.brokers: list[Child | None] = [None] * count
        for number in range(count):
            self.start(number)
            self.ready(number)

    def add(self) -> int:
        """One more broker of the set, on a machine of its own; its number."""
        self.ports.append(ports_apart(1, self.ports)[0])
        self.brokers.append(None)
        self.start(len(self.brokers) - 1)
        self.ready(len(self.brokers) - 1)
        return len(self.brokers) - 1

    def start(self, number: int) -> None:
        network = self.network
        place = {} if network is None else {"bindAddress": "0.0.0.0", "brokerIP1": network.address(number)}
        settings = {
            "storePathRootDir": self.home / f"store{number}",
            "listenPort": self.ports[number],
            "brokerName": "a",
            "enableControllerMode": "true",
            "controllerStore": self.etcd.address,
            "namesrvAddr": self.name_server,
            "mappedFileSizeCommitLog": 8 << 20,
            "mappedFileSizeConsumeQueue": 60_000,
            "maxIndexNum": 4_000,
            "maxHashSlotNum": 1_000,
            "defaultTopicQueueNums": WORKERS,
            **place,
            **self._settings,
        }
        where = () if network is None else network.command(number)
        texts = [f"--set={key}={value}" for key, value in settings.items()]
        self.brokers[number] = Child(self.home, f"broker{number}", "broker", *texts, where=where)

    def ready(self, number: int) -> None:
        child = self.brokers[number]
        assert child is not None
        child.ready()

    def kill(self, number: int) -> None:
        child, self.brokers[number] = self.brokers[number], None
        if child is not None:
            child.kill()

    def signal(self, number: int, what: signal.Signals) -> None:
        child = self.brokers[number]
        assert child is not None
        child.send(what)

    def document(self) -> Document:
        """As the store has it now."""
        view = asyncio.run(self._view())
        assert view.document is not None
        return view.document

    def elect(self, number: int) -> None:
        """A planned switch."""
        asyncio.run(self._elect(number))

    async def _elect(self, number: int) -> None:
        store = open_store(self.etcd.address, SystemClock())
        try:
            sets = Sets(store, SystemClock())
            await sets.elect(await sets.find("a"), number, 10.0)
        finally:
            await store.stop()

    def alive(self) -> set[int]:
        return set(asyncio.run(self._view()).alive)

    async def _view(self) -> SetView:
        store = open_store(self.etcd.address, SystemClock())
        try:
            return await Sets(store, SystemClock()).find("a")
        finally:
            await store.stop()

    def number_at(self, address: str) -> int:
        return self.ports.index(int(address.rpartition(":")[2]))

    def stop(self) -> None:
        for number, child in enumerate(self.brokers):
            if child is not None:
                with suppress(OSError):
                    child.send(signal.SIGCONT)
                self.kill(number)
        self._names.kill()

    def log_of(self, number: int) -> list[tuple[int, int, bytes]]:
        """(queue, queue offset, body) of each message of the topic, from the files."""
        log = LogFiles(OsDisk(), [str(self.home / f"store{number}" / "commitlog")])
        found = [each for each in dump(log) if isinstance(each, dict)]
        return [
            (each["queueId"], each["queueOffset"], bytes.fromhex(each["bodyHex"]))
            for each in found
            if each["topic"] == TOPIC
        ]


def wait_for(holds: Callable[[], bool], limit_s: float = 30.0) -> None:
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, f"not so within {limit_s:g} s"
        time.sleep(0.05)


def ports_apart(count: int, taken: Sequence[int] = ()) -> list[int]:
    ports: list[int] = []
    while len(ports) < count:
        port = free_port()
        if all(abs(port - other) > 4 for other in (*ports, *taken)):
            ports.append(port)
    return ports


@dataclass
class Load:
    """What producers were told and a consumer saw, and when."""

    acked: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    seen: dict[tuple[int, int], bytes] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unknown: int = 0

    def goes_on_since(self, began_s: float) -> bool:
        """20 messages were acked after this: what another process says comes later than it was."""
        return len(self.acked) >= 20 and self.acked[-20][0] > began_s

    def gap_after(self, began_s: float, ended_s: float) -> float:
        """The longest time without any ack, in seconds, that ended in this span."""
        times = [at for at, *_ in self.acked]
        longest = 0.0
        for before, after in pairwise(times):
            if began_s <= after <= ended_s:
                longest = max(longest, after - before)
        return longest


class Judged:
    def __init__(self, load: Load, log: list[tuple[int, int, bytes]]) -> None:
        places = {(queue, offset): body for queue, offset, body in log}
        bodies = set(places.values())
        self.acked = len(load.acked)
        self.lost = sum(body not in bodies for *_, body in load.acked)
        self.moved = sum(places.get((queue, offset)) != body for _, queue, offset, body in load.acked) - self.lost
        self.out_of_order = _holes(log)
        self.phantoms = sum(places.get(place) != body for place, body in load.seen.items())
        self.two_values = len(load.changed)
        self.twice = len(log) - len(bodies)

    def __str__(self) -> str:
        return (
            f"acked={self.acked} lost={self.lost} moved={self.moved} out_of_order={self.out_of_order} "
            f"consumed_but_gone={self.phantoms} two_values={self.two_values} in_log_twice={self.twice}"
        )

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.moved or self.out_of_order or self.phantoms or self.two_values)


def _holes(log: list[tuple[int, int, bytes]]) -> int:
    """How often a number comes first after a larger one in its queue; a repeated one is none."""
    holes = 0
    largest: dict[int, int] = {}
    for queue, _, body in sorted(log):
        number = int(body.split(b":")[1])
        if number > largest.get(queue, -1) + 1:
            holes += 1
        largest[queue] = max(largest.get(queue, -1), number)
    return holes


async def with_load(a_set: RealSet, faults: Callable[[Load, Client], object]) -> Load:
    """Run `faults`, a coroutine function, beside producers and a consumer."""
    load = Load()
    stopping = asyncio.Event()
    async with Client(a_set.name_server, route_refresh=0.1, call_timeout=1.0) as client:
        await _make_topic(client)
        async with client.producer("load", retries=0) as producer:

            async def work(queue_id: int) -> None:
                number = 0
                queue = MessageQueue(broker_name="a", queue_id=queue_id, topic=TOPIC)
                while not stopping.is_set():
                    body = b"%d:%d" % (queue_id, number)
                    try:
                        receipt = await producer.send(TOPIC, body, queue=queue, timeout=1.0)
                    except CometError as error:
                        load.errors.append(f"{time.monotonic():.3f} {error}"[:200])
                        await asyncio.sleep(0.02)
                        continue
                    if not receipt.is_confirmed:
                        load.unknown += 1
                        await asyncio.sleep(0.02)
                        continue
                    load.acked.append((time.monotonic(), queue_id, receipt.offset, body))
                    number += 1

            workers = [asyncio.create_task(work(queue_id)) for queue_id in range(WORKERS)]
            consumer = asyncio.create_task(_consume(client, load))
            try:
                await faults(load, client)  # type: ignore[misc]
                stopping.set()
                await asyncio.gather(*workers)
            finally:
                for task in (*workers, consumer):
                    task.cancel()
                await asyncio.gather(*workers, consumer, return_exceptions=True)
    return load


async def _make_topic(client: Client) -> None:
    async with client.admin() as admin:
        for _ in range(100):
            with suppress(CometError):
                await admin.create_topic(TOPIC, queues=WORKERS)
                return
            await asyncio.sleep(0.1)
    raise AssertionError("the topic could not be made within 10 s")


async def _consume(client: Client, load: Load) -> None:
    def note(message: Message[bytes]) -> None:
        assert message.queue is not None
        place = (message.queue.queue_id, message.offset)
        if load.seen.setdefault(place, message.body) != message.body:
            load.changed.append(f"{place}: {load.seen[place]!r} and {message.body!r}")

    while True:
        with suppress(CometError):
            async with client.pull_consumer("judge", auto_commit=False) as consumer:
                queues = [MessageQueue(broker_name="a", queue_id=each, topic=TOPIC) for each in range(WORKERS)]
                await consumer.assign(queues)
                for queue in queues:
                    await consumer.seek(queue, 1 + max((o for q, o in load.seen if q == queue.queue_id), default=-1))
                while True:
                    for message in await consumer.poll(timeout=1.0):
                        note(message)
        await asyncio.sleep(0.1)
