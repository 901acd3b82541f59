"""The RocketMQ releases that tests talk to, and the command line of a JVM.

The jars come from Maven Central by tests/compat/java/<version>/pom.xml, once per checkout:

    build/java/<version>/lib/*.jar      build/java/<version>/stamp   (hash of the pom that filled lib)
    build/java/shell/<hash>/            our own Java classes, compiled by javac
    build/java/lock                     held while one of these is made, so that two test runs do it once
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[3]
SOURCES = REPO / "tests" / "compat" / "java"
BUILD = REPO / "build" / "java"
CURRENT, OLD = "5.5.0", "4.9.8"
FETCH_TIMEOUT_S = 900

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


class ToolMissing(Exception):
    """Java, javac, Maven or the jars cannot be had on this machine; the message says which and what to do."""


def tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    inside = Path(home, "bin", name) if home else None
    found = str(inside) if inside is not None and inside.exists() else shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} is not installed (or not on PATH); install a JDK 11 or later and Maven")
    return found


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
    directory = BUILD / version
    pom = SOURCES / version / "pom.xml"
    stamp = directory / "stamp"
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    with _locked():
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(directory / "lib", ignore_errors=True)
            _fetch(pom, directory / "lib")
            stamp.write_text(wanted)
    return Release(version, directory / "lib")


def _fetch(pom: Path, lib: Path) -> None:
    command = [tool("mvn"), "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={lib}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ToolMissing(f"Maven could not fetch the jars of {pom}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def shell_classes() -> Path:
    """Directory with our Java classes and logging settings, first on every class path."""
    sources = sorted((SOURCES / "shell").rglob("*.*"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    target = BUILD / "shell" / digest
    if not target.exists():
        with _locked():
            if not target.exists():
                _compile_shell(sources, target)
    return target


def _compile_shell(sources: Sequence[Path], target: Path) -> None:
    unfinished = target.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    java = [str(path) for path in sources if path.suffix == ".java"]
    subprocess.run([tool("javac"), "--release", "11", "-d", str(unfinished), *java], check=True)
    for path in sources:
        if path.suffix == ".xml":
            shutil.copy(path, unfinished)
    unfinished.rename(target)


@contextmanager
def _locked() -> Iterator[None]:
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
