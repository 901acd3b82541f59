"""Checks what a user sees when something is wrong: one line with cause and fix, an exit code, no traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.cli.main import COMMANDS
from cometmq.cli.shared import failures
from cometmq.errors import BrokerError, CallTimeout
from cometmq.testing import SyncCluster
from tests.cli.conftest import Comet
from tests.support.golden import copy_golden_store
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
        ("dlq", "replay", "G", "--yes"),
        ("cluster", "health"),
        ("cluster", "top", "-n", "1"),
        ("message", "get", "7F00000100002A9F0000000000000000"),
        ("group", "seek", "G", "T", "--to", "earliest"),
        ("rtt",),
        ("config", "get"),
        ("bench", "send", "-n", "1"),
        ("export", "T"),
    ],
    ids=" ".join,
)
def test_a_wrong_address_is_one_line_with_the_address_and_what_to_do(
    arguments: tuple[str, ...], lonely: Comet
) -> None:
    ran = lonely(*arguments, "--namesrv", NOBODY)
    assert ran.code == failures.EXIT_UNREACHABLE
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
        for arguments in (
            ("send", "T", "x"),
            ("topic", "describe", "T"),
            ("tail", "T", "--no-follow"),
            ("group", "lag", "G"),
            ("topic", "create", "New"),
            ("config", "get", "--broker", cluster.broker.name),
        ):
            ran = lonely(*arguments, "--namesrv", cluster.namesrv, "--timeout", "2s")
            assert ran.code == failures.EXIT_UNREACHABLE, ran.err
            line = one_line(ran.err)
            assert address in line or "no broker is registered" in line
            assert "cometmq cluster health" in line or "cometmq up" in line


def test_a_refused_permission_is_one_line_that_names_the_topic(comet: Comet) -> None:
    comet.good("topic", "create", "TopicReadOnly", "--queues", "1", "--broker", "broker-a", "--permissions", "r")
    comet.good("topic", "create", "TopicWriteOnly", "--queues", "1", "--broker", "broker-a", "--permissions", "w")
    for arguments, permissions in (
        (("send", "TopicReadOnly", "x"), "broker-a r"),
        (("tail", "TopicWriteOnly", "--no-follow"), "broker-a w"),
    ):
        ran = comet(*arguments)
        assert ran.code == failures.EXIT_REFUSED
        line = one_line(ran.err)
        assert permissions in line
        assert f"cometmq topic alter {arguments[1]} --permissions rw" in line


@pytest.mark.parametrize(
    ("remark", "advice"),
    [
        ("User:u has no permission to access Topic:T from 127.0.0.1", "--access-key"),
        ("brokerName cannot be changed in a running broker: edit its settings file and restart", "settings file"),
        ("the broker[broker-a] sending message is forbidden", "cometmq explain 16"),
    ],
)
def test_what_is_refused_is_advised_by_its_cause(remark: str, advice: str) -> None:
    code, text = failures.judge(BrokerError(16, remark, "broker-a"))
    assert code == failures.EXIT_REFUSED
    assert advice in text
    assert ("--access-key" in text) == ("permission to access" in remark)


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


def test_a_server_refuses_a_store_whose_tables_are_broken_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_bytes(b"{ not json")
    server = comet_process("up", "--data", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0")
    out, err = server.communicate(timeout=60)
    assert (server.returncode, out) == (failures.EXIT_FILE, "")
    assert "topics.json" in one_line(err)


def test_damage_in_a_log_is_told_with_its_place_and_the_way_out(lonely: Comet, tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    log = next(iter(sorted((root / "commitlog").iterdir())))
    with log.open("r+b") as file:
        file.seek(400)
        file.write(os.urandom(300))
    ran = lonely("store", "check", root)
    assert ran.code == failures.EXIT_NO
    assert any(line.startswith("wrong: ") for line in ran.out.splitlines())
    assert "cometmq store rebuild" in one_line(ran.err)


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
