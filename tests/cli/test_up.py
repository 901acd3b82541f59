"""Checks `cometmq up --secure`: a first user once, then whoever is there; both servers with TLS."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq.auth.users import Users
from cometmq.cli.up import NO_ACCESS, Access, first_access
from tests.cli.conftest import Comet


class Up:
    """A running `cometmq up`; what it said so far is in a file."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path, ready: str) -> None:
        self.process = process
        self.errors = errors
        self.namesrv = ready.split("namesrv=")[1].split()[0]

    def said(self, pattern: str) -> str:
        while True:
            found = re.search(pattern, self.errors.read_text(), re.MULTILINE)
            if found is not None:
                return found[1]
            assert self.process.poll() is None, self.errors.read_text()


@contextmanager
def up(data: Path, *arguments: str) -> Iterator[Up]:
    command = [sys.executable, "-m", "cometmq.cli.main", "up", "--data", str(data)]
    errors = data.with_suffix(".stderr")
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--namesrv-port", "0", "--broker-port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready namesrv="), errors.read_text()
        yield Up(process, errors, ready)
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
    assert code == 0, errors.read_text()


@pytest.mark.mission("AC-22")
def test_the_first_start_makes_a_user_and_later_ones_keep_it(lonely: Comet, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data, "--secure", "--hello") as first:
        password = first.said(r"^  password +(\S+)")
        assert first.said(r"^  it works +(one message)")
        keys = ("--access-key", "admin", "--secret-key", password)
        where = ("--namesrv", first.namesrv)
        assert [row["user"] for row in lonely.good("user", "list", "-o", "json", *where, *keys).json] == ["admin"]
        assert lonely("user", "list", *where).code == 7, "nobody gets in without keys"
    assert (data / "store" / "config" / "users.json").stat().st_mode & 0o777 == 0o600
    with up(data, "--secure", "--hello") as second:
        second.said(r"^  access +(on, for the users that there are)")
        lonely.good("topic", "list", "--namesrv", second.namesrv, *keys)
        assert password not in second.errors.read_text()


@pytest.mark.mission("AC-22")
def test_both_servers_are_closed_to_plain_peers_where_the_settings_say_so(lonely: Comet, tmp_path: Path) -> None:
    lonely.good("tls", "init", tmp_path / "certs")
    with up(tmp_path / "data", "--secure", "--hello", "-c", str(tmp_path / "certs" / "server.conf")) as running:
        password = running.said(r"^  password +(\S+)")
        assert running.said(r"^  it works +(one message)")
        keys = ("--namesrv", running.namesrv, "--access-key", "admin", "--secret-key", password)
        lonely.good("user", "list", *keys, "--tls-ca", tmp_path / "certs" / "ca.pem")
        assert lonely("user", "list", *keys).code == 4
        assert lonely("user", "list", *keys, "--tls").code == 4, "the system's authorities do not know this one"


def test_without_secure_it_says_so_where_there_are_users(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "store" / "config").mkdir(parents=True)
    (data / "store" / "config" / "users.json").write_bytes(Users().snapshot()())
    with up(data) as running:
        running.said(r"(anybody may do anything: add --secure)")


def test_a_user_of_the_settings_or_of_the_data_is_enough(tmp_path: Path) -> None:
    made = first_access({}, tmp_path)
    assert made.password is not None
    assert made.keys == ("admin", made.password)
    assert made.password not in repr(made)
    given = first_access({"initAuthenticationUser": "@file"}, tmp_path)
    assert given == Access({"authenticationEnabled": "true", "authorizationEnabled": "true"})
    assert NO_ACCESS.keys == ()


@pytest.mark.parametrize("setting", ["initAuthenticationUser=marker", "initAuthenticationUser=@/does/not/exist"])
def test_a_user_that_cannot_be_read_is_one_line(tmp_path: Path, setting: str) -> None:
    command = [sys.executable, "-m", "cometmq.cli.main", "up", "--data", str(tmp_path), "--secure", "--set", setting]
    ran = subprocess.run(
        [*command, "--namesrv-port", "0", "--broker-port", "0"], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 3
    assert ran.stderr.count("\n") == 1
    assert "initAuthenticationUser" in ran.stderr
    assert "marker" not in ran.stderr
