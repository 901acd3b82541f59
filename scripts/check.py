"""Runs pytest; a test that fails is run once more, alone, before it counts.

    python scripts/check.py -q tests/compat

Many tests start real servers, Java's among them, and wait for what they do. On a machine of two cores one of them runs
out of time now and then, because of its neighbours. What fails a second time, with the machine to itself, is broken.
The last lines name every test that needed its second chance, so that it is seen and mended; more than `FEW` failures
are no accident and get none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FEW = 6
FAILED = 1  # what pytest returns when tests ran and some failed


def run(*arguments: str, **environment: str) -> int:
    environment = {**os.environ, **environment}
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], env=environment)


def main(arguments: list[str]) -> int:
    options = [argument for argument in arguments if argument.startswith("-")]
    with tempfile.TemporaryDirectory() as directory:
        failures = Path(directory) / "failures"
        code = run(*arguments, COMETMQ_FAILURES=str(failures))
        failed = failures.read_text().splitlines() if failures.exists() else []
        if code != FAILED or not 0 < len(failed) <= FEW:
            return code
        print(f"\nonce more, alone: {len(failed)} of the tests above", flush=True)
        code = run(*options, *failed, COMETMQ_AGAIN="1")
    verdict = "failed again" if code else "passed alone, look at it"
    for name in failed:
        print(f"{verdict}: {name}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
