"""A test that fails is run once more, alone, and named; lanes run side by side."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from scripts.check import Pass, check
sys.exit(check([[Pass(name, ["-q", "-pno:cacheprovider", name + ".py"])] for name in sys.argv[1:]]))
"""


def run(directory: Path, **files: list[str]) -> "subprocess.CompletedProcess[str]":
    (directory / "conftest.py").write_text('pytest_plugins = ["tests.support.failures_plugin"]\n')
    for name, lines in files.items():
        (directory / f"{name}.py").write_text("\n".join(["import os", *lines]) + "\n")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", PROGRAM, *files]
    return subprocess.run(command, check=False, cwd=directory, env=environment, capture_output=True, text=True)


def test_a_failure_that_passes_alone_is_named(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        test_one=[
            "def test_shy(): assert os.environ.get('COMETMQ_AGAIN')",
            "def test_well(): assert not os.environ.get('COMETMQ_AGAIN')",
        ],
        test_two=["def test_other(): pass"],
    )
    assert ran.returncode == 0, ran.stdout
    assert "passed alone, look at it: test_one.py::test_shy" in ran.stdout
    assert "pass test_two ended" in ran.stdout


def test_what_fails_twice_has_failed_in_any_lane(tmp_path: Path) -> None:
    ran = run(tmp_path, test_one=["def test_well(): pass"], test_two=["def test_broken(): assert 0"])
    assert ran.returncode == 1
    assert "failed again: test_two.py::test_broken" in ran.stdout


def test_many_failures_get_no_second_chance(tmp_path: Path) -> None:
    ran = run(tmp_path, test_one=[f"def test_{n}(): assert os.environ.get('COMETMQ_AGAIN')" for n in range(9)])
    assert ran.returncode == 1
    assert "once more" not in ran.stdout


def test_tests_that_one_fixture_took_with_it_count_once(tmp_path: Path) -> None:
    lines = [
        "import pytest",
        "@pytest.fixture(scope='session')",
        "def scene(): assert os.environ.get('COMETMQ_AGAIN')",
        *(f"def test_{n}(scene): pass" for n in range(12)),
    ]
    ran = run(tmp_path, test_one=lines)
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.count("passed alone, look at it: test_one.py::test_") == 12


def test_a_file_that_cannot_be_read_fails(tmp_path: Path) -> None:
    ran = run(tmp_path, test_one=["def test_well(): pass"], test_two=["import nothing_of_that_name"])
    assert ran.returncode != 0
    assert "pass test_two failed" in ran.stdout
