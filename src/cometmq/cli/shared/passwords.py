"""Passwords of users: made here and shown once, or read from a file."""

import argparse
import secrets
import string
from typing import Final

from cometmq.secret_text import read_secret

CHARS: Final = string.ascii_letters + string.digits
# 28 of 62 characters: 166 bits.
LENGTH: Final = 28


def generated() -> str:
    """Letters and digits only: it survives shells, JSON, YAML and properties files without quoting."""
    return "".join(secrets.choice(CHARS) for _ in range(LENGTH))


def add_password(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--password", metavar="@FILE", help="its first line; without this one is made and shown once")


def chosen(options: argparse.Namespace) -> tuple[str, bool]:
    """The password, and whether it was made here and must be shown."""
    if options.password is None:
        return generated(), True
    return read_secret("--password", options.password), False
