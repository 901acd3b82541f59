"""`cometmq nameserver` as a process: arguments, exit codes, signals, other processes around it."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from cometmq.wire.bodies import TopicConfig, TopicRoute
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, decode, encode
from tests.nameserver.support import asked, command_line, environment, process, registration, registration_body


class Link:
    """A blocking connection, for peers that live in threads."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, command: Command) -> Command:
        return self.exchange(encode(command))

    def exchange(self, frame: bytes) -> Command:
        self.socket.sendall(frame)
        (length,) = struct.unpack(">I", self._read(4))
        return decode(self._read(length), 0, length)

    def route(self, topic: str) -> Command:
        return self.call(asked(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the name server closed the connection"
            data += more
        return data


def finish(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command_line(*arguments), capture_output=True, text=True, env=environment(home), timeout=30, check=False
    )


# Start and stop


@pytest.mark.mission("NS-02")
def test_print_mode_lists_every_setting_and_exits_0(tmp_path: Path) -> None:
    done = finish(tmp_path, "-p")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "listenPort=9876" in lines
    assert f"kvConfigPath={tmp_path}/namesrv/kvConfig.json" in lines
    assert lines == sorted(lines)
    (tmp_path / "conf").write_text("listenPort=1234\nenableTopicList=false\n")
    done = finish(tmp_path, "-p", "-c", str(tmp_path / "conf"), "--set", "enableTopicList=true", "-n", "ignored:1")
    assert {"listenPort=1234", "enableTopicList=true", f"configStorePath={tmp_path}/conf"} <= set(
        done.stdout.splitlines()
    )


@pytest.mark.mission("NS-02")
@pytest.mark.parametrize(
    ("code", "arguments", "cause"),
    [
        (3, ["-c", "absent.conf"], "cannot read settings file absent.conf: No such file"),
        (3, ["--set", "waitSecondsForService=long"], "waitSecondsForService=long is not a whole number"),
        (3, ["--set", "clusterTest=true"], "rocketmq.namesrv.addr"),
        (3, ["--set", "tls.server.mode=enforcing"], "TLS is enforced"),
        (3, ["--set", "kvConfigPath=damaged.json"], "no good copy of"),
        (4, ["--listen", "occupied"], "cannot listen on 127.0.0.1:"),
        (4, ["--listen", "no.such.host.invalid:9876"], "cannot listen on no.such.host.invalid:9876"),
    ],
)
def test_each_failure_has_its_exit_code_and_one_line(
    code: int, arguments: list[str], cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    (tmp_path / "damaged.json").write_text("{")
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        address = f"127.0.0.1:{occupant.getsockname()[1]}"
        listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        done = finish(tmp_path, *listen, *(address if it == "occupied" else it for it in arguments))
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert cause in line


@pytest.mark.parametrize(
    "arguments", [["--nonsense"], ["-c"], ["--listen", "9876"], ["--listen", "h:70000"], ["--set", "x"]]
)
def test_wrong_arguments_exit_2_and_help_exits_0(arguments: list[str], tmp_path: Path) -> None:
    assert finish(tmp_path, *arguments).returncode == 2
    done = finish(tmp_path, "-h")
    assert (done.returncode, "exit codes:" in done.stdout) == (0, True)


@pytest.mark.mission("NS-02")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_and_frees_the_port_at_once(number: signal.Signals, tmp_path: Path) -> None:
    with process(tmp_path) as server, Link(server.port) as broker:
        assert broker.call(registration("A", "B")).code == 0
        server.child.send_signal(number)
        assert server.child.wait(10) == 0
        assert broker.socket.recv(1) == b""
        with process(tmp_path, "--listen", server.address) as successor, Link(successor.port) as client:
            assert client.route("A").code == 17


def test_changed_settings_go_to_the_file_of_c(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("# mine\nteam=orders\n")
    with process(tmp_path, "-c", str(conf)) as server, Link(server.port) as admin:
        assert admin.call(asked(Request.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false")).code == 0
    assert {"enableTopicList=false", "team=orders"} <= set(conf.read_text().splitlines())
    with process(tmp_path, "-c", str(conf)) as server, Link(server.port) as admin:
        assert admin.call(asked(Request.GET_UNIT_TOPIC_LIST)).code == 1


# Brokers and other name servers around it


@pytest.mark.mission("NS-05")
def test_killing_the_broker_process_removes_it_when_its_connection_ends(tmp_path: Path) -> None:
    script = "import socket,sys,time; s=socket.create_connection(('127.0.0.1',int(sys.argv[1]))); s.sendall(bytes.fromhex(sys.argv[2])); s.recv(1); print('registered',flush=True); time.sleep(60)"  # noqa: E501
    with process(tmp_path) as server, Link(server.port) as client:
        arguments = [str(server.port), encode(registration("A", "B")).hex()]
        broker = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
        assert broker.stdout is not None
        broker.stdout.readline()
        assert client.route("A").code == 0
        broker.kill()
        killed_s = time.monotonic()
        while client.route("A").code != 17:
            assert time.monotonic() - killed_s < 30, "its silence would take 120 s to count"
        broker.communicate()


def peers_of(pid: int) -> set[int]:
    """Remote ports of all TCP connections of a process."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(descriptor)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].rpartition(":")[2], 16) for row in rows if row[9] in inodes} - {0}


@pytest.mark.mission("NS-01")
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="connections of a process are read from /proc")
def test_two_name_servers_answer_alike_and_never_talk_to_each_other(tmp_path: Path) -> None:
    command = registration("A", "B")
    with process(tmp_path) as first, Link(first.port) as to_first:
        with process(tmp_path) as second, Link(second.port) as to_second:
            links = {first: to_first, second: to_second}
            for link in links.values():
                assert link.call(command).code == 0
            bodies = {link.route("A").body for link in links.values()}
            assert len(bodies) == 1
            for server, link in links.items():
                assert peers_of(server.pid) == {link.socket.getsockname()[1]}
            address = second.address
        with process(tmp_path, "--listen", address) as again, Link(again.port) as to_again:
            assert to_again.route("A").code == 17
            assert to_again.call(command).code == 0
            assert to_again.route("A").body == to_first.route("A").body == bodies.pop()
            assert peers_of(again.pid) == {to_again.socket.getsockname()[1]}
            assert peers_of(first.pid) == {to_first.socket.getsockname()[1]}


@pytest.mark.mission("NS-07")
def test_fifty_brokers_with_5000_topics_each_do_not_delay_route_answers(tmp_path: Path) -> None:
    topics = [TopicConfig(topic_name=f"SomeTopicOfTheCluster{number:05d}") for number in range(5_000)]
    bodies = [registration_body(*topics, counter=wave) for wave in range(2)]
    # On a machine that others keep busy a process may not run for longer than that: the best of three counts.
    p99_ms: list[float] = []
    while len(p99_ms) < 3 and not (p99_ms and p99_ms[-1] < 200):
        p99_ms.append(ask_while_brokers_register(tmp_path, bodies))
    assert p99_ms[-1] < 200, p99_ms


def ask_while_brokers_register(home: Path, bodies: list[bytes]) -> float:
    """The 99th percentile of the time that a route answer took, in ms."""
    brokers = 50
    together = threading.Barrier(brokers)
    took_ms: list[float] = []

    def play_broker(link: Link, number: int) -> None:
        name, address = f"broker-{number:02d}", f"10.0.{number}.1:10911"
        frames = [encode(registration(body=body, broker_name=name, broker_addr=address)) for body in bodies]
        together.wait()
        for frame in frames:
            assert link.exchange(frame).code == 0

    with process(home) as server, ExitStack() as stack, ThreadPoolExecutor(brokers) as pool:
        links = [stack.enter_context(Link(server.port)) for _ in range(brokers)]
        client = stack.enter_context(Link(server.port))
        registering = [pool.submit(play_broker, link, number) for number, link in enumerate(links)]
        while not all(it.done() for it in registering):
            start_s = time.monotonic()
            answer = client.route("SomeTopicOfTheCluster00007")
            took_ms.append((time.monotonic() - start_s) * 1e3)
            assert answer.code in (0, 17), f"refused: {answer.remark}"
            time.sleep(0.001)
        for it in registering:
            it.result()
        assert len(TopicRoute.decode(client.route("SomeTopicOfTheCluster00007").body).broker_datas) == brokers
    assert len(took_ms) > 50
    return sorted(took_ms)[len(took_ms) * 99 // 100]
