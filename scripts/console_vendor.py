"""Fetches what the console's pages use of others, by name and version, from the package registry.

    python scripts/console_vendor.py            fetch and write anew (needs npm)
    python scripts/console_vendor.py --check    exit 1 if a file is not what vendor.json says

`vendor.json` beside the files has package, version, licence and SHA-256 of each; a test compares them.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src" / "cometmq" / "console" / "static" / "vendor"
# Package, version, licence, files in it -> files here. htm's stand-alone build has Preact in it.
PACKAGES = (
    ("htm", "3.1.1", "Apache-2.0", {"preact/standalone.module.js": "preact-htm.js", "LICENSE": "htm.LICENSE"}),
    ("preact", "10", "MIT", {"LICENSE": "preact.LICENSE"}),
    ("uplot", "1.6.32", "MIT",
     {"dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "LICENSE": "uplot.LICENSE"}),
)  # fmt: skip


def listed() -> dict[str, dict[str, str]]:
    return {
        name: {
            "package": package,
            "version": version,
            "licence": licence,
            "sha256": hashlib.sha256((FOLDER / name).read_bytes()).hexdigest(),
        }
        for package, version, licence, files in PACKAGES
        for name in files.values()
    }


def fetch() -> None:
    for package, version, _, files in PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True)
            (archive,) = Path(folder).glob("*.tgz")
            with tarfile.open(archive) as opened:
                opened.extractall(folder, filter="data")
            for inner, name in files.items():
                shutil.copy(Path(folder, "package", inner), FOLDER / name)


def main() -> int:
    if "--check" not in sys.argv:
        fetch()
        (FOLDER / "vendor.json").write_text(json.dumps(listed(), indent=2) + "\n", encoding="utf-8")
        return 0
    return int(json.loads((FOLDER / "vendor.json").read_text(encoding="utf-8")) != listed())


if __name__ == "__main__":
    sys.exit(main())
