"""The brokers that are compared, each with a name server of its own make, and what /proc says of them.

java                RocketMQ 5.5.0, 1 GiB of heap, G1
comet               ours, compiled (build/compiled)
comet-interpreted   ours, as the source is
comet-2             ours, compiled, `--count 2`

Both makes run with their defaults: the harness makes files small for tests, `DEFAULT_FILES` undoes that.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.versus import access
from benchmarks.windows import cpu_s
from tests.compat.harness import remoting
from tests.compat.harness.grpc_fronts import JavaBrokerWithProxy
from tests.compat.harness.processes import free_ports, wait_until
from tests.compat.harness.servers import Broker, CometBroker, CometNameServer, JavaBroker, JavaNameServer, NameServer

ROOT: Final = Path(__file__).resolve().parents[2]
OVERLAY: Final = ROOT / "build" / "compiled"
GET_RUNTIME_INFO: Final = 28
GET_MAX_OFFSET: Final = 30
GET_HA_STATUS: Final = 907
PORTS_APART: Final = 10
ANSWER_S: Final = 30.0
ASK_AGAIN_S: Final = 0.1
# What a broker has without a settings file.
DEFAULT_FILES: Final[dict[str, object]] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "mappedFileSizeTimerLog": 104_857_600,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
JVM: Final = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-Dtls.server.mode=disabled")


class TwoBrokers(CometBroker):
    """`cometmq broker --count 2`: a parent with two children."""

    ready = re.compile(r"(?:^ready namesrv=\S* broker=\S+\n.*){2}", re.MULTILINE | re.DOTALL)

    def __init__(self, directory: Path, namesrv: str, settings: dict[str, object]) -> None:
        super().__init__(directory, namesrv, settings)
        for key in ("storePathCommitLog", "haListenPort", "brokerName"):  # each child has its own
            del self.settings[key]
        self.settings["brokerName"] = "broker"

    def command(self) -> list[str]:
        return [*super().command(), "--count", "2"]


@dataclass(slots=True)
class Side:
    """A name server and its broker, or brokers, that run."""

    make: str
    namesrv: str
    broker: Broker
    addresses: Sequence[str]
    ready_s: float
    pids: list[int] = field(default_factory=list)
    # Messages that its broker process has handled in this run: how warm a JVM is.
    handled: int = 0
    # Of somebody who may do everything, where brokers ask.
    keys: remoting.Keys | None = None
    # Where gRPC clients connect.
    grpc: str = ""

    def cpu_s(self) -> float:
        return cpu_s(self.pids)

    def resident_mib(self) -> float:
        return sum(_rollup(pid, "Rss") for pid in self.pids)

    def private_mib(self) -> float:
        """Memory of its own; pages of the log are the page cache's, and are given back when others need them."""
        return sum(_rollup(pid, "Pss_Anon") for pid in self.pids)

    def sent(self, topic: str, queues: int) -> int:
        """Messages in the topic."""
        return sum(_end(address, topic, queue, self.keys) for address in self.addresses for queue in range(queues))

    def read(self) -> int:
        """Messages that the broker gave to consumers since it started."""
        return sum(_count(address, "msgGetTotalTodayNow", self.keys) for address in self.addresses)


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _rollup(pid: int, name: str) -> float:
    found = re.findall(rf"^{name}: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[0]) / 1024


def _end(address: str, topic: str, queue: int, keys: remoting.Keys | None) -> int:
    return int(ask(address, GET_MAX_OFFSET, {"topic": topic, "queueId": queue}, keys).ext["offset"])


def _count(address: str, name: str, keys: remoting.Keys | None) -> int:
    return int(ask(address, GET_RUNTIME_INFO, keys=keys).json()["table"][name])


def ask(
    address: str,
    code: int,
    ext: dict[str, object] | None = None,
    keys: remoting.Keys | None = None,
    timeout_s: float = ANSWER_S,
) -> remoting.Answer:
    """A broker that just started, or is busy with a load, may refuse; a refusal has no body and no fields to count."""
    deadline_s = time.monotonic() + timeout_s
    while (answer := remoting.call(address, code, ext, keys=keys)).code != 0:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{address} refused request {code} for {timeout_s:g} s: {answer.code} {answer.remark}")
        time.sleep(ASK_AGAIN_S)
    return answer


@contextmanager
def side(
    make: str, directory: Path, settings: dict[str, object], with_slave: bool = False, with_grpc: bool = False
) -> Iterator[Side]:
    """A fresh name server and broker; `ready_s` is from the start of the first process until the broker serves."""
    settings = {**DEFAULT_FILES, **settings}
    if with_slave:
        settings |= {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "haSendHeartbeatInterval": 500}
    if with_grpc and make != "java":
        settings["grpcServerPort"] = free_ports(0)
    with _python_path(make), ExitStack() as stack:
        began_s = time.monotonic()
        names: NameServer = JavaNameServer(directory, options=JVM) if make == "java" else CometNameServer(directory)
        stack.enter_context(names).start()
        broker = _broker(make, directory, names.address, settings, with_grpc)
        stack.enter_context(broker).start()
        found = Side(make, names.address, broker, [broker.address], time.monotonic() - began_s, [broker.pid])
        if isinstance(broker, JavaBrokerWithProxy):
            found.grpc = broker.endpoints
        elif with_grpc:
            found.grpc = f"127.0.0.1:{settings['grpcServerPort']}"
        if settings.get("authenticationEnabled"):
            found.keys = access.ROOT
            access.add_user(broker.address)
        if make == "comet-2":
            found.pids = [*found.pids, *children(broker.pid)]
            found.addresses = [f"127.0.0.1:{broker.port + number * PORTS_APART}" for number in range(2)]
        if with_slave:
            own = {**settings, "brokerRole": "SLAVE", "brokerId": 1}
            (directory / "slave").mkdir()
            stack.enter_context(_broker(make, directory / "slave", names.address, own)).start()
            wait_until(lambda: _has_replica(broker.address), f"the slave of {make}", 60)
        yield found


def _broker(make: str, directory: Path, namesrv: str, settings: dict[str, object], with_grpc: bool = False) -> Broker:
    if make == "java" and with_grpc:
        return JavaBrokerWithProxy(directory, namesrv, settings, options=JVM)
    if make == "java":
        if settings.get("authenticationEnabled"):
            settings = settings | access.ONLY_JAVA
        return JavaBroker(directory, namesrv, settings, options=JVM)
    return TwoBrokers(directory, namesrv, settings) if make == "comet-2" else CometBroker(directory, namesrv, settings)


def _has_replica(master: str) -> bool:
    links = ask(master, GET_HA_STATUS).json()["haConnectionInfo"]
    return any(link["inSync"] and link["slaveAckOffset"] >= 0 for link in links)


@contextmanager
def _python_path(make: str) -> Iterator[None]:
    """The harness takes the overlay from the environment."""
    before = os.environ.pop("PYTHONPATH", None)
    if make in ("comet", "comet-2"):
        os.environ["PYTHONPATH"] = str(OVERLAY)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before
