"""Checks `cometmq up --set-of` and the verbs of `cometmq cluster` for sets: three brokers, a name server and etcd."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cometmq.cli.sets import machines
from tests.broker.processes import command_line
from tests.cli.conftest import Comet
from tests.failover.real_set import Child, ports_apart, wait_for
from tests.support.etcd import free_ports
from tests.support.require import unavailable

pytestmark = pytest.mark.mission("FO-09")
READY = re.compile(r"ready namesrv=(\S+) brokers=(\S+) store=(\S+)")


@dataclass(frozen=True, slots=True)
class Up:
    namesrv: str
    brokers: list[str]
    store: str
    data: Path
    process: subprocess.Popen[str]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if shutil.which("etcd") is None:
        unavailable("etcd", "no etcd on the path (Debian: etcd-server)")
    data = tmp_path_factory.mktemp("set-of")
    arguments = ("up", "--set-of", "3", "--data", str(data), "--namesrv-port", "0", "--broker-port", "0")
    with (data / "log").open("w") as log:
        process = subprocess.Popen(
            command_line(*arguments, "--grpc-port", "0"), stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    found = READY.match(process.stdout.readline())
    assert found is not None, (data / "log").read_text()
    yield Up(found[1], found[2].split(","), found[3], data, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, (data / "log").read_text()
    process.stdout.close()


@pytest.fixture
def ours(lonely: Comet, up: Up, monkeypatch: pytest.MonkeyPatch) -> Comet:
    """The command with this cluster, when its three members are in sync."""
    monkeypatch.setenv("COMETMQ_NAMESRV", up.namesrv)
    wait_for(lambda: lonely("cluster", "sets").code == 0)
    return lonely


def the_set(comet: Comet) -> dict[str, object]:
    (row,) = comet("cluster", "sets", "-o", "json").json
    assert isinstance(row, dict)
    return row


def test_a_set_is_listed_with_who_leads_and_who_is_in_sync(ours: Comet) -> None:
    row = the_set(ours)
    assert (row["set"], row["in_sync"], row["alive"], row["copies"]) == ("broker-a", [1, 2, 3], [1, 2, 3], 2)
    assert row["state"] == "ok"
    assert len(row["members"]) == 3  # type: ignore[arg-type]


def test_health_names_the_set_and_the_nodes_of_etcd_that_brokers_see(ours: Comet, up: Up) -> None:
    found = ours.good("cluster", "health", "-o", "json").json
    by_what = {one["what"]: one["found"] for one in found}
    assert "leads, 3 of 3 in sync, acked with 2 copies, seals none" in by_what["set broker-a"]
    node = up.store.removeprefix("etcd://")
    assert sum(what.startswith(f"etcd {node} from broker-a") for what in by_what) == 3


def test_elect_shows_its_plan_then_switches(ours: Comet) -> None:
    before = the_set(ours)
    heir = 1 + int(str(before["master"])) % 3
    plan = ours.good("cluster", "elect", "broker-a", str(heir))
    assert "nothing was changed" in plan.err
    assert the_set(ours)["epoch"] == before["epoch"]
    done = ours.good("cluster", "elect", "broker-a", str(heir), "--yes", "-o", "json").json
    assert done == {"set": "broker-a", "master": heir, "epoch": int(str(before["epoch"])) + 1}


def test_an_unclean_election_says_what_is_given_up(ours: Comet) -> None:
    before = the_set(ours)
    plan = ours.good("cluster", "elect", "broker-a", "2", "--unclean")
    assert "is given up, acked or not" in plan.err
    done = ours.good("cluster", "elect", "broker-a", "2", "--unclean", "--yes", "-o", "json").json
    assert done["epoch"] == int(str(before["epoch"])) + 1
    wait_for(lambda: the_set(ours)["in_sync"] == [1, 2, 3])


def test_who_is_not_there_cannot_be_elected_and_the_error_says_who_is(ours: Comet) -> None:
    ran = ours("cluster", "elect", "broker-a", "9", "--yes")
    assert ran.code == 7
    assert "it has 1 (" in ran.err
    ran = ours("cluster", "elect", "no-such-set", "1")
    assert ran.code == 7
    assert "it has broker-a" in ran.err


def test_a_broker_that_is_killed_is_started_again_and_messages_stay(ours: Comet, up: Up) -> None:
    ours.good("topic", "create", "SetOrders")
    ours.good("send", "SetOrders", "before")
    before = the_set(ours)
    children = subprocess.run(
        ["ps", "--ppid", str(up.process.pid), "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    leader = str(before["members"][str(before["master"])]).rpartition(":")[2]  # type: ignore[index]
    (pid,) = [int(line.split()[0]) for line in children.splitlines() if f"listenPort={leader}" in line]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: the_set(ours)["epoch"] != before["epoch"])
    wait_for(lambda: the_set(ours)["state"] == "ok")
    wait_for(lambda: ours("send", "SetOrders", "after").code == 0)
    bodies = ours.good("tail", "SetOrders", "--from", "earliest", "-n", "2").out
    assert "before" in bodies
    assert "after" in bodies


def test_a_member_in_sync_is_not_forgotten(ours: Comet) -> None:
    ran = ours("cluster", "forget", "broker-a", "3", "--yes")
    assert ran.code == 7
    assert "its disk counts" in ran.err


def test_a_copy_moves_to_a_fourth_broker(ours: Comet, up: Up, tmp_path: Path) -> None:
    before = the_set(ours)
    source = int(str(before["master"]))
    port = ports_apart(1, [int(each.rpartition(":")[2]) for each in up.brokers])[0]
    assert "2  wait until it is in sync" in ours.good(
        "cluster", "move", "broker-a", "--from", str(source), "--to", f"127.0.0.1:{port}"
    ).err  # fmt: skip
    settings = {
        "brokerName": "broker-a", "enableControllerMode": "true", "controllerStore": up.store,
        "storePathRootDir": tmp_path / "fourth", "listenPort": port, "namesrvAddr": up.namesrv,
    }  # fmt: skip
    child = Child(tmp_path, "fourth", "broker", *[f"--set={key}={value}" for key, value in settings.items()])
    try:
        child.ready()
        move = ("cluster", "move", "broker-a", "--from", str(source), "--to", f"127.0.0.1:{port}", "--yes")
        done = ours.good(*move, "-o", "json").json
        assert done == {"set": "broker-a", "from": source, "to": 4}
        after = the_set(ours)
        assert after["master"] == 4
        assert str(source) not in after["members"]  # type: ignore[operator]
        assert len(after["in_sync"]) == 3  # type: ignore[arg-type]
    finally:
        child.kill()
    others = [number for number in (1, 2, 3) if number != source]
    wait_for(lambda: the_set(ours)["in_sync"] == others)
    ours.good("cluster", "forget", "broker-a", "4", "--yes")


def test_plans_come_from_the_documents(ours: Comet) -> None:
    ran = ours("cluster", "plan", "--machines", "m1..m3")
    assert ran.code == 2
    assert "copies on one machine" in ran.err
    assert "each machine leads its share" in ours("cluster", "balance").err


def test_a_set_with_a_document_is_not_adopted_and_a_new_one_is(ours: Comet) -> None:
    assert "has a document" in ours("cluster", "adopt", "broker-a", "--broker", "127.0.0.1:1", "--yes").err
    planned = ours.good("cluster", "adopt", "broker-z", "--broker", "127.0.0.1:10911")
    assert "nothing was changed" in planned.err
    ours.good("cluster", "adopt", "broker-z", "--broker", "127.0.0.1:10911", "--yes")


def test_a_set_is_removed_only_when_it_is_drained_and_stopped(ours: Comet) -> None:
    planned = ours.good("cluster", "remove", "broker-a")
    assert "brokerPermission=4" in planned.err
    ran = ours("cluster", "remove", "broker-a", "--yes", "--discard", "--wait", "100ms")
    assert ran.code == 1
    assert "still run" in ran.err


def test_without_etcd_the_error_names_the_package(
    lonely: Comet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    ran = lonely("up", "--set-of", "3", "--data", tmp_path)
    assert ran.code == 3
    assert "apt install etcd-server" in ran.err


def test_a_store_that_does_not_answer_is_an_error_with_its_address(lonely: Comet) -> None:
    ran = lonely("cluster", "sets", "--store", f"etcd://127.0.0.1:{free_ports(1)[0]}")
    assert ran.code == 4
    assert "is etcd running" in ran.err


def test_machines_are_a_list_or_a_range() -> None:
    assert machines("m1,m3..m5") == ["m1", "m3", "m4", "m5"]
    assert machines("10.0.0.1..3") == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
