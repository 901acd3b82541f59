"""Passes run side by side, and a test that fails has failed."""

import os
import subprocess
import sys
from pathlib import Path

from scripts.check import APART, BESIDE_OTHERS, HOT, plan

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from scripts.check import Pass, check
sys.exit(check([Pass(name, ["-q", "-pno:cacheprovider", name + ".py"]) for name in sys.argv[1:]]))
"""


def run(directory: Path, **files: list[str]) -> "subprocess.CompletedProcess[str]":
    for name, lines in files.items():
        (directory / f"{name}.py").write_text("\n".join(["import os", *lines]) + "\n")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", PROGRAM, *files]
    return subprocess.run(command, check=False, cwd=directory, env=environment, capture_output=True, text=True)


def test_passes_that_go_well_are_shown(tmp_path: Path) -> None:
    ran = run(tmp_path, test_one=["def test_well(): pass"], test_two=["def test_other(): pass"])
    assert ran.returncode == 0, ran.stdout
    assert "pass test_two ended" in ran.stdout
    assert ran.stdout.count("1 passed") == 2


def test_what_fails_in_any_pass_has_failed_and_is_run_once(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    broken = f"def test_broken():\n    open({str(counter)!r}, 'a').write('x')\n    assert 0"
    ran = run(tmp_path, test_one=["def test_well(): pass"], test_two=[broken])
    assert ran.returncode == 1
    assert "pass test_two failed" in ran.stdout
    assert counter.read_text() == "x"


def test_a_file_that_cannot_be_read_fails(tmp_path: Path) -> None:
    ran = run(tmp_path, test_one=["def test_well(): pass"], test_two=["import nothing_of_that_name"])
    assert ran.returncode != 0
    assert "pass test_two failed" in ran.stdout


def test_every_path_of_the_plan_is_there() -> None:
    paths = [path for part in (*HOT, *APART, BESIDE_OTHERS) for path in part]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_test_is_in_a_pass_of_the_plan_and_in_one_only() -> None:
    passes = plan("test")
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    for folder in folders:
        path = f"tests/{folder}"
        named = [one for one in passes if path in one.arguments]
        (rest,) = [one for one in passes if "tests" in one.arguments]
        assert bool(named) == (f"--ignore={path}" in rest.arguments), path
        assert len(named) <= 1, path
