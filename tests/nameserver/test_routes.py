"""The tables of the name server: every rule by which a broker comes, changes and goes."""

from typing import Any

import pytest

from cometmq.errors import RequestError
from cometmq.nameserver.registration import Notice, Registration
from cometmq.nameserver.routes import TOPICS_A_STEP, Routes, only_zone
from cometmq.wire.bodies import DataVersion, QueueData, QueueMapping, TopicConfig, TopicRoute


def topic(name: str, **fields: Any) -> TopicConfig:
    return TopicConfig(**{"topic_name": name, "read_queue_nums": 4, "write_queue_nums": 4, **fields})


def registration(*topics: str | TopicConfig, version: int = 1, state_version: int = 0, **fields: Any) -> Registration:
    configs = [topic(it) if isinstance(it, str) else it for it in topics]
    values = {
        "cluster": "c",
        "name": "b",
        "address": "10.0.0.1:1",
        "broker_id": 0,
        "ha_address": "10.0.0.1:2",
        "link": None,
        "data_version": DataVersion(version, state_version, 5),
        "topics": {config.topic_name: config for config in configs},
        "acting_master": False,
    }
    return Registration(**{**values, **fields})


class Changes(list[str]):
    """Topics whose routes were said to have changed, once each."""

    def take(self) -> set[str]:
        taken = set(self)
        self.clear()
        return taken


def routes_with(*registrations: Registration) -> tuple[Routes, Changes]:
    changes = Changes()
    routes = Routes(changes.append)
    for each in registrations:
        routes.register(each, 0)
    changes.clear()
    return routes, changes


def route(routes: Routes, name: str, acting_masters: bool = False) -> TopicRoute:
    found = routes.pick_up(name, acting_masters=acting_masters)
    assert found is not None
    return found


def permission(routes: Routes, name: str, broker: str = "b") -> int:
    return routes.topics[name][broker].permission


MASTER = registration("A", "B")
REPLICA = registration("A", "B", address="10.0.0.2:1", ha_address="10.0.0.2:2", broker_id=1)


# Registration


def test_a_registered_broker_is_in_the_route_of_its_topics() -> None:
    routes, _ = routes_with(registration(topic("A", read_queue_nums=3, perm=4, topic_sys_flag=1), "B"))
    found = route(routes, "A")
    assert [(data.broker_name, data.cluster, data.broker_addrs) for data in found.broker_datas] == [
        ("b", "c", {0: "10.0.0.1:1"})
    ]
    assert found.queue_datas == [QueueData("b", 4, 3, 1, 4)]
    assert routes.pick_up("unknown", acting_masters=False) is None
    assert routes.clusters == {"c": {"b"}}


def test_the_same_address_under_a_new_id_loses_the_old_one() -> None:
    routes, changes = routes_with(MASTER, REPLICA)
    routes.unregister("c", "b", "10.0.0.1:1", 0)
    changes.clear()
    routes.register(registration("A", "B", address="10.0.0.2:1", broker_id=0), 0)
    assert routes.brokers["b"].addresses == {0: "10.0.0.2:1"}
    assert changes.take() == {"A", "B"}


def test_an_older_master_does_not_displace_a_newer_one_that_lives() -> None:
    newer = registration("A", "B", address="10.0.0.9:1", state_version=2)
    routes, changes = routes_with(newer)
    answer = routes.register(registration("A", "C", state_version=1), 0)
    assert routes.brokers["b"].addresses == {0: "10.0.0.9:1"}
    assert ("c", "10.0.0.1:1") not in routes.presences
    assert answer.master_address is None
    assert not changes
    routes.register(registration("A", "B", state_version=2), 0)
    assert routes.brokers["b"].addresses == {0: "10.0.0.1:1"}


def test_a_first_registration_with_one_topic_is_refused_and_leaves_no_trace() -> None:
    routes, changes = routes_with()
    with pytest.raises(RequestError, match="send the whole topic table") as refused:
        routes.register(registration("A"), 0)
    assert refused.value.code == 1
    assert (routes.brokers, routes.clusters, routes.presences, routes.topics) == ({}, {}, {}, {})
    routes.register(registration(), 0)
    routes.register(registration("A", version=2), 0)
    assert "A" in routes.topics
    assert changes.take() == {"A"}


def test_topics_come_from_the_master_only_when_the_replica_is_from_before_5_0() -> None:
    old_replica = registration("A", "R", broker_id=1, address="10.0.0.2:1", acting_master=None)
    routes, _ = routes_with(old_replica)
    assert "R" not in routes.topics
    routes.register(registration("A", "M"), 0)
    assert set(routes.topics) == {"A", "M"}


@pytest.mark.parametrize(("acting_master", "expected"), [(True, 4), (False, 6)])
def test_the_smallest_replica_stands_in_without_write_permission_if_it_acts_as_master(
    acting_master: bool, expected: int
) -> None:
    first = registration("A", "B", broker_id=2, address="10.0.0.3:1", acting_master=acting_master)
    second = registration("A", "X", broker_id=3, address="10.0.0.4:1", acting_master=acting_master)
    routes, _ = routes_with(first, second)
    assert permission(routes, "A") == expected
    assert "X" not in routes.topics


def test_a_topic_is_updated_only_when_the_version_changed_or_it_is_missing() -> None:
    routes, changes = routes_with(MASTER)
    wider = topic("A", write_queue_nums=9)
    routes.register(registration(wider, "B", version=1), 0)
    assert routes.topics["A"]["b"].write == 4
    assert not changes
    routes.register(registration(wider, "B", "C", version=1), 0)
    assert changes.take() == {"C"}
    routes.register(registration(wider, "B", "C", version=2), 0)
    assert routes.topics["A"]["b"].write == 9
    assert changes.take() == {"A"}


def test_topics_missing_in_a_registration_stay_unless_told_otherwise() -> None:
    routes, changes = routes_with(MASTER)
    routes.register(registration("B", "C", version=2), 0)
    assert set(routes.topics) == {"A", "B", "C"}
    routes.register(registration("B", "C", version=2), 0, drop_missing_topics=True)
    assert set(routes.topics) == {"B", "C"}
    assert changes.take() == {"A", "C"}


def test_a_replica_is_told_where_its_live_master_is() -> None:
    routes, _ = routes_with(MASTER)
    answer = routes.register(REPLICA, 0)
    assert (answer.master_address, answer.ha_address) == ("10.0.0.1:1", "10.0.0.1:2")
    routes.presences.pop(("c", "10.0.0.1:1"))
    answer = routes.register(REPLICA, 0)
    assert (answer.master_address, answer.ha_address) == (None, None)


def test_zone_and_acting_master_are_taken_anew_each_time() -> None:
    routes, changes = routes_with(registration("A", "B", zone="z1", acting_master=True))
    routes.register(registration("A", "B", zone="z2", acting_master=None), 0)
    data = route(routes, "A").broker_datas[0]
    assert (data.zone_name, data.enable_acting_master) == ("z2", False)
    assert changes.take() == {"A", "B"}


def test_filter_servers_are_listed_by_broker_address_and_change_with_each_registration() -> None:
    routes, changes = routes_with(registration("A", "B", filter_servers=["f:1"]))
    assert route(routes, "A").filter_server_table == {"10.0.0.1:1": ["f:1"]}
    routes.register(registration("A", "B"), 0)
    assert route(routes, "A").filter_server_table == {}
    assert changes.take() == {"A", "B"}


def test_static_topic_mappings_are_passed_on_and_go_with_their_topic() -> None:
    mapping = QueueMapping(bname="b", topic="A", total_queues=4)
    routes, _ = routes_with(registration("A", "B", mappings={"A": mapping, "not a topic here": mapping}))
    assert route(routes, "A").topic_queue_mapping_by_broker == {"b": mapping}
    assert route(routes, "B").topic_queue_mapping_by_broker is None
    routes.delete_topic("A", None)
    assert routes.mappings == {}


# Signs of life


def test_a_broker_expires_after_its_own_timeout_and_any_sign_of_life_counts() -> None:
    routes, _ = routes_with(MASTER, registration("A", "B", name="quick", address="q:1", timeout_ms=10_000))
    key, quick = ("c", "10.0.0.1:1"), ("c", "q:1")
    assert routes.expired(10_000) == []
    assert routes.expired(10_001) == [quick]
    routes.heartbeat("c", "q:1", 10_000)
    assert routes.expired(20_000) == []
    assert routes.data_version("c", "q:1", 20_000) == DataVersion(1, 0, 5)
    assert routes.expired(30_000) == []
    assert routes.expired(120_000) == [quick]
    assert set(routes.expired(120_001)) == {key, quick}
    routes.register(MASTER, 120_000)
    assert routes.expired(240_000) == [quick]


def test_signs_of_life_of_unknown_brokers_do_nothing() -> None:
    routes, _ = routes_with()
    routes.heartbeat("c", "nobody:1", 0)
    assert routes.data_version("c", "nobody:1", 0) is None
    assert routes.presences == {}


def test_the_link_of_the_last_registration_is_the_one_that_counts() -> None:
    first, second = object(), object()
    routes, _ = routes_with(registration("A", "B", link=first))
    routes.register(registration("A", "B", link=second), 0)
    assert routes.behind(first) == []
    assert routes.behind(second) == [("c", "10.0.0.1:1")]


# Leaving


def test_with_its_last_address_a_broker_goes_and_with_its_last_broker_a_topic() -> None:
    other = registration("A", "C", name="other", cluster="c2", address="10.0.0.8:1")
    routes, changes = routes_with(MASTER, REPLICA, other)
    routes.unregister("c", "b", "10.0.0.2:1", 1)
    assert [data.broker_name for data in route(routes, "A").broker_datas] == ["b", "other"]
    routes.unregister("c", "b", "10.0.0.1:1", 0)
    assert [data.broker_name for data in route(routes, "A").broker_datas] == ["other"]
    assert set(routes.topics) == {"A", "C"}
    assert routes.clusters == {"c2": {"other"}}
    assert changes.take() == {"A", "B"}
    routes.leave(("c2", "10.0.0.8:1"))
    assert (routes.topics, routes.brokers, routes.clusters, routes.presences) == ({}, {}, {}, {})


def test_unregistering_the_unknown_is_no_error() -> None:
    routes, changes = routes_with(MASTER)
    assert routes.unregister("c", "nobody", "10.0.0.1:9", 0) is None
    assert routes.unregister("c", "b", "10.0.0.7:1", 0) is None
    assert "A" in routes.topics
    assert not changes


def test_an_address_whose_id_was_taken_over_leaves_without_harm_to_its_successor() -> None:
    routes, _ = routes_with(MASTER, registration("A", "B", address="10.0.0.9:1", state_version=1))
    assert set(routes.presences) == {("c", "10.0.0.1:1"), ("c", "10.0.0.9:1")}
    assert routes.leave(("c", "10.0.0.1:1")) is None
    assert routes.brokers["b"].addresses == {0: "10.0.0.9:1"}
    assert set(routes.presences) == {("c", "10.0.0.9:1")}


@pytest.mark.parametrize(("acting_master", "expected"), [(True, 4), (False, 6)])
def test_when_the_master_goes_its_queues_become_read_only_if_a_replica_acts_for_it(
    acting_master: bool, expected: int
) -> None:
    master = registration("A", "B", acting_master=acting_master)
    replica = registration("A", "B", address="10.0.0.2:1", broker_id=1, acting_master=acting_master)
    routes, _ = routes_with(master, replica)
    routes.unregister("c", "b", "10.0.0.1:1", 0)
    assert permission(routes, "A") == expected
    routes.register(master, 0)
    assert permission(routes, "A") == 6


# Acting masters and zones


def acting_group() -> Routes:
    routes, _ = routes_with(
        registration("A", "rmq_sys_SYNC_BROKER_MEMBER_b", address="10.0.0.2:1", broker_id=1, acting_master=True),
        registration("A", "rmq_sys_SYNC_BROKER_MEMBER_b", address="10.0.0.3:1", broker_id=2, acting_master=True),
    )
    return routes


def test_an_acting_master_shows_as_id_0_where_that_is_switched_on() -> None:
    routes = acting_group()
    assert route(routes, "A").broker_datas[0].broker_addrs == {1: "10.0.0.2:1", 2: "10.0.0.3:1"}
    assert route(routes, "A", acting_masters=True).broker_datas[0].broker_addrs == {0: "10.0.0.2:1", 2: "10.0.0.3:1"}
    members = route(routes, "rmq_sys_SYNC_BROKER_MEMBER_b", acting_masters=True)
    assert members.broker_datas[0].broker_addrs == {1: "10.0.0.2:1", 2: "10.0.0.3:1"}
    assert routes.brokers["b"].addresses == {1: "10.0.0.2:1", 2: "10.0.0.3:1"}


def test_no_acting_master_where_the_queues_are_writable() -> None:
    routes = acting_group()
    routes.add_write_permission("b")
    assert 0 not in route(routes, "A", acting_masters=True).broker_datas[0].broker_addrs


def test_a_zone_sees_its_own_brokers_and_those_without_master() -> None:
    routes, _ = routes_with(
        registration("A", "B", name="here", address="h:1", zone="Z1", filter_servers=["f:1"]),
        registration("A", "B", name="there", address="t:1", zone="z2", filter_servers=["f:2"]),
        registration("A", "B", name="orphan", address="o:1", broker_id=1, zone="z2"),
    )
    seen = only_zone(route(routes, "A"), "z1")
    assert [data.broker_name for data in seen.broker_datas] == ["here", "orphan"]
    assert [data.broker_name for data in seen.queue_datas] == ["here", "orphan"]
    assert seen.filter_server_table == {"h:1": ["f:1"]}


# Notices


def test_a_smaller_id_that_comes_is_told_to_the_others() -> None:
    routes, _ = routes_with(REPLICA)
    notice = routes.register(MASTER, 0).notice
    assert notice == Notice(["10.0.0.2:1"], 0, "10.0.0.1:1", None, "10.0.0.1:2")
    assert routes.register(MASTER, 0).notice is None
    assert routes.register(REPLICA, 0).notice is None


def test_the_smallest_id_that_goes_is_told_to_all_that_stay_in_acting_master_groups() -> None:
    group = [
        registration("A", "B", address=f"10.0.0.{number}:1", broker_id=number, acting_master=True)
        for number in (0, 1, 2)
    ]
    routes, _ = routes_with(*group)
    assert routes.unregister("c", "b", "10.0.0.2:1", 2) is None
    routes.register(group[2], 0)
    notice = routes.unregister("c", "b", "10.0.0.0:1", 0)
    assert notice == Notice(["10.0.0.1:1", "10.0.0.2:1"], 1, "10.0.0.1:1", "10.0.0.0:1", None)
    plain, _ = routes_with(MASTER, REPLICA)
    assert plain.unregister("c", "b", "10.0.0.1:1", 0) is None


# Administration and lists


def test_write_permission_is_wiped_and_given_back_on_one_broker() -> None:
    other = registration("A", "C", name="other", address="10.0.0.8:1")
    routes, changes = routes_with(registration(topic("A", perm=7), "B"), other)
    assert routes.wipe_write_permission("b") == 2
    assert (permission(routes, "A"), permission(routes, "B"), permission(routes, "A", "other")) == (5, 4, 6)
    assert changes.take() == {"A", "B"}
    routes.register(registration(topic("A", perm=7), "B"), 0)
    assert permission(routes, "A") == 5
    assert routes.add_write_permission("b") == 2
    assert (permission(routes, "A"), permission(routes, "B")) == (6, 6)
    routes.register(registration(topic("A", perm=7), "B", version=2), 0)
    assert permission(routes, "A") == 7
    assert routes.wipe_write_permission("nobody") == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    routes, changes = routes_with(MASTER, registration("A", "C", name="other", cluster="c2", address="10.0.0.8:1"))
    routes.delete_topic("A", "c2")
    assert list(routes.topics["A"]) == ["b"]
    assert changes.take() == {"A"}
    routes.delete_topic("A", "no such cluster")
    routes.delete_topic("no such topic", None)
    routes.delete_topic("A", None)
    assert "A" not in routes.topics
    routes.register(MASTER, 0)
    assert "A" in routes.topics


def test_a_topic_can_be_registered_on_known_brokers_only() -> None:
    routes, changes = routes_with(MASTER)
    known, unknown = QueueData("b", 6, 2, 0, 2), QueueData("nobody", 6, 2, 0, 2)
    routes.register_topic("N", [known, unknown])
    routes.register_topic("empty", [])
    assert set(routes.topics) == {"A", "B"}
    routes.register_topic("N", [known])
    assert route(routes, "N").queue_datas == [known]
    assert changes.take() == {"N"}
    routes.unregister("c", "b", "10.0.0.1:1", 0)
    assert routes.topics == {}


def test_lists_by_cluster_and_by_unit_flags() -> None:
    flagged = [topic(f"flag{number}", topic_sys_flag=number) for number in range(4)]
    routes, _ = routes_with(
        registration(*flagged), registration("X", "Y", name="b2", cluster="c2", address="10.0.0.2:1")
    )
    assert routes.topics_of_cluster("c2") == {"X", "Y"}
    assert routes.topics_of_cluster("none") == set()
    assert routes.system_topics() == {"b", "b2", "c", "c2"}
    assert sorted(routes.topics_with_flags(1, 1)) == ["flag1", "flag3"]
    assert sorted(routes.topics_with_flags(2, 2)) == ["flag2", "flag3"]
    assert sorted(routes.topics_with_flags(3, 2)) == ["flag2"]


# Work of more than one step

MANY = [f"T{number}" for number in range(3 * TOPICS_A_STEP)]


class Later:
    """Takes notice of work that is left, and does it when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.changes = Changes()
        self.routes = Routes(self.changes.append, self.ask)

    def ask(self) -> None:
        self.asked += 1

    def work_off(self) -> int:
        steps = 0
        while self.routes.has_work:
            self.changes.clear()
            self.routes.work()
            assert len(self.changes) <= TOPICS_A_STEP
            steps += 1
        return steps


def test_a_broker_that_leaves_is_in_no_route_at_once_and_its_topics_go_step_by_step() -> None:
    later = Later()
    later.routes.register(registration(*MANY), 0)
    later.work_off()
    later.changes.clear()
    later.routes.unregister("c", "b", "10.0.0.1:1", 0)
    assert len(later.changes) == TOPICS_A_STEP
    assert later.asked > 0
    assert all(later.routes.pick_up(name, acting_masters=False) is None for name in MANY)
    assert later.work_off() >= 2
    assert (later.routes.topics, later.routes.brokers, later.routes.clusters) == ({}, {}, {})


def test_a_broker_that_comes_back_keeps_what_its_former_self_has_not_left_yet() -> None:
    later = Later()
    later.routes.register(registration(*MANY), 0)
    later.work_off()
    later.routes.unregister("c", "b", "10.0.0.1:1", 0)
    later.routes.register(registration(*MANY[-10:], "New"), 0)
    assert later.routes.pick_up(MANY[TOPICS_A_STEP], acting_masters=False) is None
    later.work_off()
    assert set(later.routes.topics) == {*MANY[-10:], "New"}
    assert route(later.routes, MANY[-1]).queue_datas == [QueueData("b", 6, 4, 0, 4)]


def test_permissions_of_many_topics_change_step_by_step_and_a_new_master_ends_it() -> None:
    later = Later()
    replica = registration(*MANY, broker_id=1, address="10.0.0.2:1", acting_master=True)
    later.routes.register(registration(*MANY, acting_master=True), 0)
    later.routes.register(replica, 0)
    later.work_off()
    assert later.routes.wipe_write_permission("b") == len(MANY)
    assert sum(permission(later.routes, name) == 4 for name in MANY) == TOPICS_A_STEP
    later.work_off()
    assert all(permission(later.routes, name) == 4 for name in MANY)
    later.routes.add_write_permission("b")
    later.work_off()
    later.routes.unregister("c", "b", "10.0.0.1:1", 0)
    later.routes.register(registration(*MANY, acting_master=True, version=9), 0)
    later.work_off()
    assert all(permission(later.routes, name) == 6 for name in MANY)


def test_a_long_list_of_topics_is_not_sorted_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.nameserver.routes.SORTED_MAX", 2)
    routes, _ = routes_with(registration("C", "A"))
    assert routes.served_topics() == ["A", "C"]
    routes.register(registration("C", "A", "B", version=2), 0)
    assert routes.served_topics() == ["C", "A", "B"]
