"""Servers as child processes: RocketMQ's name server and broker, and ours behind the same words.

A test that takes one does not see whose it is. All listen on 127.0.0.1 and write below their directory only. `MAKES`
has both makes, for tests that start servers of their own.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.compat.harness.build import REPO
from tests.compat.harness.java import QUICK, release
from tests.compat.harness.processes import START_TIMEOUT_S, Child, free_ports, wait_until
from tests.compat.harness.remoting import call, committed, max_offset

Settings = Mapping[str, object]

UPDATE_BROKER_CONFIG = 25
GET_RUNTIME_INFO = 28
GET_BROKER_CLUSTER_INFO = 106
POKE_S = 0.2

# Files that fit a test; a value given to a broker goes over these.
SMALL_FILES: Settings = {
    "mappedFileSizeCommitLog": 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20_000,
    "mappedFileSizeTimerLog": 102_400,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
}


def properties(settings: Settings) -> str:
    return "".join(f"{key}={_text(value)}\n" for key, value in settings.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class NameServer(Child):
    address: str


class JavaNameServer(NameServer):
    ready = re.compile(r"^The Name Server boot success\..*address (\S+)", re.MULTILINE)

    def __init__(
        self,
        directory: Path,
        settings: Settings | None = None,
        *,
        name: str = "java-namesrv",
        options: Sequence[str] = QUICK,
    ) -> None:
        super().__init__(name, directory)
        port = free_ports(0)
        self.address = f"127.0.0.1:{port}"
        self._settings = {"listenPort": port, "bindAddress": "127.0.0.1", **(settings or {})}
        self._options = options

    def command(self) -> Sequence[str]:
        conf = self.directory / f"{self.name}.conf"
        if self._process is None:  # the server saves run-time changes there, and a restart must see them
            conf.write_text(properties(self._settings))
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        return release().command(main, "-c", str(conf), home=self.home, options=self._options)


class Broker(Child):
    """What brokers of both makes have in common. `settings` are broker.conf keys and go over everything chosen here."""

    def __init__(self, make: str, directory: Path, namesrv: str, settings: Settings | None, name: str) -> None:
        super().__init__(f"{make}-{name}", directory)
        self.broker_name = name
        self.port = free_ports(0, 1, -2)  # requests, replication, and the "fast" port two below
        self.address = f"127.0.0.1:{self.port}"
        self.namesrv = namesrv
        self.store = directory / f"{name}-store"
        self.settings: dict[str, object] = {
            "brokerClusterName": "compat",
            "brokerName": name,
            "brokerId": 0,
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": namesrv,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "registerNameServerPeriod": 10_000,  # the smallest that the broker takes
            # A machine with a full disk must not look like an incompatibility.
            "diskMaxUsedSpaceRatio": 95,
            **SMALL_FILES,
            **(settings or {}),
        }

    @property
    def cluster(self) -> str:
        return str(self.settings["brokerClusterName"])

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        super().wait_ready(timeout_s)
        self.await_registration(timeout_s)

    def await_registration(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until every name server has it."""
        raise NotImplementedError

    def register(self) -> None:
        """Make it register with its name servers now, all topics, as something new."""
        permission = self.settings.get("brokerPermission", 6)
        call(self.address, UPDATE_BROKER_CONFIG, body=f"brokerPermission={permission}".encode())

    def await_dispatch(self) -> None:
        """Until all that was sent can be read: RocketMQ's broker answers before its queues and its index have it."""
        wait_until(self._has_dispatched, f"the queues of {self.name}")

    def _has_dispatched(self) -> bool:
        answer = call(self.address, GET_RUNTIME_INFO)
        # RocketMQ's broker may refuse while it is busy, with no body: it is asked again.
        return answer.code == 0 and bool(answer.json()["table"]["dispatchBehindBytes"] == "0")

    def await_committed(self, group: str, topic: str, *offsets: int) -> None:
        """Until the group has these offsets, one per queue: a Java consumer that stops tells them without an answer."""

        def are_there() -> bool:
            return all(committed(self.address, group, topic, queue) == it for queue, it in enumerate(offsets))

        wait_until(are_there, f"offsets {offsets} of {group} in {topic}")

    def await_all_committed(self, group: str, topic: str, queues: int) -> None:
        """Until the group's offsets are the ends of all queues.

        A producer that had to try again went on to the next queue, so nobody knows beforehand how many each one has.
        """
        ends = [max_offset(self.address, topic, queue) for queue in range(queues)]
        try:
            self.await_committed(group, topic, *ends)
        except TimeoutError as error:
            found = [committed(self.address, group, topic, queue) for queue in range(queues)]
            raise TimeoutError(f"{error}; there were {found}") from None

    def write_settings(self) -> Path:
        conf = self.directory / f"{self.name}.conf"
        conf.write_text(properties(self.settings))
        return conf


class JavaBroker(Broker):
    """A RocketMQ broker."""

    ready = re.compile(r"^The broker\[.*\] boot success\.", re.MULTILINE)

    def __init__(
        self,
        directory: Path,
        namesrv: str,
        settings: Settings | None = None,
        *,
        name: str = "broker-a",
        options: Sequence[str] = QUICK,
    ) -> None:
        # By default it copies its whole timer wheel every second, which takes a fifth of a core of a machine with two.
        super().__init__("java", directory, namesrv, {"timerFlushIntervalMs": 10_000, **(settings or {})}, name)
        self._options = options

    def await_registration(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """A Java broker often says it is up before it has found its name servers, and would then register 10 s later;
        being told its `brokerPermission` makes it register at once."""
        wait_until(self._registered_or_poked, f"registration of {self.name}", timeout_s)

    def _registered_or_poked(self) -> bool:
        log = self.log(since_start=True)
        if all(f"name server completed. TargetHost={it}" in log for it in self.namesrv.split(";")):
            return True
        self.register()
        time.sleep(POKE_S)
        return False

    def command(self) -> Sequence[str]:
        main = "org.apache.rocketmq.broker.BrokerStartup"
        options = [*self._options, "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99"]
        return release().command(main, "-c", str(self.write_settings()), home=self.home, options=options)


def python_path() -> str:
    """An overlay of compiled modules, when the tests run with one, comes before the source."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPO / "src")]))


class CometNameServer(NameServer):
    ready = re.compile(r"^ready namesrv=(\S+)", re.MULTILINE)

    def __init__(self, directory: Path, settings: Settings | None = None, *, name: str = "comet-namesrv") -> None:
        super().__init__(name, directory)
        self.env = {"PYTHONPATH": python_path(), "HOME": str(self.home)}
        self.address = f"127.0.0.1:{free_ports(0)}"
        self._settings = dict(settings or {})

    def command(self) -> Sequence[str]:
        flags = [f"--set={key}={_text(value)}" for key, value in self._settings.items()]
        return [sys.executable, "-m", "cometmq.cli.main", "nameserver", "--listen", self.address, *flags]


class CometBroker(Broker):
    ready = re.compile(r"^ready namesrv=\S* broker=(\S+)", re.MULTILINE)

    def __init__(
        self, directory: Path, namesrv: str, settings: Settings | None = None, *, name: str = "broker-a"
    ) -> None:
        super().__init__("comet", directory, namesrv, settings, name)
        self.env = {"PYTHONPATH": python_path(), "HOME": str(self.home)}

    def await_registration(self, timeout_s: float = START_TIMEOUT_S) -> None:
        wait_until(self._is_known, f"registration of {self.name}", timeout_s)

    def _is_known(self) -> bool:
        answers = [call(namesrv, GET_BROKER_CLUSTER_INFO) for namesrv in self.namesrv.split(";")]
        return all(self.address.encode() in answer.body for answer in answers)

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "cometmq.cli.main", "broker", "-c", str(self.write_settings())]


class CometUp(Child):
    """`cometmq up`: name server and broker in one process."""

    ready = re.compile(r"^ready namesrv=(\S+) broker=(\S+)", re.MULTILINE)

    def __init__(self, directory: Path, settings: Settings | None = None, *, name: str = "comet-up") -> None:
        super().__init__(name, directory)
        self.env = {"PYTHONPATH": python_path(), "HOME": str(self.home)}
        self.namesrv = f"127.0.0.1:{free_ports(0)}"
        self.address = f"127.0.0.1:{free_ports(0, 1, -2)}"
        self.data = directory / f"{name}-data"
        self._settings = {**SMALL_FILES, **(settings or {})}

    def command(self) -> Sequence[str]:
        ports = [f"--namesrv-port={self.namesrv.split(':')[1]}", f"--broker-port={self.address.split(':')[1]}"]
        flags = [f"--set={key}={_text(value)}" for key, value in self._settings.items()]
        return [sys.executable, "-m", "cometmq.cli.main", "up", "--no-console", f"--data={self.data}", *ports, *flags]


@dataclass(frozen=True, slots=True)
class Make:
    """Whose servers they are."""

    name: str
    name_server: Callable[..., NameServer]
    broker: Callable[..., Broker]


MAKES = {
    "java": Make("java", JavaNameServer, JavaBroker),
    "comet": Make("comet", CometNameServer, CometBroker),
}
