"""A broker as a process: exit codes, signals, the abort file, several at once. Slow, so only what needs a process."""

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from cometmq.wire.command import Command, encode
from cometmq.wire.frame import FrameSplitter
from tests.broker.processes import broker_process, command_line, serving_process, small
from tests.nameserver.support import nameserver
from tests.support.aio import run
from tests.support.brokers import Peer, running_broker, send_request, stored, until_routed
from tests.support.net import RawPeer


def send(port: int, count: int, topic: str = "TopicA") -> None:
    """Send and wait for the answers."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        splitter = FrameSplitter()
        answers: list[Command] = []
        link.sendall(b"".join(encode(send_request(topic, b"%d" % number)) for number in range(count)))
        while len(answers) < count:
            answers += splitter.feed(link.recv(1 << 16))
    assert {answer.code for answer in answers} == {0}


def fails(*arguments: str, home: Path) -> tuple[int, str]:
    done = subprocess.run(
        command_line(*arguments), capture_output=True, text=True, timeout=30, env={**os.environ, "HOME": str(home)},
        check=False,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


# Starting


@pytest.mark.mission("BS-08")
@pytest.mark.parametrize(
    "setting", ["enableDLegerCommitLog=true", "duplicationEnable=true", "enableControllerMode=true"]
)
def test_a_mode_that_is_not_built_is_refused_by_name(tmp_path: Path, setting: str) -> None:
    code, text = fails("broker", *small(tmp_path), f"--set={setting}", home=tmp_path)
    assert code == 3
    assert text.count("\n") == 1
    assert setting.partition("=")[0] in text
    assert not (tmp_path / "store").exists(), "nothing was touched"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--set=listenPort=99999"], 3, ["listenPort", "65535"]),
        (["--set=brokerId=x"], 3, ["brokerId", "number"]),
        (["--set=messageDelayLevel=1x"], 3, ["messageDelayLevel", "1x"]),
        (["-c", "missing.conf"], 3, ["missing.conf"]),
        (["--set=brokerIP1=no such host"], 4, ["brokerIP1"]),
        (["--count", "0"], 2, ["--count"]),
        (["--nonsense"], 2, ["--nonsense"]),
        (["--set", "novalue"], 2, ["novalue"]),
    ],
)
def test_each_failure_has_its_exit_code_and_names_the_cause(
    tmp_path: Path, arguments: list[str], code: int, words: list[str]
) -> None:
    found, text = fails("broker", *small(tmp_path), *arguments, home=tmp_path)
    assert found == code, text
    assert all(word in text for word in words), text
    assert "Traceback" not in text


def test_an_occupied_port_is_exit_4_and_leaves_a_clean_store(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, text = fails("broker", *small(tmp_path, listenPort=port), home=tmp_path)
        assert code == 4
        assert str(port) in text.splitlines()[-1]
        assert not (tmp_path / "store/abort").exists()


def test_print_mode_lists_every_setting_and_starts_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        command_line("broker", "-p", *small(tmp_path, listenPort=10911)), capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert {"listenPort=10911", "brokerName=broker-a", "mappedFileSizeCommitLog=1048576"} <= set(lines)
    assert not (tmp_path / "store").exists()


@pytest.mark.mission("BS-04")
def test_a_second_broker_on_the_same_directory_refuses_and_changes_nothing(tmp_path: Path) -> None:
    with broker_process(tmp_path) as first:
        send(first.port, 10)
        first.child.send_signal(signal.SIGSTOP)  # it keeps the lock and writes nothing meanwhile
        before = hashes(tmp_path / "store")
        code, text = fails("broker", *small(tmp_path), home=tmp_path)
        assert hashes(tmp_path / "store") == before
        first.child.send_signal(signal.SIGCONT)
        assert code == 3
        assert "another broker uses this store directory" in text.splitlines()[-1]
        send(first.port, 1)
        assert first.stop() == 0
    with broker_process(tmp_path) as again:
        send(again.port, 1)


def hashes(directory: Path) -> dict[str, bytes]:
    return {str(path): hashlib.sha256(path.read_bytes()).digest() for path in directory.rglob("*") if path.is_file()}


# Stopping


@pytest.mark.mission("BS-05")
async def test_the_abort_file_tells_a_crash_from_a_stop(tmp_path: Path) -> None:
    abort = tmp_path / "store/abort"
    with broker_process(tmp_path) as first:
        send(first.port, 5)
        assert abort.read_text() == str(first.child.pid)
        assert first.stop() == 0
    assert not abort.exists()
    with broker_process(tmp_path) as second:
        send(second.port, 5)
        assert second.stop(signal.SIGKILL) == -signal.SIGKILL
    assert abort.exists()

    async with running_broker(tmp_path) as broker:
        assert broker.store.crashed
        assert len(stored(broker, "TopicA")) == 10
    async with running_broker(tmp_path) as broker:
        assert not broker.store.crashed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_and_frees_its_ports_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with broker_process(tmp_path) as process:
        assert process.stop(number) == 0
        for port in (process.port, process.port - 2):
            with socket.socket() as again:
                again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                again.bind(("127.0.0.1", port))
        assert "Traceback" not in process.log


@pytest.mark.mission("BS-07")
def test_sends_that_wait_for_the_disk_are_answered_or_cut_and_no_ack_is_lost(tmp_path: Path) -> None:
    with broker_process(tmp_path, flushDiskType="SYNC_FLUSH") as process:
        send(process.port, 1)
        with socket.create_connection(("127.0.0.1", process.port)) as link:
            link.sendall(b"".join(encode(send_request("TopicA", b"x%d" % number)) for number in range(100)))
            process.child.send_signal(signal.SIGTERM)
            began_s = time.monotonic()
            splitter = FrameSplitter()
            answers: list[Command] = []
            link.settimeout(30)
            while data := link.recv(1 << 16):
                answers += splitter.feed(data)
            took_s = time.monotonic() - began_s
        assert process.child.wait(20) == 0
    acked = [answer for answer in answers if answer.code == 0]
    assert took_s < 10, "each gets an answer or a closed connection within a second; the rest is for a busy machine"
    assert not (tmp_path / "store/abort").exists()

    async def main() -> None:
        async with running_broker(tmp_path) as broker:
            assert not broker.store.crashed
            assert broker.store.log.flushed_offset == broker.store.log.max_offset
            offsets = {message.queue_offset for message in stored(broker, "TopicA")}
            assert {int(answer.ext["queueOffset"]) for answer in acked} <= offsets

    run(main())
    print(f"{len(acked)} of 100 acked, connection closed after {took_s:.2f} s")


# Several


@pytest.mark.mission("BS-08")
def test_three_brokers_at_once_are_in_the_route_and_in_the_logs(tmp_path: Path) -> None:
    expected = {f"broker-a-{number}" for number in range(3)}

    async def main() -> None:
        async with nameserver(tmp_path) as names, RawPeer.connected(names.port) as asking:
            arguments = command_line("broker", "--count", "3", "-n", names.address, *small(tmp_path))
            with (tmp_path / "stderr").open("w") as log:
                parent = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE, stderr=log)
            try:
                assert parent.stdout is not None
                lines = [(await parent.stdout.readline()).decode() for _ in range(3)]
                assert all(line.startswith(f"ready namesrv={names.address} broker=") for line in lines), lines
                found = await until_routed(asking, "TBW102")
                assert {data.broker_name for data in found.broker_datas} == expected
                address = next(iter(found.broker_datas[0].broker_addrs.values()))
                async with Peer.at(address) as peer:
                    assert (await peer.send("TopicA")).code == 0
            finally:
                parent.send_signal(signal.SIGTERM)
                code = await parent.wait()
            assert code == 0

    run(main(), timeout_s=60)
    log = (tmp_path / "stderr").read_text()
    assert all(f"started broker name={name}" in log for name in expected)
    assert {path.name for path in (tmp_path / "store").iterdir()} == expected
    assert not list((tmp_path / "store").glob("*/abort"))


def test_up_is_a_name_server_and_a_broker(tmp_path: Path) -> None:
    arguments = ("up", "--no-console", "--data", str(tmp_path / "data"), "--namesrv-port", "0", "--broker-port", "0")
    sizes = [text for text in small(tmp_path) if "mapped" in text or "max" in text]
    with serving_process(tmp_path, *arguments, *sizes) as process:

        async def main() -> None:
            async with RawPeer.connected(int(process.name_server.rpartition(":")[2])) as asking:
                found = await until_routed(asking, "TBW102")
                assert list(found.broker_datas[0].broker_addrs.values()) == [process.address]
            async with Peer.at(process.address) as peer:
                assert (await peer.send("TopicA", b"up")).code == 0
                assert [message.body for message in await peer.pull_messages("TopicA")] == [b"up"]

        run(main())
        assert process.stop() == 0
        assert "Traceback" not in process.log
    assert not (tmp_path / "data/store/abort").exists()
