"""Clients in other languages: the Go client (tests/compat/go) and the Node client (tests/compat/node).

Each is one program with two commands, `send` and `consume`, that prints JSON objects a line as the Java snippets do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.compat.harness.build import SOURCES, once, run_tool, tool

PROGRAM_TIMEOUT_S = 150.0


@dataclass(frozen=True, slots=True)
class ForeignClient:
    language: str
    command: Sequence[str]
    keys: Mapping[str, str] = field(default_factory=dict)

    def signing(self, access_key: str, secret_key: str) -> ForeignClient:
        return replace(self, keys={"ACCESS_KEY": access_key, "SECRET_KEY": secret_key})

    def send(self, namesrv: str, topic: str, *bodies: str) -> list[dict[str, Any]]:
        return self._run("send", namesrv, topic, *bodies)

    def consume(self, namesrv: str, topic: str, group: str, count: int) -> list[dict[str, Any]]:
        """`count` messages from the beginning of the topic."""
        return self._run("consume", namesrv, topic, group, str(count))

    def _run(self, *args: str) -> list[dict[str, Any]]:
        command = [*self.command, *args]
        environment = {**os.environ, **self.keys}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=False, env=environment
        )
        if done.returncode != 0:
            raise AssertionError(f"{self.language} client failed: {args}\n{done.stdout}{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def go_client() -> ForeignClient:
    source = SOURCES / "go"

    def build(target: Path) -> None:
        run_tool("go", "build", "-o", target / "compat", ".", cwd=source)

    inputs = [source / name for name in ("go.mod", "go.sum", "main.go")]
    return ForeignClient("Go", [str(once("go", inputs, build) / "compat")])


def node_client() -> ForeignClient:
    inputs = [SOURCES / "node" / name for name in ("client.js", "package.json", "package-lock.json")]

    def install(target: Path) -> None:
        for path in inputs:
            shutil.copy(path, target)
        run_tool("npm", "ci", "--no-audit", "--no-fund", cwd=target)

    return ForeignClient("Node", [tool("node"), str(once("node", inputs, install) / "client.js")])


CLIENTS = {"go": go_client, "node": node_client}
