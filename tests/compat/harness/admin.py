"""RocketMQ's admin tool, mqadmin, without a JVM start per command.

    out = mqadmin("clusterList", namesrv=address)
    out.table()[0]["Broker Name"] == "broker-a"

The tool answers a wrong option with System.exit; the shell is then started anew for the next command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.compat.harness.java import CURRENT
from tests.compat.harness.shell import JavaFailed, JavaShell

MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Completed:
    command: str
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """What it printed, without blank lines."""
        return [line.rstrip() for line in self.stdout.splitlines() if line.strip()]

    def table(self) -> list[dict[str, str]]:
        """The rows under a heading of the form `#Cluster Name  #Broker Name  #BID`, by heading."""
        return table(self.lines)


def table(lines: list[str]) -> list[dict[str, str]]:
    at = next((number for number, line in enumerate(lines) if line.startswith("#")), None)
    if at is None:
        raise ValueError("no line starts with #:\n" + "\n".join(lines))
    names = [name.strip() for name in lines[at].split("#")[1:]]
    return [dict(zip(names, re.split(r"\s{2,}", line.strip()), strict=False)) for line in lines[at + 1 :]]


class MqAdmin:
    def __init__(self, directory: Path, version: str = CURRENT) -> None:
        self._shell = JavaShell(directory, version, name="mqadmin")

    @property
    def home(self) -> Path:
        """Where it looks for conf/tools.yml, the keys that it signs with."""
        return self._shell.home

    def __call__(self, *args: object, namesrv: str | None = None, check: bool = True) -> Completed:
        """Run one command. A stack trace or a refused option raises, unless check is False."""
        words = [str(arg) for arg in args] + (["-n", namesrv] if namesrv else [])
        run = self._shell.main(MAIN, *words)
        try:
            run.wait(COMMAND_TIMEOUT_S)
        except JavaFailed:
            if check or run.exit_status is None:
                raise
        done = Completed("mqadmin " + " ".join(words), run.stdout, run.stderr)
        if check and re.search(r"^\S*(Exception|Error)\b", done.stdout + done.stderr, re.MULTILINE):
            raise JavaFailed(f"{done.command}\n{done.stdout}\n{done.stderr}")
        return done

    def close(self) -> None:
        self._shell.close()
