"""The RocketMQ releases that tests talk to, and the command line of a JVM.

The jars come from Maven Central by tests/compat/java/<version>/pom.xml into build/java/<version>/lib. Our own Java
classes (the shell) and logging settings are in build/java/shell, first on every class path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.compat.harness.build import SOURCES, once, run_tool, tool

CURRENT, OLD = "5.5.0", "4.9.8"

# What RocketMQ's own start scripts open for direct buffers and mapped files.
OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
# For tests: start fast, stay small. Without `tls.server.mode` a server first makes itself a certificate, for a second.
QUICK = (
    "-Xms32m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Dtls.server.mode=disabled",
)


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    lib: Path

    def command(self, main: str, *args: str, home: Path, options: Sequence[str] = QUICK) -> list[str]:
        """The JVM's command line; `home` takes whatever RocketMQ writes under the user's home directory."""
        return [
            tool("java"),
            *options,
            *OPENED,
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            "-cp",
            f"{shell_classes()}{os.pathsep}{self.lib}/*",
            main,
            *args,
        ]


def release(version: str = CURRENT) -> Release:
    """The release with its jars in place; fetches them when the checkout does not have them yet."""
    pom = SOURCES / "java" / version / "pom.xml"

    def fetch(target: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}/lib"]
        run_tool("mvn", "-B", "-q", "-f", pom, *goal, cwd=target)

    return Release(version, once(f"java/{version}", [pom], fetch) / "lib")


def shell_classes() -> Path:
    sources = [path for path in (SOURCES / "java" / "shell").rglob("*") if path.is_file()]

    def compile_shell(target: Path) -> None:
        java = [path for path in sources if path.suffix == ".java"]
        run_tool("javac", "--release", "11", "-d", target, *java, cwd=target)
        for path in sources:
            if path.suffix == ".xml":
                shutil.copy(path, target)

    return once("java/shell", sources, compile_shell)
