"""The harness itself, shown with RocketMQ's own name server, broker, clients and admin tool."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness import build, remoting
from tests.compat.harness.admin import MqAdmin, table
from tests.compat.harness.foreign import ForeignClient
from tests.compat.harness.java import release
from tests.compat.harness.processes import LIVE, ChildFailed, wait_until
from tests.compat.harness.programs import consume, send
from tests.compat.harness.servers import CometNameServer, JavaBroker, JavaNameServer
from tests.compat.harness.shell import JavaFailed, JavaShell

pytestmark = pytest.mark.interop


def test_a_java_producer_and_push_consumer_meet_at_the_java_broker(
    java: JavaShell, java_cluster: Cluster, topic: str
) -> None:
    remoting.create_topic(java_cluster.broker.address, topic)
    sent = send(java, java_cluster.namesrv.address, topic, "one", "two")
    assert [row["status"] for row in sent] == ["SEND_OK", "SEND_OK"]
    consumer = consume(java, java_cluster.namesrv.address, topic)
    got = consumer.take(2)
    send(java, java_cluster.namesrv.address, topic, "drei ✓")
    got += consumer.take()
    consumer.stop()
    bodies = [row["body"].encode("latin-1").decode() for row in got]
    assert sorted(bodies) == ["drei ✓", "one", "two"]
    assert {row["msgId"] for row in sent} <= {row["msgId"] for row in got}


def test_clients_in_other_languages_meet_at_the_java_broker(
    foreign: ForeignClient, java_cluster: Cluster, topic: str
) -> None:
    remoting.create_topic(java_cluster.broker.address, topic)
    sent = foreign.send(java_cluster.namesrv.address, topic, "one", "two")
    assert {row["broker"] for row in sent} == {java_cluster.broker.broker_name}
    got = foreign.consume(java_cluster.namesrv.address, topic, f"{topic}_group", 2)
    assert sorted(row["body"] for row in got) == ["one", "two"]


def test_mqadmin_prints_the_broker(mqadmin: MqAdmin, java_cluster: Cluster) -> None:
    done = mqadmin("clusterList", namesrv=java_cluster.namesrv.address)
    (row,) = done.table()
    assert row["Cluster Name"] == java_cluster.broker.cluster
    assert row["Broker Name"] == java_cluster.broker.broker_name
    assert row["Addr"] == java_cluster.broker.address
    assert row["Version"] == "V5_5_0"


def test_mqadmin_goes_on_after_a_command_that_ends_its_jvm(mqadmin: MqAdmin, java_cluster: Cluster) -> None:
    refused = mqadmin("topicList", "--no-such-option", check=False)
    assert "Unrecognized option" in refused.stderr
    with pytest.raises(JavaFailed, match="Unrecognized option"):
        mqadmin("topicList", "--no-such-option")
    assert "TBW102" in mqadmin("topicList", namesrv=java_cluster.namesrv.address).lines


def test_a_failing_mqadmin_command_raises_with_its_stack_trace(mqadmin: MqAdmin, java_cluster: Cluster) -> None:
    with pytest.raises(JavaFailed, match="No topic route info"):
        mqadmin("topicRoute", "-t", "NoSuchTopic", namesrv=java_cluster.namesrv.address)


def test_a_table_is_read_by_its_heading() -> None:
    lines = ["noise", "#Cluster Name  #BID  #Addr", "c 1            0     127.0.0.1:1", "c2             1"]
    assert table(lines) == [
        {"Cluster Name": "c 1", "BID": "0", "Addr": "127.0.0.1:1"},
        {"Cluster Name": "c2", "BID": "1"},
    ]


def test_rows_keep_their_json_types(java: JavaShell) -> None:
    rows = java.run(
        """
        emit("text", "é\\"\\n", "whole", 7L, "part", 0.5, "none", null, "list", List.of(1, Map.of("a", true)),
            "array", new int[] {1, 2}, "bytes", new byte[] {0, -1}, "word", SendStatus.SEND_OK);
        emit(args);
        """,
        "x y",
        3,
    ).rows
    assert rows[0] == {
        "text": 'é"\n',
        "whole": 7,
        "part": 0.5,
        "none": None,
        "list": [1, {"a": True}],
        "array": [1, 2],
        "bytes": "\x00\xff",
        "word": "SEND_OK",
    }
    assert rows[1] == ["x y", "3"]


def test_snippets_run_side_by_side_and_take_texts(java: JavaShell) -> None:
    echo = 'for (String s; (s = receive()) != null; ) emit(args[0] + s); System.out.println("bye " + args[0]);'
    first, second = java.begin(echo, "a"), java.begin(echo, "b")
    second.send("1")
    first.send("2")
    assert (first.next(), second.next()) == ("a2", "b1")
    assert (first.stop().stdout, second.stop().stdout) == ("bye a\n", "bye b\n")


def test_the_example_in_the_manual_works(java: JavaShell, cluster: Cluster, topic: str) -> None:
    manual = (build.REPO / "docs" / "compat.md").read_text(encoding="utf-8")
    example: dict[str, Any] = {}
    exec(manual.split("```python\n")[1].split("```")[0], example)
    example["test_a_java_producer_is_told_the_queue_offset"](java, cluster, topic)


def test_a_snippet_that_does_not_compile_says_where(java: JavaShell) -> None:
    with pytest.raises(JavaFailed, match=r"(?s)cannot find symbol.*emitt\(1\);"):
        java.run("emit(0);\nemitt(1);")


def test_a_snippet_that_throws_raises_here_with_its_rows(java: JavaShell) -> None:
    with pytest.raises(JavaFailed, match=r"(?s)IllegalStateException: too late.*rows: \['before'\]"):
        java.run('emit("before"); throw new IllegalStateException("too late");')


def test_a_snippet_that_hangs_is_interrupted_and_says_where(java: JavaShell) -> None:
    hanging = java.begin("import java.time.Duration;\nemit(1);\nThread.sleep(Duration.ofMinutes(5).toMillis());")
    hanging.next()
    with pytest.raises(JavaFailed, match=r"(?s)did not end within 0.5 s.*Thread\.sleep"):
        hanging.wait(0.5)


def test_snippets_go_on_after_one_that_ends_its_jvm(java: JavaShell) -> None:
    with pytest.raises(JavaFailed, match="status 3"):
        java.run('System.out.println("said"); System.exit(3);')
    assert java.run("emit(1);").rows == [1]


def test_a_killed_broker_is_gone_and_comes_back_with_its_messages(
    java55: JavaShell, java_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    with JavaBroker(tmp_path, java_cluster.namesrv.address, name="broker-k").start() as broker:
        remoting.create_topic(broker.address, topic)
        send(java55, java_cluster.namesrv.address, topic, "survivor")
        pid = broker.pid
        broker.kill()
        assert not broker.running
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port))
        broker.start()
        assert broker.pid != pid
        consumer = consume(java55, java_cluster.namesrv.address, topic)
        assert consumer.next()["body"] == "survivor"
        consumer.stop()


def test_a_server_that_cannot_start_fails_with_its_log(java_cluster: Cluster, tmp_path: Path) -> None:
    taken = JavaNameServer(tmp_path, {"listenPort": java_cluster.namesrv.address.rpartition(":")[2]})
    with pytest.raises(ChildFailed, match=r"(?s)ended with status 255.*BindException"):
        taken.start()


ORPHAN = """
import sys, time
from pathlib import Path
from tests.compat.harness.servers import JavaNameServer
server = JavaNameServer(Path(sys.argv[1])).start()
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal of Linux")
def test_a_killed_test_run_leaves_no_server_behind(jars: None, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path)], cwd=build.REPO, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        os.kill(server, 0)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{server}/cmdline").exists(), "the orphan")


def test_a_closed_server_is_forgotten(java_cluster: Cluster, tmp_path: Path) -> None:
    assert java_cluster.broker in LIVE
    with JavaNameServer(tmp_path).start() as server:
        assert server in LIVE
        assert server.stop() == 143
    assert server not in LIVE


def test_our_name_server_restarts_at_its_address_with_its_settings(tmp_path: Path) -> None:
    with CometNameServer(tmp_path).start() as server:
        address, pid = server.address, server.pid
        put: dict[str, object] = {"namespace": "n", "key": "k", "value": "v"}
        assert remoting.call(address, 100, put).code == 0
        server.restart()
        assert (server.address, server.pid != pid) == (address, True)
        assert remoting.call(address, 101, put).ext == {"value": "v"}


FAKE_MAVEN = """#!/bin/sh
echo run >> "$COUNT_FILE"
for word; do case "$word" in -DoutputDirectory=*) lib="${word#*=}";; esac; done
sleep 0.2
mkdir -p "$lib" && touch "$lib/some.jar"
"""


def test_jars_are_fetched_once_however_many_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(FAKE_MAVEN)
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent), prepend=os.pathsep)
    monkeypatch.setenv("COUNT_FILE", str(tmp_path / "count"))
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: release(), range(4)))
    assert all((one.lib / "some.jar").exists() for one in found)
    assert (tmp_path / "count").read_text() == "run\n"


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    with pytest.raises(build.ToolMissing, match="mvn is not installed"):
        release()
