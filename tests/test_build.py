"""Checks the two builds: a pure wheel without compilation, extension modules with it, and loud failures.

The wheels are built from a copy of the tree, because an in-tree build would leave files for the next one.
"""

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OVERLAY = ROOT / "build" / "compiled"
HAS_COMPILER = shutil.which("cc") is not None
CLEARED = ("PYTHONPATH", "COMETMQ_COMPILE", "CC")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    copy = tmp_path / "tree"
    ignore = shutil.ignore_patterns("*.egg-info", "__pycache__", "*.so")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def python(*arguments: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run this Python without what could lead it to another build of cometmq."""
    kept = {key: value for key, value in os.environ.items() if key not in CLEARED}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=kept | {"COMETMQ_OPT_LEVEL": "0"} | settings,
        capture_output=True,
        text=True,
        check=False,
    )


def build_wheel(tree: Path, **settings: str) -> Path:
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", "out"]
    done = python("-m", "pip", "wheel", *options, ".", cwd=tree, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tree / "out").glob("*.whl")
    return wheel


def installed_version_line(wheel: Path, target: Path) -> str:
    target.mkdir()
    options = ["--quiet", "--no-deps", "--target", str(target)]
    done = python("-m", "pip", "install", *options, str(wheel), cwd=target)
    assert done.returncode == 0, done.stderr
    return python("-m", "cometmq.cli.main", "version", cwd=target, PYTHONPATH=str(target)).stdout


def extensions(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.endswith(".so")]


def run_setup(tree: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """The cheapest call that still decides about compilation."""
    return python("setup.py", "--version", cwd=tree, **settings)


def test_a_build_without_compilation_is_pure_and_says_interpreted(tree: Path, tmp_path: Path) -> None:
    wheel = build_wheel(tree, COMETMQ_COMPILE="0")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert extensions(wheel) == []
    assert "(interpreted)" in installed_version_line(wheel, tmp_path / "target")
    said = python("-m", "cometmq.cli.main", "version", cwd=tmp_path, PYTHONPATH=str(tmp_path / "target")).stderr
    assert "interpreted and slower than a compiled one: COMETMQ_COMPILE=0 said so" in said


def test_a_build_that_fell_back_says_at_every_version_why(tree: Path, tmp_path: Path) -> None:
    wheel = build_wheel(tree, CC="no-such-compiler")
    target = tmp_path / "target"
    assert "(interpreted)" in installed_version_line(wheel, target)
    said = python("-m", "cometmq.cli.main", "version", cwd=tmp_path, PYTHONPATH=str(target)).stderr
    assert "no C compiler (no-such-compiler" in said


@pytest.mark.long
@pytest.mark.skipif(not HAS_COMPILER, reason="NOT TESTED: compiled build, no C compiler")
def test_a_compiled_build_has_its_hot_modules_and_says_compiled(tree: Path, tmp_path: Path) -> None:
    few = [path for path in hot_modules() if Path(path).stem in ("frame", "hashing", "sysflag")]
    assert len(few) == 3
    keep_hot(tree, few)
    wheel = build_wheel(tree, COMETMQ_COMPILE="1")
    assert not wheel.name.endswith("-none-any.whl")
    assert compiled_names(few) <= {name.split(".")[0] for name in extensions(wheel)}
    assert "(compiled)" in installed_version_line(wheel, tmp_path / "target")


@pytest.mark.skipif(not OVERLAY.exists(), reason="NOT TESTED: the compiled build, there is none without a C compiler")
def test_the_compiled_build_has_every_hot_module() -> None:
    found = {str(path.relative_to(OVERLAY)).split(".")[0] for path in OVERLAY.rglob("*.so")}
    assert compiled_names(hot_modules()) <= found


def keep_hot(tree: Path, modules: list[str]) -> None:
    """Shorten the list in a copy's setup.py: each module takes a second to compile."""
    script = tree / "setup.py"
    text = script.read_text(encoding="utf-8")
    (assignment,) = (node for node in ast.parse(text).body if is_hot_modules(node))
    lines = text.splitlines()
    lines[assignment.lineno - 1 : assignment.end_lineno] = [f"HOT_MODULES: tuple[str, ...] = {tuple(modules)!r}"]
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")


def compiled_names(modules: Iterable[str]) -> set[str]:
    return {path.removeprefix("src/").removesuffix(".py") for path in modules}


def is_hot_modules(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "HOT_MODULES"


def hot_modules() -> tuple[str, ...]:
    """HOT_MODULES as setup.py has it, without running a build."""
    for node in ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and is_hot_modules(node) and node.value:
            modules: tuple[str, ...] = ast.literal_eval(node.value)
            return modules
    raise AssertionError("setup.py has no HOT_MODULES")


def test_forced_compilation_without_a_compiler_fails_and_says_why(tree: Path) -> None:
    done = run_setup(tree, COMETMQ_COMPILE="1", CC="no-such-compiler")
    assert done.returncode != 0
    assert "COMETMQ_COMPILE=1 but cannot compile: no C compiler (no-such-compiler" in done.stderr


def test_without_a_compiler_a_build_falls_back_with_one_line(tree: Path) -> None:
    done = run_setup(tree, CC="no-such-compiler")
    assert done.returncode == 0
    assert done.stderr.count("installing plain Python modules: no C compiler") == 1


def test_a_hot_module_that_does_not_exist_ends_the_build(tree: Path) -> None:
    (tree / "src/cometmq/wire/frame.py").unlink()
    done = run_setup(tree)
    assert done.returncode != 0
    assert "lists files that do not exist: src/cometmq/wire/frame.py" in done.stderr


def test_an_unknown_setting_ends_the_build(tree: Path) -> None:
    done = run_setup(tree, COMETMQ_COMPILE="yes")
    assert done.returncode != 0
    assert "COMETMQ_COMPILE='yes' is not known" in done.stderr


def test_the_source_tree_holds_no_extension_modules() -> None:
    found = list((ROOT / "src").rglob("*.so"))
    assert not found, f"an import would take these instead of the source: {found}"
