"""Checks what a user sees when something is wrong: one line with cause and fix, an exit code, no traceback."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.cli import failures
from cometmq.cli.main import COMMANDS
from cometmq.errors import BrokerError, CallTimeout
from cometmq.store.flags import DISK_FULL
from cometmq.testing import Cluster, SyncCluster
from tests.cli.conftest import Comet, Ran
from tests.conftest import run
from tests.support.require import unavailable

NOBODY = "127.0.0.1:1"


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text


def comet_process(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "cometmq.cli.main", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "list"),
        ("group", "list"),
        ("send", "T", "x"),
        ("tail", "T", "--no-follow"),
        ("cluster", "list"),
        ("message", "find", "T", "--key", "k"),
        ("dlq", "list", "G"),
        ("config", "get"),
        ("bench", "send", "-n", "1"),
        ("export", "T"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_wrong_address_is_one_line_with_the_address_and_what_to_do(
    arguments: tuple[str, ...], lonely: Comet
) -> None:
    ran = lonely(*arguments, "--namesrv", NOBODY)
    assert ran.code == (failures.EXIT_UNREACHABLE if arguments[0] != "dlq" else ran.code)
    if ran.code:
        line = one_line(ran.err)
        assert NOBODY in line
        assert "--namesrv" in line


def test_an_address_that_is_none_is_refused_before_anything_is_tried(lonely: Comet) -> None:
    ran = lonely("topic", "list", "--namesrv", "no-port-here")
    assert ran.code == failures.EXIT_USAGE
    assert "no-port-here" in one_line(ran.err)


def test_a_stopped_broker_is_one_line(lonely: Comet) -> None:
    with SyncCluster(topics=["T"]) as cluster:
        address = cluster.broker.address
        cluster.broker.kill()
        for arguments in (("send", "T", "x"), ("topic", "describe", "T"), ("tail", "T", "--no-follow")):
            ran = lonely(*arguments, "--namesrv", cluster.namesrv, "--timeout", "2s")
            assert ran.code in (failures.EXIT_UNREACHABLE, failures.EXIT_MISSING), ran.err
            line = one_line(ran.err)
            assert address in line or "cometmq" in line.removeprefix("cometmq")


def test_a_refused_permission_is_one_line_that_names_the_topic(comet: Comet) -> None:
    comet.good("topic", "create", "TopicReadOnly", "--queues", "1", "--broker", "broker-a", "--permissions", "r")
    ran = comet("send", "TopicReadOnly", "x")
    assert ran.code in (failures.EXIT_REFUSED, failures.EXIT_MISSING)
    assert "TopicReadOnly" in one_line(ran.err)
    code, text = failures.judge(BrokerError(16, "no permission", "broker-a"))
    assert code == failures.EXIT_REFUSED
    assert "--access-key" in text


def test_a_full_disk_at_the_broker_is_one_line(lonely: Comet) -> None:
    async def check() -> Ran:
        async with Cluster(topics=["T"]) as cluster:
            cluster.broker.server.store.flags.set(DISK_FULL)  # as the round that measures the disk does
            return await asyncio.to_thread(lonely, "send", "T", "x", "--namesrv", cluster.namesrv)

    ran = run(check())
    assert ran.code == failures.EXIT_DISK, ran.err
    assert "disk" in one_line(ran.err)


def test_a_full_disk_here_is_one_line(comet: Comet) -> None:
    if not os.path.exists("/dev/full"):
        unavailable("full disk", "/dev/full")
    comet.good("topic", "create", "TopicToNowhere", "--queues", "1", "--broker", "broker-a")
    comet.good("send", "TopicToNowhere", "x")
    ran = comet("export", "TopicToNowhere", "--file", "/dev/full")
    assert ran.code == failures.EXIT_DISK
    assert "full" in one_line(ran.err)


def test_a_corrupt_store_is_said_by_code_and_line(lonely: Comet, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(os.urandom(4096))
    (tmp_path / "commitlog" / ("0" * 16 + "4096")).write_bytes(b"\0" * 1024)
    ran = lonely("store", "check", tmp_path)
    assert ran.code == failures.EXIT_FILE
    assert "different sizes" in one_line(ran.err)
    assert lonely("store", "dump", tmp_path / "nothing").code == failures.EXIT_FILE


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"version"}))
def test_every_command_has_help_and_refuses_nonsense_in_one_line(command: str, lonely: Comet) -> None:
    helped = lonely(command, "--help")
    assert (helped.code, helped.err) == (0, "")
    assert "usage: cometmq" in helped.out
    wrong = lonely(command, "--no-such-option")
    assert wrong.code == failures.EXIT_USAGE
    assert "Traceback" not in wrong.err
    assert wrong.out == ""


def test_an_answer_that_does_not_come_in_time_names_the_way_out() -> None:
    code, text = failures.judge(CallTimeout("no answer from 10.0.0.1:10911 within 5 s"))
    assert code == failures.EXIT_UNREACHABLE
    assert "--timeout" in text
    assert "cometmq explain 27" in failures.judge(BrokerError(27, "?", "b"))[1]
    assert "a Java broker without that feature" in failures.judge(BrokerError(3, "unknown code", "b"))[1]


def test_every_exit_code_is_documented() -> None:
    codes = {value for name, value in vars(failures).items() if name.startswith("EXIT_")}
    assert failures.__doc__ is not None
    listed = {int(line.split()[0]) for line in failures.__doc__.splitlines() if line[:4] == "    " and line.split()}
    assert codes | {0} == listed


# Real processes


def test_ctrl_c_ends_a_follower_quietly(cluster: SyncCluster, comet: Comet) -> None:
    comet.good("topic", "create", "TopicInterrupted", "--queues", "1", "--broker", "broker-a")
    comet.good("send", "TopicInterrupted", "seen")
    process = comet_process("tail", "TopicInterrupted", "--namesrv", cluster.namesrv, "-o", "json")
    assert process.stdout is not None
    assert "seen" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (failures.EXIT_INTERRUPTED, "")


def test_ctrl_c_ends_a_sender_that_waits_for_its_terminal(cluster: SyncCluster, comet: Comet) -> None:
    comet.good("topic", "create", "TopicTyped", "--queues", "1", "--broker", "broker-a")
    process = comet_process("send", "TopicTyped", "--namesrv", cluster.namesrv)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("typed\n")
    process.stdin.flush()
    assert process.stdout.readline().startswith("SEND_OK")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == failures.EXIT_INTERRUPTED
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_a_reader_that_has_seen_enough_ends_a_pipe_quietly(cluster: SyncCluster, comet: Comet) -> None:
    comet.good("topic", "create", "TopicCut", "--queues", "1", "--broker", "broker-a")
    comet.good("send", "TopicCut", stdin=b"x\n" * 300)
    process = comet_process("tail", "TopicCut", "--from", "earliest", "--namesrv", cluster.namesrv, "-o", "json")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    comet.good("send", "TopicCut", "wakes it")
    assert process.stderr is not None
    err = process.stderr.read()
    assert (process.wait(30), err) == (0, "")
    assert process.stdin is not None
    process.stdin.close()
    process.stderr.close()


def test_help_loads_neither_clients_nor_servers() -> None:
    code = (
        "import sys; from cometmq.cli.main import main; main(['--help']); "
        "sys.exit(any(name in sys.modules for name in ('asyncio', 'argparse', 'msgspec', 'cometmq.client.client')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
