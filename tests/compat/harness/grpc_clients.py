"""RocketMQ's 5.x clients of four languages, each a program that does what it is told (tests/compat/grpc).

    > {"n": 1, "op": "send", "name": "p", "topic": "t", "body": "hello"}     an order, JSON in one line
    < {"n": 1, "result": {"id": "01..."}}                                    what came of it, in any order
    < {"n": 2, "code": 40402, "error": "NotFoundException: ..."}             code 0: the client itself refused
    < {"name": "c", "message": {...}}                                        a push consumer was given a message
    < {"name": "p", "checked": "body"}                                       a producer was asked for a transaction

    producer  name, topics                      simple   name, group, topic, filter, sql     push   the same
    send      name, topic, body, tag, key, group, properties, deliver_ms; half: commit, rollback or leave  -> id, recall
    recall    name, topic, handle -> id         receive  name, count, invisible_s -> messages, each with its `ref`
    ack       name, ref                         change   name, ref, invisible_s              close  name

A listener fails on bodies that begin with `bad`, and on the first attempt of those that begin with `once`. A checker
commits bodies that end with `commit` and rolls back all others.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.harness.build import SOURCES, once, run_tool, tool
from tests.compat.harness.processes import Child, ChildFailed

PROGRAMS = SOURCES / "grpc"
ORDER_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 60.0
STARTING_MAX = 4

Row = dict[str, Any]


class Refusal(Exception):
    """What a client raised. `code`: the server's, or 0."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Client:
    """`command` is called when it is first run: it fetches and builds what is not there yet."""

    name: str
    command: Callable[[], Sequence[str]]


def _python() -> Sequence[str]:
    def install(target: Path) -> None:
        run_tool(sys.executable, "-m", "venv", target / "venv", cwd=target)
        pip = target / "venv" / "bin" / "python"
        run_tool(str(pip), "-m", "pip", "install", "-q", "-r", PROGRAMS / "python" / "requirements.txt", cwd=target)

    made = once("grpc/python", [PROGRAMS / "python" / "requirements.txt"], install)
    return [str(made / "venv" / "bin" / "python"), str(PROGRAMS / "python" / "client.py")]


def go_program(name: str) -> Sequence[str]:
    """`client`, or the `load` of benchmarks."""
    source = PROGRAMS / "go"

    def build(target: Path) -> None:
        run_tool("go", "build", "-o", target / "client", ".", cwd=source)
        run_tool("go", "build", "-o", target / "load", "./load", cwd=source)

    inputs = [source / name for name in ("go.mod", "go.sum", "main.go", "load/main.go")]
    return [str(once("grpc/go", inputs, build) / name)]


def _node() -> Sequence[str]:
    inputs = [PROGRAMS / "node" / name for name in ("client.js", "package.json", "package-lock.json")]

    def install(target: Path) -> None:
        for path in inputs:
            shutil.copy(path, target)
        run_tool("npm", "ci", "--no-audit", "--no-fund", cwd=target)

    return [tool("node"), str(once("grpc/node", inputs, install) / "client.js")]


def _java(version: str) -> Sequence[str]:
    pom, source = PROGRAMS / "java" / version / "pom.xml", PROGRAMS / "java" / "Driver.java"

    def build(target: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}/lib"]
        run_tool("mvn", "-B", "-q", "-f", pom, *goal, cwd=target)
        run_tool("javac", "--release", "11", "-cp", f"{target}/lib/*", "-d", target / "classes", source, cwd=target)

    made = once(f"grpc/java-{version}", [pom, source], build)
    options = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    return [tool("java"), *options, "-cp", f"{made}/classes{os.pathsep}{made}/lib/*", "Driver"]


CLIENTS = {
    it.name: it
    for it in (
        Client("python", _python),
        Client("node", _node),
        Client("go", lambda: go_program("client")),
        Client("java52", lambda: _java("5.2.0")),
        Client("java508", lambda: _java("5.0.8")),
    )
}


class Driver(Child):
    """One such program. Orders may be given from several threads; each waits for its own answer."""

    def __init__(
        self, directory: Path, client: Client, endpoints: str, transport: str, environment: Mapping[str, str]
    ) -> None:
        super().__init__(f"grpc-{client.name}-{transport}", directory)
        self.client = client.name
        self._client = client
        self._arguments = [endpoints, transport]
        self._numbers = itertools.count(1)
        self._answers: dict[int, Row] = {}
        self._told: dict[str, list[Row]] = {}
        self._changed = threading.Condition()
        self._is_over = False
        # Clients have three seconds for their first answers, so not all of a program start at once.
        self.starting = threading.Semaphore(STARTING_MAX)
        self._listener = threading.Thread()
        # Logs of the clients go below the user's home directory.
        self.env = {"HOME": str(self.home), "USERPROFILE": str(self.home), **environment}

    def command(self) -> Sequence[str]:
        command = list(self._client.command())
        if command[-1] == "Driver":
            command.insert(1, f"-Duser.home={self.home}")
        return [*command, *self._arguments]

    def begin(self) -> Driver:
        self.launch(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process is not None
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()
        with self._changed:
            if not self._changed.wait_for(lambda: -1 in self._answers or self._is_over, READY_TIMEOUT_S):
                raise ChildFailed(f"{self.name} was not ready\n{self.log_tail()}")
        return self

    def do(self, op: str, name: str, timeout_s: float = ORDER_TIMEOUT_S, **words: object) -> Row:
        """What came of it. Raises Refusal."""
        number = next(self._numbers)
        line = json.dumps({"n": number, "op": op, "name": name, **words}) + "\n"
        process = self._process
        assert process is not None
        assert process.stdin is not None
        with self._changed:
            process.stdin.write(line.encode())
            process.stdin.flush()
            if not self._changed.wait_for(lambda: number in self._answers or self._is_over, timeout_s):
                raise ChildFailed(f"{self.name} did not answer {line}{self.log_tail()}")
            answer = self._answers.pop(number, None)
        if answer is None:
            raise ChildFailed(f"{self.name} has ended\n{self.log_tail()}")
        if "error" in answer:
            raise Refusal(answer["code"], answer["error"])
        result: Row = answer["result"]
        return result

    def told(self, name: str, count: int, timeout_s: float = ORDER_TIMEOUT_S) -> list[Row]:
        """The first `count` things that a push consumer or a checker of that name was told."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._told.get(name, ())) >= count or self._is_over, timeout_s)
            rows = list(self._told.get(name, ()))
        if len(rows) < count:
            brief = [it.get("checked") or (it["message"]["body"][:40], it["message"]["attempt"]) for it in rows]
            raise ChildFailed(f"{name} was told {len(rows)} of {count} things: {brief}\n{self.log_tail()}")
        return rows

    def messages(self, name: str, count: int, timeout_s: float = ORDER_TIMEOUT_S) -> list[Row]:
        return [it["message"] for it in self.told(name, count, timeout_s) if "message" in it]

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if not line.startswith(b"{"):
                    continue  # what a library prints
                row = json.loads(line)
                row["at_s"] = time.time()
                with self._changed:
                    if "ready" in row:
                        self._answers[-1] = row
                    elif "n" in row:
                        self._answers[row["n"]] = row
                    else:
                        self._told.setdefault(row["name"], []).append(row)
                    self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        super()._forget(process)
        self._listener.join()
