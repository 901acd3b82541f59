"""Checks the dispatch of the `cometmq` command."""

import importlib.util
import subprocess
import sys

import pytest

from cometmq import __version__
from cometmq.cli.main import COMMANDS, main


def test_version_prints_one_line_with_the_kind_of_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"cometmq {__version__} (")
    assert "interpreted" in line or "compiled" in line
    assert line.count("\n") == 1


def test_an_unknown_command_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["brew"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "unknown command 'brew'" in captured.err
    assert main(["tpoic"]) == 2
    assert "did you mean topic?" in capsys.readouterr().err


def test_help_goes_to_stdout_and_a_missing_command_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: cometmq" in captured.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_in_the_table_has_its_module(command: str) -> None:
    assert importlib.util.find_spec(COMMANDS[command][0]) is not None


def test_version_does_not_load_what_a_server_needs() -> None:
    code = (
        "import sys; from cometmq.cli.main import main; main(['version']); "
        "sys.exit(any(name in sys.modules for name in ('asyncio', 'uvloop', 'msgspec')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
