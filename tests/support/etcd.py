"""etcd as real processes on the loopback: one node or three, killed, frozen and started again. Debian: etcd-server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.require import unavailable

START_S = 20.0


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Etcd:
    """A cluster of `count` nodes with its data below `home`."""

    def __init__(self, home: Path, count: int = 1, *options: str, host: str = "127.0.0.1") -> None:
        if shutil.which("etcd") is None:
            unavailable("etcd", "no etcd on the path (Debian: etcd-server)")
        ports = free_ports(2 * count)
        self.home = home
        self.host = host
        self.ports = ports[:count]
        self._peers = ports[count:]
        self._options = options
        self.children: list[subprocess.Popen[bytes] | None] = [None] * count
        for number in range(count):
            self.start(number)
        self.wait()

    @property
    def address(self) -> str:
        return "etcd://" + ",".join(f"{self.host}:{port}" for port in self.ports)

    def start(self, number: int) -> None:
        directory = self.home / f"etcd{number}"
        directory.mkdir(parents=True, exist_ok=True)
        client, peer = f"http://{self.host}:{self.ports[number]}", f"http://127.0.0.1:{self._peers[number]}"
        cluster = ",".join(f"e{each}=http://127.0.0.1:{port}" for each, port in enumerate(self._peers))
        with (directory / "log").open("ab") as log:
            self.children[number] = subprocess.Popen(
                [
                    "etcd", "--name", f"e{number}", "--data-dir", str(directory / "data"),
                    "--listen-client-urls", client, "--advertise-client-urls", client,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                    "--initial-cluster", cluster, "--logger", "zap", *self._options,
                ],
                stdout=log, stderr=log, env={**os.environ, "ETCD_UNSUPPORTED_ARCH": ""},
            )  # fmt: skip

    def wait(self) -> None:
        """Until every node that runs is healthy."""
        end_s = time.monotonic() + START_S
        for number, child in enumerate(self.children):
            while child is not None and not self._is_healthy(number):
                if time.monotonic() > end_s or child.poll() is not None:
                    log = (self.home / f"etcd{number}" / "log").read_text()[-2000:]
                    raise AssertionError(f"etcd {number} does not start: {log}")
                time.sleep(0.05)

    def _is_healthy(self, number: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.ports[number]}/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def leader(self) -> int:
        """The number of the node that leads."""
        for number, port in enumerate(self.ports):
            if self.children[number] is None:
                continue
            with contextlib.suppress(OSError):
                url = f"http://{self.host}:{port}/metrics"
                with urllib.request.urlopen(url, timeout=1) as answer:
                    if b"\netcd_server_is_leader 1" in answer.read():
                        return number
        return 0

    def compact(self) -> None:
        """Forget all that was before the present."""
        revision = self._post("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        self._post("/v3/kv/compaction", {"revision": revision, "physical": True})

    def _post(self, path: str, body: dict[str, object]) -> dict[str, Any]:
        request = urllib.request.Request(f"http://{self.host}:{self.ports[0]}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=5) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def requests(self) -> int:
        """How many calls the first node has served."""
        with urllib.request.urlopen(f"http://{self.host}:{self.ports[0]}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return int(sum(float(line.split()[-1]) for line in lines if line.startswith("grpc_server_handled_total")))

    def kill(self, number: int) -> None:
        child, self.children[number] = self.children[number], None
        if child is not None:
            child.kill()
            child.wait()

    def freeze(self, number: int) -> None:
        child = self.children[number]
        assert child is not None
        child.send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        child = self.children[number]
        assert child is not None
        child.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for number in range(len(self.children)):
            self.kill(number)
