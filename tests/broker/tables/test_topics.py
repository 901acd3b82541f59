"""Topics: templates, system topics, versions, pages, and the file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.tables import saving
from cometmq.broker.tables.topics import Topics
from cometmq.clock import ManualClock
from cometmq.errors import RequestError, StoreError
from cometmq.wire.bodies import DataVersion, TopicConfig, TopicConfigTable
from cometmq.wire.fastjson.dialect import loads
from tests.support.golden import StoreName, golden_store

NOW_MS = 1_700_000_000_000


class Rig:
    """Topics, what they told, and settings that a test can change."""

    def __init__(self, **settings: Any) -> None:
        self.config = replace(BrokerConfig(), **settings)
        self.clock = ManualClock(NOW_MS)
        self.told: list[list[str]] = []
        self.topics = Topics(lambda: self.config, self.clock, self._told)

    def _told(self, topics: Sequence[TopicConfig]) -> None:
        self.told.append([topic.topic_name for topic in topics])

    def booted(self) -> Topics:
        self.topics.make_system_topics()
        return self.topics


def table(topics: Topics) -> dict[str, tuple[int, int, int]]:
    return {name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm) for name, topic in topics.table.items()}


def golden_topics(name: StoreName) -> TopicConfigTable:
    return TopicConfigTable.decode((golden_store(name) / "config" / "topics.json").read_bytes())


# The golden stores were made by a broker with these settings.
GOLDEN = {"broker_name": "broker-golden", "default_topic_queues": 4}


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_a_fresh_broker_has_exactly_the_system_topics_of_the_java_broker(name: StoreName) -> None:
    java = {
        topic: config
        for topic, config in golden_topics(name).topic_config_table.items()
        if not topic.startswith(("Golden", "%RETRY%"))
    }

    assert Rig(**GOLDEN).booted().table == java


def test_auto_creation_has_its_template_with_eight_queues_and_all_permissions() -> None:
    assert table(Rig().booted())["TBW102"] == (8, 8, 7)


def test_without_auto_creation_there_is_no_template_and_an_unknown_topic_is_not_made() -> None:
    topics = Rig(auto_create_topic=False).booted()

    assert "TBW102" not in topics.table
    assert topics.create_in_send("T", "TBW102", 4, 0) is None
    assert topics.get("T") is None


def test_a_template_saved_by_an_earlier_run_goes_when_auto_creation_is_off() -> None:
    rig = Rig(auto_create_topic=False)
    rig.topics.restore(Rig().booted().snapshot()())
    rig.topics.make_system_topics()

    assert rig.topics.get("TBW102") is None
    assert rig.topics.changes == 1


def test_auto_creation_ends_with_the_setting_even_while_its_template_is_there() -> None:
    rig = Rig()
    topics = rig.booted()
    rig.config = replace(rig.config, auto_create_topic=False)

    assert topics.create_in_send("T", "TBW102", 4, 0) is None
    assert topics.table["TBW102"].perm == 7


def test_switching_auto_creation_while_running_adds_and_removes_the_template() -> None:
    rig = Rig(auto_create_topic=False)
    topics = rig.booted()

    rig.config = replace(rig.config, auto_create_topic=True)
    topics.follow_settings()
    assert topics.get("TBW102") is not None
    assert rig.told == [["TBW102"]]

    rig.config = replace(rig.config, auto_create_topic=False)
    topics.follow_settings()
    assert topics.get("TBW102") is None
    assert topics.data_version.counter == 2

    topics.follow_settings()
    assert topics.data_version.counter == 2


def test_cluster_and_broker_topics_lose_read_and_write_when_switched_off() -> None:
    topics = Rig(cluster_topic_enabled=False, broker_topic_enabled=False, trace_topic_enabled=True).booted()

    assert table(topics)["DefaultCluster"] == (16, 16, 1)
    assert table(topics)["broker-a"] == (1, 1, 1)
    assert table(topics)["RMQ_SYS_TRACE_TOPIC"] == (1, 1, 6)


def test_names_of_the_broker_itself_are_system_topics() -> None:
    topics = Rig().booted()

    for name in ("broker-a", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "TBW102", "rmq_sys_anything"):
        assert topics.is_system(name)
    assert not topics.is_system("T")
    assert {"broker-a", "CHECKPOINT_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"} <= set(topics.system_names())


def test_the_first_message_makes_the_topic_from_its_template() -> None:
    rig = Rig()
    topics = rig.booted()
    rig.clock.advance(5)

    made = topics.create_in_send("T", "TBW102", 4, 1)

    assert made == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=6, topic_sys_flag=1)
    assert topics.get("T") is made
    assert rig.told == [["T"]]
    assert topics.data_version == DataVersion(counter=1, timestamp=NOW_MS + 5000)


@pytest.mark.parametrize(("wish", "queues"), [(4, 4), (8, 8), (100, 8), (0, 0), (-3, 0)])
def test_a_made_topic_has_as_many_queues_as_producer_and_template_both_allow(wish: int, queues: int) -> None:
    made = Rig().booted().create_in_send("T", "TBW102", wish, 0)

    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums) == (queues, queues)


def test_any_topic_with_the_inherit_bit_is_a_template() -> None:
    topics = Rig(auto_create_topic=False).booted()
    topics.update([TopicConfig(topic_name="Template", perm=5, write_queue_nums=3, topic_filter_type="MULTI_TAG")])

    made = topics.create_in_send("T", "Template", 16, 0)

    assert made == TopicConfig(
        topic_name="T", read_queue_nums=3, write_queue_nums=3, perm=4, topic_filter_type="MULTI_TAG"
    )
    assert topics.create_in_send("U", "SELF_TEST_TOPIC", 4, 0) is None
    assert topics.create_in_send("U", "NoSuchTopic", 4, 0) is None


def test_a_topic_that_exists_is_not_made_again() -> None:
    rig = Rig()
    topics = rig.booted()
    first = topics.create_in_send("T", "TBW102", 4, 0)

    assert topics.create_in_send("T", "TBW102", 8, 0) is first
    assert topics.data_version.counter == 1


def test_a_retry_topic_is_made_once_and_changes_only_its_order() -> None:
    rig = Rig()
    topics = rig.booted()

    made = topics.create_in_send_back("%RETRY%g", 2, 6, order=False, sys_flag=2)
    assert made == TopicConfig(topic_name="%RETRY%g", read_queue_nums=2, write_queue_nums=2, topic_sys_flag=2)

    assert topics.create_in_send_back("%RETRY%g", 1, 6) is made
    assert topics.create_in_send_back("%RETRY%g", 1, 6, order=False) is made
    assert topics.data_version.counter == 1

    ordered = topics.create_in_send_back("%RETRY%g", 1, 6, order=True)
    assert (ordered.order, ordered.read_queue_nums) == (True, 2)
    assert not made.order, "who holds the old configuration must not see it change"
    assert topics.create_in_send_back("%RETRY%g", 1, 6) is ordered
    assert topics.data_version.counter == 2


def test_a_retry_topic_never_has_a_negative_number_of_queues() -> None:
    assert Rig().booted().create_in_send_back("%RETRY%g", -1, 6).write_queue_nums == 0


def test_an_unchanged_configuration_is_no_change() -> None:
    topics = Rig().booted()
    wanted = TopicConfig(topic_name="T", perm=6)
    first = topics.changed(wanted, {"+message.type": "FIFO"})
    assert first is not None
    topics.update([first])

    assert topics.changed(wanted, {}) is None
    assert topics.changed(wanted, {"+message.type": "FIFO"}) is None
    changed = topics.changed(wanted, {"-message.type": ""})
    assert changed is not None
    assert changed.attributes == {}
    assert first.attributes == {"message.type": "FIFO"}


def test_what_decides_the_layout_of_files_cannot_change_later() -> None:
    topics = Rig().booted()
    created = topics.changed(TopicConfig(topic_name="T"), {"+queue.type": "BatchCQ"})
    assert created is not None
    topics.update([created])

    with pytest.raises(RequestError, match=r"queue\.type.*cannot be changed"):
        topics.changed(TopicConfig(topic_name="T"), {"+queue.type": "SimpleCQ"})


def test_several_topics_of_one_request_are_one_change() -> None:
    rig = Rig()
    topics = rig.booted()

    topics.update([TopicConfig(topic_name="A"), TopicConfig(topic_name="B")])

    assert rig.told == [["A", "B"]]
    assert topics.data_version.counter == 1


def test_deleting_raises_the_version_and_tells_no_name_server_at_once() -> None:
    rig = Rig()
    topics = rig.booted()
    topics.update([TopicConfig(topic_name="T")])

    assert topics.delete("T")
    assert topics.get("T") is None
    assert rig.told == [["T"], []]
    assert topics.data_version.counter == 2

    assert not topics.delete("T")
    assert topics.data_version.counter == 2


def test_name_servers_say_which_topics_are_ordered() -> None:
    rig = Rig()
    topics = rig.booted()
    topics.update([TopicConfig(topic_name="T"), TopicConfig(topic_name="U", order=True)])

    topics.set_ordered(["T", "U", "Unknown"])
    assert topics.is_ordered("T")
    assert not topics.is_ordered("Unknown")
    assert topics.data_version.counter == 2

    topics.set_ordered(["T", "U"])
    assert topics.data_version.counter == 2


def test_a_page_is_in_order_of_names_and_starts_over_when_the_version_is_another() -> None:
    topics = Rig().booted()
    names = sorted(topics.table)

    assert list(topics.page(topics.data_version, 2, 3)) == names[2:5]
    assert list(topics.page(None, 2, 3)) == names[:3]
    assert list(topics.page(DataVersion(counter=9), 2, 3)) == names[:3]
    assert list(topics.page(topics.data_version, -5, 2)) == names[:2]
    assert list(topics.page(topics.data_version, 0, 10**9)) == names
    assert list(topics.page(topics.data_version, 0, -1)) == []
    assert list(topics.page(topics.data_version, 10**6, 5)) == []

    topics.update([TopicConfig(topic_name="AAA")])
    assert list(topics.page(topics.data_version, 0, 1)) == ["AAA"]


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_golden_file_is_read_whole_and_keeps_its_version(name: StoreName) -> None:
    topics = Rig(**GOLDEN).topics
    assert saving.load(topics, golden_store(name) / "config" / "topics.json")
    changes = topics.changes
    topics.make_system_topics()

    assert topics.table == golden_topics(name).topic_config_table
    assert topics.data_version == golden_topics(name).data_version
    assert topics.changes == changes, "nothing was missing, so nothing is to be saved"


def test_the_file_has_javas_shape() -> None:
    topics = Rig(**GOLDEN).topics
    file = golden_store("clean") / "config" / "topics.json"
    saving.load(topics, file)

    written = topics.snapshot()()

    assert loads(written) == loads(file.read_bytes())
    assert sorted(written.splitlines()) == sorted(file.read_bytes().splitlines())


def test_a_snapshot_does_not_see_later_changes() -> None:
    topics = Rig().booted()
    encode = topics.snapshot()
    topics.update([TopicConfig(topic_name="Later")])

    assert b"Later" not in encode()


def test_a_damaged_file_without_backup_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_bytes(b'{"topicConfigTable":{"T":')

    with pytest.raises(StoreError, match="no good copy"):
        saving.load(Rig().topics, file)


def test_a_new_version_can_be_made_without_any_topic_changing() -> None:
    rig = Rig()
    topics = rig.booted()
    topics.touch()

    assert topics.data_version.counter == 1
    assert rig.told == [[]]
