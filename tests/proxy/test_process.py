"""Checks `cometmq proxy` as a process: its arguments and exit codes, and its ready line."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cometmq.cli.main", "proxy", *arguments]


def environment(home: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "src")]))
    return {
        **{key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"},
        "HOME": str(home),
        "PYTHONPATH": path,
    }


def finish(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(home), timeout=60, check=False
    )


def test_it_says_when_it_serves_and_ends_at_SIGTERM(tmp_path: Path) -> None:  # noqa: N802
    process = subprocess.Popen(
        command("--namesrv", "127.0.0.1:1", "--listen", "127.0.0.1:0"),
        stdout=subprocess.PIPE, text=True, env=environment(tmp_path),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = re.fullmatch(r"ready grpc=127\.0\.0\.1:(\d+) namesrv=127\.0\.0\.1:1\n", line)
        assert ready, line
        socket.create_connection(("127.0.0.1", int(ready[1])), 30).close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 3, "namesrvAddr is empty"),
        (("--namesrv", "a:1", "--set", "brokerName=x"), 3, "unknown to a proxy: brokerName"),
        (("--namesrv", "a:1", "--set", "maxMessageSize=0"), 3, "maxMessageSize"),
        (("-c", "nothing.conf"), 3, "nothing.conf"),
        (("--listen", "nowhere"), 2, "HOST:PORT"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(
    tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = finish(tmp_path, *arguments)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = finish(tmp_path, "--namesrv", "127.0.0.1:1", "--listen", address)
    assert done.returncode == 4
    assert address.rpartition(":")[2] in done.stderr


def test_it_prints_its_settings(tmp_path: Path) -> None:
    done = finish(tmp_path, "--namesrv", "a:1;b:2", "--set", "maxDelayTimeMills=5", "-p")
    assert done.returncode == 0
    assert "grpcServerPort=8081" in done.stdout
    assert "maxDelayTimeMills=5" in done.stdout
