"""What serves gRPC clients: our broker, our proxy, and RocketMQ's proxy; both proxies are before one RocketMQ broker.

A front has `endpoints` for clients, and `broker` and `namesrv` for what tests prepare by remoting: topics with a
kind, groups.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.compat.harness.build import SOURCES, once, run_tool
from tests.compat.harness.java import QUICK, Release, release
from tests.compat.harness.processes import Child, free_ports, wait_until
from tests.compat.harness.remoting import call, route
from tests.compat.harness.servers import (
    Broker,
    CometBroker,
    CometNameServer,
    JavaBroker,
    JavaNameServer,
    Settings,
    python_path,
)
from tests.support import certificates

UPDATE_TOPIC, UPDATE_GROUP = 17, 200
QUEUES = 2
PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"

# Transactions are asked for soon, and what needs a setting is on.
SETTINGS: dict[str, object] = {
    "transactionOpMsgMaxSize": 1,
    "transactionOpBatchInterval": 600_000,
    "transactionTimeOut": 2_000,
    "transactionCheckInterval": 2_000,
    "enablePropertyFilter": True,
    "recallMessageEnable": True,
    "brokerFastFailureEnable": False,
    "timerPrecisionMs": 100,
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
}


class Keys:
    """A certificate for 127.0.0.1 and the authority that signed it."""

    def __init__(self, directory: Path) -> None:
        self.certificate, self.key = certificates.pair("front").write(directory, "front")
        self.trust = directory / "authority.pem"
        self.trust.write_bytes(certificates.authority())


def proxy_release() -> Release:
    pom = SOURCES / "grpc" / "java" / "proxy" / "pom.xml"

    def fetch(target: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}/lib"]
        run_tool("mvn", "-B", "-q", "-f", pom, *goal, cwd=target)

    return Release("5.5.0", once("grpc/java-proxy", [pom], fetch) / "lib")


class CometProxy(Child):
    """`cometmq proxy` for the cluster of a name server."""

    ready = re.compile(r"^ready grpc=(\S+)", re.MULTILINE)

    def __init__(self, directory: Path, namesrv: str, keys: Keys | None, *, name: str = "comet-proxy") -> None:
        super().__init__(name, directory)
        self.env = {"PYTHONPATH": python_path(), "HOME": str(self.home)}
        self.endpoints = f"127.0.0.1:{free_ports(0)}"
        self._namesrv = namesrv
        self._keys = keys

    def command(self) -> Sequence[str]:
        flags = []
        if self._keys is not None:
            flags = [
                f"--set=tls.server.certPath={self._keys.certificate}",
                f"--set=tls.server.keyPath={self._keys.key}",
            ]
        where = ["--namesrv", self._namesrv, "--listen", self.endpoints]
        return [sys.executable, "-m", "cometmq.cli.main", "proxy", *where, *flags]


class JavaProxy(Child):
    """RocketMQ's proxy, in cluster form."""

    ready = re.compile(r"rocketmq-proxy startup successfully")

    def __init__(self, directory: Path, namesrv: str, keys: Keys | None, *, name: str = "java-proxy") -> None:
        super().__init__(name, directory)
        port = free_ports(0, 1)
        self.endpoints = f"127.0.0.1:{port}"
        self._namesrv = namesrv
        self._conf: dict[str, Any] = {
            "rocketMQClusterName": "compat",
            "proxyMode": "CLUSTER",
            "namesrvAddr": namesrv,
            "grpcServerPort": port,
            "remotingListenPort": port + 1,
        }
        if keys is not None:
            self._conf |= {"tlsTestModeEnable": False, "tlsCertPath": keys.certificate, "tlsKeyPath": keys.key}

    def command(self) -> Sequence[str]:
        conf = self.directory / f"{self.name}.json"
        conf.write_text(json.dumps(self._conf))
        options = [it for it in QUICK if not it.startswith("-Dtls")]
        return proxy_release().command(PROXY_MAIN, "-pc", str(conf), home=self.home, options=options)


class JavaBrokerWithProxy(JavaBroker):
    """RocketMQ's broker and its proxy in one process, the proxy's local form."""

    ready = re.compile(r"rocketmq-proxy startup successfully")

    def __init__(self, directory: Path, namesrv: str, settings: Settings | None, *, options: Sequence[str]) -> None:
        super().__init__(directory, namesrv, settings, options=options)
        port = free_ports(0, 1)
        self.endpoints = f"127.0.0.1:{port}"
        self._proxy = {
            "rocketMQClusterName": self.cluster,
            "proxyMode": "LOCAL",
            "namesrvAddr": namesrv,
            "grpcServerPort": port,
            "remotingListenPort": port + 1,
        }

    def command(self) -> Sequence[str]:
        conf = self.directory / f"{self.name}.json"
        conf.write_text(json.dumps(self._proxy))
        arguments = ["-pc", str(conf), "-pm", "local", "-bc", str(self.write_settings()), "-n", self.namesrv]
        options = [*self._options, "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99"]
        return proxy_release().command(PROXY_MAIN, *arguments, home=self.home, options=options)


class Front:
    """`kind`: comet, proxy or rocketmq."""

    def __init__(self, kind: str, endpoints: str, broker: Broker, keys: Keys) -> None:
        self.kind = kind
        self.endpoints = endpoints
        self.broker = broker
        self.keys = keys

    def make_topics(self, kinds: dict[str, str]) -> None:
        """Topics by name with their message types; until the name server has them."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._make_topic, kinds.items()))
        self.broker.register()
        for name in kinds:
            wait_until(lambda: route(self.broker.namesrv, name).code == 0, f"route of {name}")  # noqa: B023

    def _make_topic(self, item: tuple[str, str]) -> None:
        name, kind = item
        ext: dict[str, object] = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": f"+message.type={kind}",
        }
        answer = call(self.broker.address, UPDATE_TOPIC, ext)
        assert answer.code == 0, answer

    def make_group(self, name: str, policy: str, *, is_fifo: bool = False, retries: int = 16) -> None:
        """Its failed messages come again after a second, by a policy of this type."""
        config: dict[str, Any] = {
            "groupName": name,
            "consumeEnable": True,
            "consumeBroadcastEnable": True,
            "consumeMessageOrderly": is_fifo,
            "retryQueueNums": 1,
            "retryMaxTimes": retries,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
            "groupSysFlag": 0,
            "consumeTimeoutMinute": 15,
            "groupRetryPolicy": {
                "type": policy,
                "exponentialRetryPolicy": {"initial": 1_000, "max": 2_000, "multiplier": 2},
                "customizedRetryPolicy": {"next": [1_000]},
            },
        }
        answer = call(self.broker.address, UPDATE_GROUP, body=json.dumps(config).encode())
        assert answer.code == 0, answer


class Fronts:
    """Of each kind one, started when it is first asked for."""

    def __init__(self, directory: Path, stack: Any) -> None:
        self._directory = directory
        self._stack = stack
        self._keys = Keys(directory)
        self._started: dict[str, Front] = {}
        self._java: Broker | None = None

    def __getitem__(self, kind: str) -> Front:
        if kind not in self._started:
            self._started[kind] = self._start(kind)
        return self._started[kind]

    def _start(self, kind: str) -> Front:
        if kind == "comet":
            directory = self._below("comet")
            namesrv = self._stack.enter_context(CometNameServer(directory).start())
            port = free_ports(0)
            tls = {"tls.server.certPath": self._keys.certificate, "tls.server.keyPath": self._keys.key}
            settings = {**SETTINGS, **tls, "grpcServerPort": port}
            broker: Broker = CometBroker(directory, namesrv.address, settings)
            self._stack.enter_context(broker.start())
            return Front(kind, f"127.0.0.1:{port}", broker, self._keys)
        if self._java is None:
            release()
            directory = self._below("java")
            java_namesrv = self._stack.enter_context(JavaNameServer(directory).start())
            self._java = JavaBroker(directory, java_namesrv.address, SETTINGS)
            self._stack.enter_context(self._java.start())
        make = CometProxy if kind == "proxy" else JavaProxy
        proxy = make(self._directory, self._java.namesrv, self._keys)
        self._stack.enter_context(proxy.start())
        return Front(kind, proxy.endpoints, self._java, self._keys)

    def _below(self, name: str) -> Path:
        directory = self._directory / name
        directory.mkdir()
        return directory
