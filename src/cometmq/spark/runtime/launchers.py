"""Small shell programs that Spark starts in place of others. They lie in a directory of this user's own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cometmq.errors import ConfigError


def launcher(home: str, name: str, text: str) -> Path:
    """The program `name` with that text in cometmq-`home` of the temporary directory, made if it is not there."""
    directory = Path(tempfile.gettempdir()) / f"cometmq-{home}-{os.getuid()}"
    program = directory / name
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.replace(program)
    if directory.stat().st_uid != os.getuid():
        raise ConfigError(f"{directory} belongs to another user: remove it")
    return program
