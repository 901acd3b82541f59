"""Java snippets, compiled and run in one resident JVM per release (tests/compat/java/shell/compat/Shell.java).

    sent = shell.run('''
        DefaultMQProducer p = use(new DefaultMQProducer("g"));
        p.setNamesrvAddr(args[0]);
        p.start();
        emit("status", p.send(new Message(args[1], "hello".getBytes())).getSendStatus());
    ''', namesrv, topic)
    assert sent.rows == [{"status": "SEND_OK"}]

The text is the body of a method `main(String[] args) throws Exception`; leading `import` lines are taken out of it.
Its words for talking to the test are in Program.java: emit, receive, awaitStop, use. `begin` does not wait for the end,
so that a consumer can run while a producer sends; each run has its own thread and its own output.
"""

from __future__ import annotations

import itertools
import json
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.compat.harness.java import CURRENT, QUICK, release
from tests.compat.harness.processes import Child

RUN_TIMEOUT_S = 60.0
INTERRUPT_TIMEOUT_S = 20.0

# A consumer whose first look at its group came too early looks again after this, instead of 20 s. And told of a change
# it looks at once, not 1 s after its start: then, too, is its first periodic heartbeat, and the one that has to tell
# the broker of new queues is left out when it meets another.
# Ordered consumers renew their locks every 20 s and let go of a lost queue after 20 s.
PROMPT_CLIENT = (
    "-Drocketmq.client.rebalance.waitInterval=1000",
    "-Drocketmq.client.rebalance.minInterval=100",
    "-Drocketmq.client.rebalance.lockInterval=1000",
    "-Drocketmq.client.unlockDelayTimeMills=100",
)

# Packages that both lines of releases have.
IMPORTS = (
    "java.nio.charset.StandardCharsets",
    "java.util.*",
    "java.util.concurrent.*",
    "java.util.concurrent.atomic.*",
    "java.util.stream.*",
    "org.apache.rocketmq.client.consumer.*",
    "org.apache.rocketmq.client.consumer.listener.*",
    "org.apache.rocketmq.client.exception.*",
    "org.apache.rocketmq.client.producer.*",
    "org.apache.rocketmq.client.producer.selector.*",
    "org.apache.rocketmq.common.consumer.*",
    "org.apache.rocketmq.common.message.*",
)


class JavaFailed(AssertionError):
    """A snippet did not compile, threw, or did not end in time. The message has what it said until then."""


class Run:
    """One program in the shell: what it emitted and printed so far, and whether it has ended."""

    def __init__(self, shell: JavaShell, number: int) -> None:
        self.rows: list[Any] = []
        self.ended = False
        self.error: str | None = None
        self.exit_status: int | None = None  # set when the program ended the whole JVM
        self._shell = shell
        self._number = number
        self._taken = 0
        self._printed: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
        self._changed = threading.Condition()

    @property
    def stdout(self) -> str:
        return self._printed["out"].decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self._printed["err"].decode("utf-8", "replace")

    def wait(self, timeout_s: float = RUN_TIMEOUT_S) -> Run:
        """Until it ends; raises what it threw."""
        if not self.await_end(timeout_s):
            self._shell.order("I", self._number)
            self.await_end(INTERRUPT_TIMEOUT_S)
            raise self._failure(f"did not end within {timeout_s:g} s")
        if self.error is not None:
            raise self._failure("failed")
        return self

    def take(self, count: int = 1, timeout_s: float = RUN_TIMEOUT_S) -> list[Any]:
        """The next `count` rows, each row once; waits for them."""
        target = self._taken + count
        self._await(lambda: len(self.rows) >= target or self.ended, timeout_s)
        if len(self.rows) < target:
            raise self._failure(f"gave {len(self.rows) - self._taken} of {count} rows within {timeout_s:g} s")
        taken, self._taken = self.rows[self._taken : target], target
        return taken

    def next(self, timeout_s: float = RUN_TIMEOUT_S) -> Any:
        return self.take(1, timeout_s)[0]

    def send(self, text: str) -> None:
        """Give the snippet's receive() a text."""
        self._shell.order("T", self._number, text)

    def stop(self, timeout_s: float = RUN_TIMEOUT_S) -> Run:
        """Let receive() and awaitStop() return, and wait for the end."""
        self._shell.order("E", self._number)
        return self.wait(timeout_s)

    def await_end(self, timeout_s: float) -> bool:
        return self._await(lambda: self.ended, timeout_s)

    def _await(self, done: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(done, timeout_s)

    def _failure(self, what: str) -> JavaFailed:
        said = [f"Java program {what}", self.error or "", f"rows: {self.rows[-10:]}", self.stdout, self.stderr]
        return JavaFailed("\n".join(part for part in said if part))

    def hear(self, report: dict[str, Any]) -> None:
        """Called by the shell with each thing the program said."""
        with self._changed:
            if "row" in report:
                self.rows.append(report["row"])
            for kind in self._printed.keys() & report.keys():
                self._printed[kind] += report[kind].encode("latin-1")
            if "end" in report:
                self.ended, self.error = True, report["end"]
            self._changed.notify_all()

    def jvm_ended(self, status: int, log: str) -> None:
        with self._changed:
            self.ended, self.exit_status = True, status
            self.error = f"the JVM ended with status {status}\n{log}"
            self._changed.notify_all()


class JavaShell(Child):
    """Starts its JVM at the first use, and again after a program has ended it with System.exit."""

    def __init__(
        self, directory: Path, version: str = CURRENT, *, name: str = "java-shell", options: Sequence[str] = QUICK
    ) -> None:
        super().__init__(f"{name}-{version}", directory)
        self.version = version
        self._options = options
        self._numbers = itertools.count(1)
        self._runs: dict[int, Run] = {}
        self._lock = threading.Lock()
        self._listener = threading.Thread()

    def command(self) -> Sequence[str]:
        options = [*self._options, *PROMPT_CLIENT]
        return release(self.version).command("compat.Shell", home=self.home, options=options)

    def run(self, source: str, *args: object, timeout_s: float = RUN_TIMEOUT_S) -> Run:
        return self.begin(source, *args).wait(timeout_s)

    def begin(self, source: str, *args: object) -> Run:
        return self._begin("S", wrap(source), *args)

    def main(self, class_name: str, *args: object) -> Run:
        """Run the main method of a class on the release's class path."""
        return self._begin("M", class_name, *args)

    def end_runs(self) -> None:
        """Interrupt what a test left running."""
        for number, run in list(self._runs.items()):
            self.order("E", number)
            self.order("I", number)
            run.await_end(INTERRUPT_TIMEOUT_S)

    def _begin(self, op: str, *texts: object) -> Run:
        with self._lock:
            if not self.running:
                self._launch_shell()
            number = next(self._numbers)
            run = self._runs[number] = Run(self, number)
        self.order(op, number, *texts)
        return run

    def _launch_shell(self) -> None:
        self.launch(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process is not None
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        super()._forget(process)
        self._listener.join()

    def order(self, op: str, number: int, *texts: object) -> None:
        encoded = [str(text).encode() for text in texts]
        frame = op.encode() + struct.pack(">ii", number, len(encoded))
        frame += b"".join(struct.pack(">i", len(text)) + text for text in encoded)
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            with self._lock:
                process.stdin.write(frame)
                process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # the JVM ended: _listen tells every run

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as reports:
            for line in reports:
                # The JVM itself may have a warning to say, and one that is killed leaves half a line.
                if line.startswith(b'{"run":') and line.endswith(b"\n"):
                    self._hear(json.loads(line))
        status = process.wait()
        for number in list(self._runs):
            self._runs.pop(number).jvm_ended(status, self.log_tail())

    def _hear(self, report: dict[str, Any]) -> None:
        number = report["run"]
        run = self._runs.pop(number, None) if "end" in report else self._runs.get(number)
        if run is not None:
            run.hear(report)


def wrap(source: str) -> str:
    lines = source.strip("\n").split("\n")
    imports = [line.strip() for line in lines if line.strip().startswith("import ")]
    body = [line for line in lines if not line.strip().startswith("import ")]
    return "\n".join(
        [
            "package compat;",
            *(f"import {name};" for name in IMPORTS),
            *imports,
            "public final class SNIPPET_CLASS extends Program {",
            "protected void main(String[] args) throws Exception {",
            *body,
            "}}",
        ]
    )
