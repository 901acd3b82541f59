"""Files of our broker's tables, read by the classes with which RocketMQ's broker reads its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cometmq import state_file
from cometmq.broker.tables.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, Attribute
from cometmq.broker.tables.saving import Saved
from cometmq.wire.bodies import GroupRetryPolicy, GroupSubscription, SubscriptionGroupConfig, TopicConfig
from tests.broker.assembly import Assembly
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

READ_TOPICS = """
    import java.nio.file.*;
    import org.apache.rocketmq.common.TopicConfig;
    import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
    String text = new String(Files.readAllBytes(Paths.get(args[0])), StandardCharsets.UTF_8);
    TopicConfigSerializeWrapper read = TopicConfigSerializeWrapper.fromJson(text, TopicConfigSerializeWrapper.class);
    emit("version", read.getDataVersion().getCounter().get() + " " + read.getDataVersion().getTimestamp());
    for (TopicConfig t : read.getTopicConfigTable().values()) {
        emit("name", t.getTopicName(), "read", t.getReadQueueNums(), "write", t.getWriteQueueNums(),
            "perm", t.getPerm(), "flag", t.getTopicSysFlag(), "order", t.isOrder(),
            "filter", t.getTopicFilterType().name(), "attributes", new TreeMap<>(t.getAttributes()).toString());
    }
"""

READ_GROUPS = """
    import java.nio.file.*;
    import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
    import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
    import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
    String text = new String(Files.readAllBytes(Paths.get(args[0])), StandardCharsets.UTF_8);
    SubscriptionGroupManager read = RemotingSerializable.fromJson(text, SubscriptionGroupManager.class);
    emit("version", read.getDataVersion().getCounter().get() + " " + read.getDataVersion().getTimestamp());
    emit("forbidden", read.getForbiddenTable().toString());
    for (SubscriptionGroupConfig g : read.getSubscriptionGroupTable().values()) {
        emit("name", g.getGroupName(), "enabled", g.isConsumeEnable(), "max", g.getRetryMaxTimes(),
            "queues", g.getRetryQueueNums(), "policy", g.getGroupRetryPolicy().getType().name(),
            "topics", g.getSubscriptionDataSet() == null ? 0 : g.getSubscriptionDataSet().size());
    }
"""

READ_OFFSETS = """
    import java.nio.file.*;
    import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
    import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
    String text = new String(Files.readAllBytes(Paths.get(args[0])), StandardCharsets.UTF_8);
    ConsumerOffsetManager read = RemotingSerializable.fromJson(text, ConsumerOffsetManager.class);
    emit("version", read.getDataVersion().getCounter().get() + " " + read.getDataVersion().getTimestamp());
    for (String key : new TreeSet<>(read.getOffsetTable().keySet())) {
        emit("key", key, "offsets", new TreeMap<>(read.getOffsetTable().get(key)).toString());
    }
"""


def read_by_java(java: JavaShell, snippet: str, state: Saved, path: Path) -> list[dict[str, Any]]:
    state_file.save(path, state.snapshot()())
    rows: list[dict[str, Any]] = java.run(snippet, path).rows
    return rows


def version_of(broker_table: Any) -> dict[str, str]:
    return {"version": f"{broker_table.data_version.counter} {broker_table.data_version.timestamp}"}


def test_java_reads_our_topics(java55: JavaShell, tmp_path: Path) -> None:
    topics = Assembly().topics
    topics.create_in_send("Made", "TBW102", 4, 1)
    topics.update([
        TopicConfig(
            topic_name="T", read_queue_nums=3, write_queue_nums=2, perm=4, order=True, topic_filter_type="MULTI_TAG",
            attributes={"message.type": "FIFO", "queue.type": "BatchCQ"},
        )
    ])  # fmt: skip

    version, *read = read_by_java(java55, READ_TOPICS, topics, tmp_path / "topics.json")

    assert version == version_of(topics)
    assert {row["name"]: row for row in read} == {
        name: {
            "name": name, "read": topic.read_queue_nums, "write": topic.write_queue_nums, "perm": topic.perm,
            "flag": topic.topic_sys_flag, "order": topic.order, "filter": topic.topic_filter_type,
            "attributes": "{" + ", ".join(f"{key}={topic.attributes[key]}" for key in sorted(topic.attributes)) + "}",
        }
        for name, topic in topics.table.items()
    }  # fmt: skip


def test_java_reads_our_groups(java55: JavaShell, tmp_path: Path) -> None:
    groups = Assembly().groups
    groups.update([
        SubscriptionGroupConfig(
            group_name="g", consume_enable=False, retry_max_times=3, retry_queue_nums=2,
            group_retry_policy=GroupRetryPolicy(type="EXPONENTIAL"),
            subscription_data_set=[GroupSubscription("T", "TAG", "*", 1)],
        )
    ])  # fmt: skip
    groups.allow_reading("g", "T", False)

    version, forbidden, *read = read_by_java(java55, READ_GROUPS, groups, tmp_path / "subscriptionGroup.json")

    assert version == version_of(groups)
    assert forbidden == {"forbidden": "{g={T=4}}"}
    assert {row["name"]: row for row in read} == {
        name: {
            "name": name, "enabled": group.consume_enable, "max": group.retry_max_times,
            "queues": group.retry_queue_nums, "policy": group.group_retry_policy.type,
            "topics": len(group.subscription_data_set or []),
        }
        for name, group in groups.table.items()
    }  # fmt: skip


def test_java_reads_our_offsets(java55: JavaShell, tmp_path: Path) -> None:
    offsets = Assembly().offsets
    for number in range(600):
        offsets.commit("g", "T", number % 4, number, "client")
    offsets.commit("%RETRY-like|g-2", "%RETRY%h", 0, 2**62, "client")
    offsets.pull_commit("g", "T", 0, 7)

    version, *read = read_by_java(java55, READ_OFFSETS, offsets, tmp_path / "consumerOffset.json")

    assert version == version_of(offsets)
    assert offsets.data_version.counter == 1
    assert read == [
        {"key": "%RETRY%h@%RETRY-like|g-2", "offsets": f"{{0={2**62}}}"},
        {"key": "T@g", "offsets": "{0=596, 1=597, 2=598, 3=599}"},
    ]


def test_java_reads_the_wire_form_of_our_offsets(java55: JavaShell, tmp_path: Path) -> None:
    """What a RocketMQ replica of our broker copies."""
    offsets = Assembly().offsets
    offsets.commit("g", "T", 11, 5, "client")
    path = tmp_path / "offsets"
    path.write_bytes(offsets.encode(offsets.data_version))

    assert java55.run(READ_OFFSETS, path).rows[1:] == [{"key": "T@g", "offsets": "{11=5}"}]


ATTRIBUTES = """
    import org.apache.rocketmq.common.*;
    import org.apache.rocketmq.common.attribute.*;
    Map<String, Attribute> all = args[0].equals("topic") ? TopicAttributes.ALL : SubscriptionGroupAttributes.ALL;
    for (Attribute attribute : all.values()) {
        for (int i = 1; i < args.length; i++) {
            boolean allowed = true;
            try {
                attribute.verify(args[i]);
            } catch (RuntimeException e) {
                allowed = false;
            }
            emit("name", attribute.getName(), "changeable", attribute.isChangeable(), "value", args[i], "ok", allowed);
        }
    }
"""


OWN_ATTRIBUTES = {"cometmq.lake"}


@pytest.mark.parametrize(("kind", "ours"), [("topic", TOPIC_ATTRIBUTES), ("group", GROUP_ATTRIBUTES)])
def test_attributes_and_their_values_are_those_of_java(
    java55: JavaShell, kind: str, ours: dict[str, Attribute]
) -> None:
    values = ["-2", "-1", "0", "9", "10", "100", "101", "43200", "43201", str(2**63 - 1), str(2**63), "true", "other"]
    ours = {name: attribute for name, attribute in ours.items() if name not in OWN_ATTRIBUTES}
    values += sorted({value for one in ours.values() for value in (*one.values, *one.not_built)})

    rows = java55.run(ATTRIBUTES, kind, *values).rows

    assert {row["name"] for row in rows} == set(ours)
    for row in rows:
        assert row["changeable"] == ours[row["name"]].changeable, row
        known = ours[row["name"]]
        assert row["ok"] == (known.allows(row["value"]) or row["value"] in known.not_built), row
