"""What is running: version, compiled or interpreted and why, and the Python and uvloop below it."""

import importlib.machinery
import importlib.metadata
import importlib.util
import platform
from dataclasses import dataclass
from pathlib import Path

from cometmq import __version__

# Every build compiles all hot modules or none, so one of them speaks for all.
_WITNESS = "cometmq.wire.frame"


@dataclass(slots=True, frozen=True)
class BuildInfo:
    version: str
    compiled: bool
    python: str
    uvloop: str | None
    why_not_compiled: str = ""

    @property
    def advice(self) -> str:
        """For a server of the slower build: why it is that, and what to do. Empty for a compiled one."""
        if self.compiled:
            return ""
        why = self.why_not_compiled or "it runs from its source"
        return (
            f"this build is interpreted and slower than a compiled one: {why}; install a C compiler and Python's "
            "headers, then install again (with COMETMQ_COMPILE=1 that fails where it cannot compile)"
        )

    def __str__(self) -> str:
        kind = "compiled" if self.compiled else "interpreted"
        uvloop = f"uvloop {self.uvloop}" if self.uvloop else "no uvloop"
        return f"cometmq {self.version} ({kind}), python {self.python}, {uvloop}"


def build_info() -> BuildInfo:
    compiled = _is_extension(_WITNESS)
    return BuildInfo(
        version=__version__,
        compiled=compiled,
        python=platform.python_version(),
        uvloop=_installed_version("uvloop"),
        why_not_compiled="" if compiled else _reason(),
    )


def _reason() -> str:
    """What setup.py wrote down; nothing where the source itself runs."""
    try:
        return (Path(__file__).parent / "build_reason.txt").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _is_extension(module: str) -> bool:
    """Looks at the file that an import would load; does not import it."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"{module} is part of every build"
    assert spec.origin is not None, f"{module} is a file"
    return spec.origin.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


def _installed_version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
