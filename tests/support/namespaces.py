"""Machines in network namespaces on a bridge, and links between them that break: for root on Linux.

    bridge in the namespace of the test     .1: clients, name server     .2: etcd
    m0, m1, m2: a namespace each            .10, .11, .12

A link breaks by a wrong hardware address for the peer: what is sent leaves and arrives nowhere, as with a dead switch.
Each direction is its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress

from tests.support.require import unavailable

NOWHERE = "02:00:00:00:00:99"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Network:
    """`stop` removes all of it."""

    def __init__(self, machines: int) -> None:
        self._tag = f"cmq{os.getpid() % 100_000}"
        self._net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.count = machines
        self.clients, self.store = f"{self._net}.1", f"{self._net}.2"
        self.broken: set[tuple[int, str]] = set()
        if shutil.which("ip") is None or os.geteuid() != 0:
            unavailable("netns", "network namespaces need root and ip (Debian: iproute2)")
        try:
            self._make()
        except OSError as error:
            self.stop()
            unavailable("netns", str(error))

    def _make(self) -> None:
        bridge = f"{self._tag}b"
        _ip("link", "add", bridge, "type", "bridge")
        for address in (self.clients, self.store):
            _ip("addr", "add", f"{address}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number in range(self.count):
            name, link = self.name(number), f"{self._tag}v{number}"
            _ip("netns", "add", name)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", link, "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def name(self, number: int) -> str:
        return f"{self._tag}m{number}"

    def address(self, number: int) -> str:
        return f"{self._net}.{10 + number}"

    def command(self, number: int) -> list[str]:
        """What runs a program on this machine."""
        return ["ip", "netns", "exec", self.name(number)]

    def cut(self, number: int, address: str) -> None:
        """What this machine sends there arrives nowhere."""
        _ip("-n", self.name(number), "neigh", "replace", address, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")
        self.broken.add((number, address))

    def part(self, one: int, other: int) -> None:
        """In both directions."""
        self.cut(one, self.address(other))
        self.cut(other, self.address(one))

    def heal(self) -> None:
        for number, address in self.broken:
            _ip("-n", self.name(number), "neigh", "del", address, "dev", "eth0")
        self.broken.clear()

    def stop(self) -> None:
        for number in range(self.count):
            with suppress(OSError):
                _ip("netns", "del", self.name(number))
        with suppress(OSError):
            _ip("link", "del", f"{self._tag}b")
