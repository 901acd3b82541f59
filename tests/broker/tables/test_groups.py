"""Consumer groups: creation on use, forbidden topics, slow groups, and the file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.tables import saving
from cometmq.broker.tables.groups import Groups
from cometmq.clock import ManualClock
from cometmq.errors import RequestError
from cometmq.wire.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable
from cometmq.wire.fastjson.dialect import loads
from tests.support.golden import StoreName, golden_store

NOW_MS = 1_700_000_000_000


class Rig:
    def __init__(self, **settings: Any) -> None:
        self.config = replace(BrokerConfig(), **settings)
        self.clock = ManualClock(NOW_MS)
        self.told = 0
        self.groups = Groups(lambda: self.config, self.clock, self._told)

    def _told(self) -> None:
        self.told += 1


def golden_file(name: StoreName) -> Path:
    return golden_store(name) / "config" / "subscriptionGroup.json"


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_a_fresh_broker_has_exactly_the_groups_of_the_java_broker(name: StoreName) -> None:
    java = SubscriptionGroupTable.decode(golden_file(name).read_bytes()).subscription_group_table
    groups = Rig().groups
    groups.make_built_in_groups()

    assert groups.table == {group: config for group, config in java.items() if not group.startswith("golden")}
    assert groups.data_version.counter == 0


def test_first_use_makes_a_group_with_javas_defaults() -> None:
    rig = Rig()
    rig.clock.advance(2)

    found = rig.groups.find("g")

    assert found == SubscriptionGroupConfig(group_name="g")
    assert (found.retry_max_times, found.retry_queue_nums, found.consume_enable) == (16, 1, True)
    assert rig.groups.find("g") is found
    assert rig.groups.data_version == DataVersion(counter=1, timestamp=NOW_MS + 2000)
    assert rig.told == 1


def test_without_auto_creation_only_system_groups_are_made() -> None:
    rig = Rig(auto_create_group=False)

    assert rig.groups.find("g") is None
    assert rig.groups.find("CID_RMQ_SYS_x") is not None
    rig.config = replace(rig.config, create_system_groups=False)
    assert rig.groups.find("CID_RMQ_SYS_y") is None


@pytest.mark.parametrize("name", ["", " ", "a b", "../g", "g" * 121, "g@h"])
def test_a_bad_name_makes_no_group(name: str) -> None:
    rig = Rig()

    assert rig.groups.find(name) is None
    assert rig.groups.table == {}


def test_asking_makes_nothing() -> None:
    assert Rig().groups.get("g") is None


def test_updating_replaces_all_or_none() -> None:
    rig = Rig()
    groups = rig.groups
    groups.update([SubscriptionGroupConfig(group_name="a", retry_max_times=3), SubscriptionGroupConfig(group_name="b")])
    assert groups.data_version.counter == 1
    assert rig.told == 1

    with pytest.raises(RequestError, match="is not known"):
        groups.update([
            SubscriptionGroupConfig(group_name="a", retry_max_times=9),
            SubscriptionGroupConfig(group_name="b", attributes={"+colour": "red"}),
        ])  # fmt: skip
    assert groups.table["a"].retry_max_times == 3


def test_a_group_is_barred_from_one_topic_and_let_again() -> None:
    rig = Rig()
    groups = rig.groups

    groups.allow_reading("g", "T", False)
    groups.allow_reading("g", "U", False)
    assert not groups.may_read("g", "T")
    assert groups.may_read("g", "V")
    assert groups.may_read("h", "T")
    assert groups.forbidden == {"g": {"T": 4, "U": 4}}

    groups.allow_reading("g", "T", True)
    assert groups.may_read("g", "T")
    assert not groups.may_read("g", "U")
    groups.allow_reading("g", "U", True)
    assert groups.forbidden == {}
    assert rig.told == 4

    groups.allow_reading("g", "U", True)
    assert rig.told == 4


def test_deleting_a_group_also_lifts_its_bars() -> None:
    rig = Rig()
    rig.groups.find("g")
    rig.groups.allow_reading("g", "T", False)

    assert rig.groups.delete("g")
    assert rig.groups.get("g") is None
    assert rig.groups.may_read("g", "T")
    assert not rig.groups.delete("g")
    assert rig.groups.data_version.counter == 3


def test_a_group_too_far_behind_is_disabled_and_stays_so_after_a_restart() -> None:
    rig = Rig()
    groups = rig.groups
    slow, fast = groups.find("slow"), groups.find("fast")
    assert slow is not None

    assert groups.disable_slow({"slow": 2 << 20, "fast": 1 << 20, "unknown": 9 << 20}, 1 << 20) == ["slow"]

    assert not groups.table["slow"].consume_enable
    assert slow.consume_enable, "who holds the old configuration must not see it change"
    assert groups.table["fast"] is fast
    version = groups.data_version

    assert groups.disable_slow({"slow": 2 << 20}, 1 << 20) == []
    assert groups.data_version == version

    again = Rig().groups
    again.restore(groups.snapshot()())
    assert not again.table["slow"].consume_enable


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_golden_file_is_read_and_written_in_javas_shape(name: StoreName) -> None:
    groups = Rig().groups
    file = golden_file(name)
    assert saving.load(groups, file)
    groups.make_built_in_groups()

    written = groups.snapshot()()

    assert loads(written) == loads(file.read_bytes())
    assert sorted(written.splitlines()) == sorted(file.read_bytes().splitlines())
    assert groups.changes == 0


def test_forbidden_topics_survive_a_restart() -> None:
    rig = Rig()
    rig.groups.allow_reading("g", "T", False)
    again = Rig().groups
    again.restore(rig.groups.snapshot()())

    assert not again.may_read("g", "T")
    assert again.data_version == rig.groups.data_version


def test_a_page_is_in_order_of_names_and_starts_over_when_the_version_is_another() -> None:
    groups = Rig().groups
    groups.make_built_in_groups()
    names = sorted(groups.table)

    assert list(groups.page(groups.data_version, 3, 2)) == names[3:5]
    assert list(groups.page(None, 3, 2)) == names[:2]
    groups.find("AAA")
    assert list(groups.page(groups.data_version, 0, 1)) == ["AAA"]
