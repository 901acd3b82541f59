"""What is running: version, compiled or interpreted, and the Python and uvloop below it."""

import importlib.machinery
import importlib.metadata
import importlib.util
import platform
from dataclasses import dataclass

from cometmq import __version__

# Every build compiles all hot modules or none, so one of them speaks for all.
_WITNESS = "cometmq.wire.frame"


@dataclass(slots=True, frozen=True)
class BuildInfo:
    version: str
    compiled: bool
    python: str
    uvloop: str | None

    def __str__(self) -> str:
        kind = "compiled" if self.compiled else "interpreted"
        uvloop = f"uvloop {self.uvloop}" if self.uvloop else "no uvloop"
        return f"cometmq {self.version} ({kind}), python {self.python}, {uvloop}"


def build_info() -> BuildInfo:
    return BuildInfo(
        version=__version__,
        compiled=_is_extension(_WITNESS),
        python=platform.python_version(),
        uvloop=_installed_version("uvloop"),
    )


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
