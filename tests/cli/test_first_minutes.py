"""Checks the first five minutes: what `cometmq up` says to try works, and the recorded session has no dead end."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from scripts import record_session
from tests.cli.conftest import Comet
from tests.support.require import unavailable


def test_everything_that_up_says_to_try_works(tmp_path: Path, lonely: Comet) -> None:
    command = [sys.executable, "-m", "cometmq.cli.main", "up", "--data", str(tmp_path / "data"), "--hello"]
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        server = subprocess.Popen(
            [*command, "--namesrv-port", "0", "--broker-port", "0"], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        assert server.stdout is not None
        ready = server.stdout.readline()
        assert ready.startswith("ready namesrv="), errors.read_text()
        namesrv = ready.split("namesrv=")[1].split()[0]
        while "stop          Ctrl-C" not in errors.read_text():
            assert server.poll() is None, errors.read_text()
        lines = [line.partition("cometmq ")[2] for line in errors.read_text().splitlines() if " cometmq " in line]
        assert [line.split()[0] for line in lines] == ["topic", "send", "tail", "store", "--help"]
        assert f"COMETMQ_NAMESRV={namesrv} cometmq topic" in errors.read_text()
        assert re.search(r"^  build +(compiled|interpreted), Python 3\.", errors.read_text(), re.MULTILINE)
        for line in lines:
            arguments = shlex.split(line)
            more = ["--namesrv", namesrv] if arguments[0] in ("topic", "send", "tail") else []
            more += ["--from", "earliest", "-n", "1"] if arguments[0] == "tail" else []
            assert lonely.good(*arguments, *more).out
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        assert server.stdout is not None
        server.stdout.close()


def test_the_recorded_session_has_no_error_and_no_dead_end() -> None:
    if shutil.which("tmux") is None:
        unavailable("tmux", "tmux, which records the session")
    if not (Path(sys.executable).parent / "cometmq").exists():
        unavailable("tmux", f"cometmq beside {os.path.basename(sys.executable)}")
    session = record_session.record()
    assert not any(mark in session for mark in record_session.WRONG)
    typed = [line.removeprefix("$ ") for line in session.splitlines() if line.startswith("$ ")]
    assert typed == list(record_session.COMMANDS)
    assert "SEND_OK" in session
    assert "4 behind in 4 queues" in session
