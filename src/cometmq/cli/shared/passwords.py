"""Passwords of users: made here, then shown once or put into a file, or read from a file."""

import argparse
import os
import secrets
import string
from dataclasses import dataclass, field
from typing import Final

from cometmq.errors import ConfigError
from cometmq.secret_text import read_secret
from cometmq.state_file import PRIVATE_MODE

CHARS: Final = string.ascii_letters + string.digits
# 28 of 62 characters: 166 bits.
LENGTH: Final = 28


def generated() -> str:
    """Letters and digits only: it survives shells, JSON, YAML and properties files without quoting."""
    return "".join(secrets.choice(CHARS) for _ in range(LENGTH))


def add_password(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--password", metavar="@FILE", help="its first line; without this one is made and shown once")
    group.add_argument("--save", metavar="FILE", help="put the one that is made into a new file of yours instead")


@dataclass(frozen=True, slots=True)
class Password:
    """`is_shown`: it was made here and is in no file."""

    text: str = field(repr=False)
    is_shown: bool
    saved: str | None = None

    def discard(self) -> None:
        """It was never told to a broker."""
        if self.saved is not None:
            os.unlink(self.saved)

    def shown(self) -> dict[str, str]:
        """For the record of a command."""
        if self.saved is not None:
            return {"password_file": self.saved}
        return {"password": self.text} if self.is_shown else {}


def chosen(options: argparse.Namespace, *, is_plan: bool = False) -> Password:
    """Given, or made here. A plan leaves no file behind."""
    if options.password is not None:
        return Password(read_secret("--password", options.password), is_shown=False)
    made = generated()
    if options.save is None:
        return Password(made, is_shown=True)
    if not is_plan:
        _save(options.save, made)
    return Password(made, is_shown=False, saved=options.save)


def _save(path: str, password: str) -> None:
    """In a new file that only its owner reads, before any broker knows it: it must not get lost."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    except FileExistsError:
        raise ConfigError(f"--save {path}: there is such a file already, take another name") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{password}\n")
