"""Secrets that people give a program: as they are, or `@FILE`, so that they stay out of process lists and histories.

A file has the secret on its first line; JSON may take all of it. What cannot be read is an error that names the file,
never its content.
"""

from pathlib import Path
from typing import Final

from cometmq.errors import ConfigError

FILE_MARK: Final = "@"
FILE_BYTES_MAX: Final = 65_536


def read_secret(name: str, text: str, *, whole: bool = False) -> str:
    """`name` is the option or setting that has this text, for errors. `whole`: all lines of a file, not the first."""
    if not text.startswith(FILE_MARK):
        return text
    path = Path(text.removeprefix(FILE_MARK)).expanduser()
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror or error}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{name}: {path} has more than {FILE_BYTES_MAX} bytes: a secret on its first line is needed")
    try:
        decoded = content.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {path} is not text: it must have a secret on its first line") from None
    secret = (decoded if whole else decoded.partition("\n")[0]).strip()
    if not secret:
        raise ConfigError(f"{name}: {path} has an empty first line: it must have a secret there")
    return secret
