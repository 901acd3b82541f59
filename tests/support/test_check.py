"""A test that fails is run once more, alone, and named."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check(directory: Path, *lines: str) -> "subprocess.CompletedProcess[str]":
    (directory / "conftest.py").write_text('pytest_plugins = ["tests.support.failures_plugin"]\n')
    (directory / "test_sample.py").write_text("\n".join(["import os", *lines]) + "\n")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, str(ROOT / "scripts" / "check.py"), "-q", f"--rootdir={directory}", "test_sample.py"]
    return subprocess.run(command, check=False, cwd=directory, env=environment, capture_output=True, text=True)


def test_a_failure_that_passes_alone_is_named(tmp_path: Path) -> None:
    ran = check(
        tmp_path,
        "def test_shy(): assert os.environ.get('COMETMQ_AGAIN')",
        "def test_well(): assert not os.environ.get('COMETMQ_AGAIN')",
    )
    assert ran.returncode == 0, ran.stdout
    assert "passed alone, look at it: test_sample.py::test_shy" in ran.stdout


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    ran = check(tmp_path, "def test_broken(): assert 0")
    assert ran.returncode == 1
    assert "failed again: test_sample.py::test_broken" in ran.stdout


def test_many_failures_get_no_second_chance(tmp_path: Path) -> None:
    ran = check(tmp_path, *(f"def test_{number}(): assert os.environ.get('COMETMQ_AGAIN')" for number in range(7)))
    assert ran.returncode == 1
    assert "once more" not in ran.stdout
