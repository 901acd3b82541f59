"""Passwords that are made here."""

import argparse
import string
from pathlib import Path

from cometmq.cli.shared.passwords import LENGTH, chosen, generated


def test_passwords_are_long_plain_and_never_the_same() -> None:
    made = {generated() for _ in range(100)}
    assert len(made) == 100
    assert {len(one) for one in made} == {LENGTH}
    assert set("".join(made)) <= set(string.ascii_letters + string.digits)


def test_a_given_one_is_not_to_be_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from a file\n")
    assert chosen(argparse.Namespace(password=f"@{tmp_path}/password")) == ("from a file", False)
    assert chosen(argparse.Namespace(password=None))[1]
