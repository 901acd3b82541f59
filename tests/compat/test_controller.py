"""mqadmin 5.5.0 about sets that elect their masters: our name server with --controller answers as a controller does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.harness.admin import MqAdmin
from tests.failover.real_set import RealSet, wait_for
from tests.support.etcd import Etcd

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def a_set(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSet]:
    home = tmp_path_factory.mktemp("controller")
    etcd = Etcd(home / "etcd", 1)
    made = RealSet(home / "set", etcd)
    wait_for(lambda: made.document().in_sync == (1, 2, 3))
    yield made
    made.stop()
    etcd.stop()


@pytest.mark.mission("FO-04")
def test_metadata_names_this_name_server_as_leader(mqadmin: MqAdmin, a_set: RealSet) -> None:
    done = mqadmin("getControllerMetaData", "-a", a_set.name_server)
    assert f"#ControllerLeaderAddress\t{a_set.name_server}" in done.stdout
    assert f"#Peer:\tn0:{a_set.name_server}" in done.stdout


@pytest.mark.mission("FO-04")
def test_the_sync_state_set_shows_master_and_replicas(mqadmin: MqAdmin, a_set: RealSet) -> None:
    document = a_set.document()
    for option in (["-b", "a"], ["-c", "DefaultCluster"]):
        done = mqadmin("getSyncStateSet", "-a", a_set.name_server, *option, namesrv=a_set.name_server)
        assert f"#MasterAddr\t{document.members[document.master].address}" in done.stdout
        assert f"#MasterEpoch\t{document.epoch}" in done.stdout
        assert done.stdout.count("InSyncReplica:") == 3


@pytest.mark.mission("FO-04")
def test_epochs_of_each_broker_are_shown(mqadmin: MqAdmin, a_set: RealSet) -> None:
    done = mqadmin("getBrokerEpoch", "-b", "a", namesrv=a_set.name_server)
    assert done.stdout.count("#Epoch") >= 3


@pytest.mark.mission("FO-04")
def test_elect_master_switches_and_says_so(mqadmin: MqAdmin, a_set: RealSet) -> None:
    """Against RocketMQ's own controller it does its work and ends with a stack trace."""
    before = a_set.document()
    heir = next(number for number in before.in_sync if number != before.master)
    done = mqadmin("electMaster", "-a", a_set.name_server, "-b", heir, "-bn", "a", "-c", "DefaultCluster")
    assert a_set.document().master == heir
    assert a_set.document().epoch == before.epoch + 1
    assert "#ClusterName\tDefaultCluster" in done.stdout
    assert f"#BrokerMasterAddr\t{before.members[heir].address}" in done.stdout


@pytest.mark.mission("FO-04")
def test_settings_are_shown_and_changed(mqadmin: MqAdmin, a_set: RealSet) -> None:
    assert "controllerStore" in mqadmin("getControllerConfig", "-a", a_set.name_server).stdout
    done = mqadmin("updateControllerConfig", "-a", a_set.name_server, "-k", "waitSecondsForService", "-v", "44")
    assert "success" in done.stdout
    assert "44" in mqadmin("getControllerConfig", "-a", a_set.name_server).stdout


@pytest.mark.mission("FO-04")
def test_a_member_that_runs_is_not_cleaned_and_one_that_went_is(mqadmin: MqAdmin, a_set: RealSet) -> None:
    document = a_set.document()
    number = next(each for each in document.in_sync if each != document.master)
    clean = ("cleanBrokerMetadata", "-a", a_set.name_server, "-bn", "a", "-b", number, "-c", "DefaultCluster")
    assert "run: stop them first" in (refused := mqadmin(*clean, check=False)).stdout + refused.stderr
    assert number in a_set.document().members
    a_set.kill(a_set.number_at(document.members[number].address))
    wait_for(lambda: number not in a_set.document().in_sync and number not in a_set.alive())
    assert "success" in mqadmin(*clean).stdout
    assert number not in a_set.document().members
