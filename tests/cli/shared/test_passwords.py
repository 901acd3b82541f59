"""Passwords that are made here."""

import argparse
import string
from pathlib import Path

import pytest

from cometmq.cli.shared.passwords import LENGTH, chosen, generated
from cometmq.errors import ConfigError


def test_passwords_are_long_plain_and_never_the_same() -> None:
    made = {generated() for _ in range(100)}
    assert len(made) == 100
    assert {len(one) for one in made} == {LENGTH}
    assert set("".join(made)) <= set(string.ascii_letters + string.digits)


def test_a_given_one_is_not_to_be_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from a file\n")
    given = chosen(argparse.Namespace(password=f"@{tmp_path}/password", save=None))
    assert (given.text, given.shown()) == ("from a file", {})
    made = chosen(argparse.Namespace(password=None, save=None))
    assert made.shown() == {"password": made.text}
    assert made.text not in repr(made)


def test_one_that_is_saved_is_in_a_file_of_its_owner_and_nowhere_else(tmp_path: Path) -> None:
    options = argparse.Namespace(password=None, save=str(tmp_path / "key"))
    assert chosen(options, is_plan=True).shown() == {"password_file": str(tmp_path / "key")}
    assert not (tmp_path / "key").exists()
    made = chosen(options)
    assert (tmp_path / "key").read_text() == f"{made.text}\n"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="there is such a file already"):
        chosen(options)
