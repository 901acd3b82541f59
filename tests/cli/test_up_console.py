"""`cometmq up` and the console beside it: its line, its life, and what is said where it cannot be."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq.cli import up as command
from tests.support.asking import ask

PATIENCE_S = 30.0


@contextmanager
def running(data: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the console's address from the second line."""
    words = [sys.executable, "-m", "cometmq.cli.main", "up", "--data", str(data), "--namesrv-port", "0"]
    process = subprocess.Popen([*words, "--broker-port", "0", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        line = process.stdout.readline()
        assert line.startswith("console http://127.0.0.1:"), line
        yield process, line.split()[1]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address.partition("?")[0] + "api/me", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def ends(address: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while answers(address):
        assert time.monotonic() < until_s, "the console outlives its parent"
        time.sleep(0.05)


@pytest.mark.mission("CO-01")
async def test_up_prints_the_consoles_address_and_takes_it_along_when_it_ends(tmp_path: Path) -> None:
    with running(tmp_path / "data") as (process, address):
        status, overview = await ask(address, "/api/overview")
        assert (status, overview["cluster"]["brokers_up"]) == (200, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert not answers(address)


def test_a_killed_parent_takes_the_console_along(tmp_path: Path) -> None:
    with running(tmp_path / "data") as (process, address):
        assert answers(address)
        process.kill()
        process.wait(PATIENCE_S)
        ends(address)


async def test_the_console_of_a_secure_cluster_asks_who_is_there(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--secure") as (_, address):
        assert "?token=" in address
        assert (await ask(address, "/api/overview"))[0] == 401
        headers = {"Authorization": f"Bearer {address.partition('token=')[2]}"}
        status, overview = await ask(address, "/api/overview", headers=headers)
        assert (status, overview["cluster"]["brokers_up"]) == (200, 1)


async def test_without_the_extra_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "console_is_installed", lambda: False)
    options = argparse.Namespace(no_console=False, secure=False, console_port=None, broker_port=0)
    assert await command._start_console(options, {}, "127.0.0.1:1", tmp_path, command.NO_ACCESS) is None
    said = capsys.readouterr()
    assert "pip install 'cometmq[console]'" in said.err
    assert said.err.count("\n") == 1
    assert not said.out


def test_users_are_added_listed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    tool = [sys.executable, "-m", "cometmq.cli.main", "console", "user"]

    def run(*words: str) -> str:
        done = subprocess.run([*tool, *words, "--file", str(file)], capture_output=True, text=True, check=True)
        return done.stdout

    assert "shown this once" in run("add", "ada", "--role", "operator")
    assert run("list") == "ada\toperator\n"
    run("remove", "ada")
    assert json.loads(file.read_text()) == {"users": {}}
    assert os.stat(file).st_mode & 0o777 == 0o600
