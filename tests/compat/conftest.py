"""Fixtures of the compatibility tests. JVMs that run snippets and mqadmin live for the whole session.

java        a Java client, once per release line: a test that takes it runs twice
java55      the 5.5.0 client only
foreign     the Go and the Node client, one after the other; `go` the first only
mqadmin     the 5.5.0 admin tool
make        whose servers a test starts: it runs with RocketMQ's and with ours
cluster     a name server and a broker of that make, shared by all tests: use `topic`, leave no settings changed
clusters    both clusters at once, to compare; `java_cluster` only RocketMQ's
equipped    like `cluster`, with all that is off by default: recalls, light queues; timers of a tenth of a second
pair        RocketMQ's name server and ours, fed by one Java broker
namesrv     address of one name server of the pair: a test that takes it runs against both
second      one more broker in the pair's cluster, which a test may treat badly
scenes      the same topic, messages and group at a Java broker and at one of ours, for the admin tool to tell about
topic       a topic name that no other test uses
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.harness import java as releases
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.build import ToolMissing, tool
from tests.compat.harness.foreign import CLIENTS, ForeignClient
from tests.compat.harness.processes import LIVE, wait_until
from tests.compat.harness.remoting import call
from tests.compat.harness.scene import Scene, Scenes
from tests.compat.harness.servers import MAKES, Broker, CometNameServer, JavaBroker, JavaNameServer, Make, NameServer
from tests.compat.harness.shell import JavaShell
from tests.support.require import unavailable

# Here our client or tool talks to both makes of servers.
OUR_PROGRAMS = ("test_client_", "test_cli", "test_broker_tables")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and is_among_theirs(item.path.name, item.name):
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.reference)


def is_among_theirs(file: str, test: str) -> bool:
    """Whether only RocketMQ's programs take part: that shows the test to be right, not us, so `make compat` has it."""
    _, _, parameters = test.rstrip("]").partition("[")
    makes = set(parameters.split("-"))
    if "java" not in makes or makes & {"comet", "python"}:
        return False
    return parameters.startswith("java-java") or not file.startswith(OUR_PROGRAMS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(f"log of {child.name}", child.log_tail(15)) for child in LIVE]
    return report


@pytest.fixture(scope="session")
def jars() -> None:
    """Java, Maven and the releases are here; otherwise the test does not run."""
    try:
        for name in ("java", "javac"):
            tool(name)
        for version in (releases.CURRENT, releases.OLD):
            releases.release(version)
    except ToolMissing as missing:
        unavailable("interop", str(missing))


@pytest.fixture(scope="session")
def shells(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, JavaShell]]:
    directory = tmp_path_factory.mktemp("java-shells")
    shells = {version: JavaShell(directory, version) for version in (releases.CURRENT, releases.OLD)}
    yield shells
    for shell in shells.values():
        shell.close()


@pytest.fixture(params=[releases.CURRENT, releases.OLD])
def java(request: pytest.FixtureRequest, shells: dict[str, JavaShell]) -> Iterator[JavaShell]:
    shell = shells[request.param]
    yield shell
    shell.end_runs()


@pytest.fixture
def java55(shells: dict[str, JavaShell]) -> Iterator[JavaShell]:
    yield shells[releases.CURRENT]
    shells[releases.CURRENT].end_runs()


@pytest.fixture(scope="session", params=list(CLIENTS))
def foreign(request: pytest.FixtureRequest) -> ForeignClient:
    try:
        return CLIENTS[request.param]()
    except ToolMissing as missing:
        unavailable("interop", str(missing))


@pytest.fixture(scope="session")
def go() -> ForeignClient:
    try:
        return CLIENTS["go"]()
    except ToolMissing as missing:
        unavailable("interop", str(missing))


@pytest.fixture(scope="session")
def mqadmin(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    admin = MqAdmin(tmp_path_factory.mktemp("mqadmin"))
    yield admin
    admin.close()


@dataclass(frozen=True, slots=True)
class Cluster:
    make: Make
    namesrv: NameServer
    broker: Broker


# A failed message comes back after a second, however often it has failed; the largest messages fit a file; and a busy
# machine, on which requests wait too long, does not look like an incompatibility. What was decided of a transaction is
# written at once and not by the clock: RocketMQ's thread that waits for it takes a core once it has missed its time.
CLUSTER_SETTINGS = {
    "transactionOpMsgMaxSize": 1,
    "transactionOpBatchInterval": 600_000,
    "messageDelayLevel": " ".join(["1s"] * 18),
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "brokerFastFailureEnable": False,
}


class Clusters:
    """A cluster of each make, started when it is first asked for."""

    def __init__(self, directory: Path, stack: ExitStack, settings: Mapping[str, object]) -> None:
        self._directory = directory
        self._stack = stack
        self._settings = settings
        self._started: dict[str, Cluster] = {}

    def __getitem__(self, name: str) -> Cluster:
        if name not in self._started:
            make = MAKES[name]
            directory = self._directory / name
            namesrv = self._stack.enter_context(make.name_server(directory).start())
            broker = self._stack.enter_context(make.broker(directory, namesrv.address, self._settings).start())
            self._started[name] = Cluster(make, namesrv, broker)
        return self._started[name]

    @property
    def both(self) -> tuple[Cluster, Cluster]:
        """RocketMQ's, then ours."""
        return self["java"], self["comet"]


@pytest.fixture(scope="session")
def clusters(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with ExitStack() as stack:
        yield Clusters(tmp_path_factory.mktemp("clusters"), stack, CLUSTER_SETTINGS)


@pytest.fixture(params=list(MAKES))
def make(request: pytest.FixtureRequest, jars: None) -> Make:
    return MAKES[request.param]


@pytest.fixture
def cluster(make: Make, clusters: Clusters) -> Cluster:
    return clusters[make.name]


@pytest.fixture
def java_cluster(clusters: Clusters) -> Cluster:
    return clusters["java"]


# A window of two seconds, so that a test sees timers that are too far ahead for one go.
EQUIPPED_SETTINGS = {
    **CLUSTER_SETTINGS,
    "timerPrecisionMs": 100,
    "timerRollWindowSlot": 20,
    "recallMessageEnable": True,
    "enableLmq": True,
    "enableMultiDispatch": True,
}


@pytest.fixture(scope="session")
def equipped_clusters(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    with ExitStack() as stack:
        yield Clusters(tmp_path_factory.mktemp("equipped"), stack, EQUIPPED_SETTINGS)


@pytest.fixture
def equipped(make: Make, equipped_clusters: Clusters) -> Cluster:
    return equipped_clusters[make.name]


@dataclass(frozen=True, slots=True)
class Pair:
    """RocketMQ's name server and ours, fed by one broker."""

    java: JavaNameServer
    comet: CometNameServer
    broker: JavaBroker

    @property
    def addresses(self) -> tuple[str, str]:
        return self.java.address, self.comet.address


@pytest.fixture(scope="session")
def pair(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("pair")
    with (
        JavaNameServer(directory).start() as java,
        CometNameServer(directory).start() as comet,
        JavaBroker(directory, f"{java.address};{comet.address}").start() as broker,
    ):
        yield Pair(java, comet, broker)


@pytest.fixture(params=["java", "comet"])
def namesrv(request: pytest.FixtureRequest, pair: Pair) -> str:
    return pair.java.address if request.param == "java" else pair.comet.address


@pytest.fixture
def second(pair: Pair, tmp_path: Path) -> Iterator[JavaBroker]:
    with JavaBroker(tmp_path, pair.broker.namesrv, name="broker-b").start() as broker:
        yield broker
    for address in pair.addresses:
        wait_until(lambda: b"broker-b" not in call(address, 106).body, f"{address} forgets broker-b")  # noqa: B023


@pytest.fixture(scope="session")
def scenes(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenes]:
    directory = tmp_path_factory.mktemp("scenes")
    with ExitStack() as stack:
        java = JavaShell(directory, name="scene")  # one of its own: the others end what a test leaves running
        stack.callback(java.close)
        yield Scenes(*(Scene(MAKES[name], directory / name, java, stack) for name in ("java", "comet")))


TOPIC_NUMBERS = itertools.count(1)


@pytest.fixture
def topic() -> str:
    return f"Compat_{os.getpid()}_{next(TOPIC_NUMBERS)}"
