"""Names from the wire: what is allowed, and that nothing else becomes a path."""

from pathlib import PurePosixPath

import pytest

from cometmq import names
from cometmq.errors import StoreError
from cometmq.names import (
    dlq_topic,
    group_fault,
    is_system_topic,
    path_part,
    retry_topic,
    segment_name,
    segment_offset,
    topic_fault,
)

GOOD = ["T", "a-b_c|d%e", "%RETRY%group", "0", "x" * 127]
HOSTILE = [
    "", " ", ".", "..", "../etc", "a/b", "/etc/passwd", "a\\b", "C:", "a\0b", "a\nb", "tést", "a b", "~", "a.b",
    "T\n", "\uff0e\uff0e", "٣",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_is_its_own_directory(name: str) -> None:
    assert topic_fault(name) is None
    assert PurePosixPath("root", path_part(name)).parts == ("root", name)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_other_text_becomes_a_path_or_a_topic_or_a_group(name: str) -> None:
    with pytest.raises(StoreError):
        path_part(name)
    assert topic_fault(name) is not None
    assert group_fault(name) is not None


def test_lengths_have_limits_that_the_message_names() -> None:
    assert topic_fault("t" * 127) is None
    assert "128 characters, at most 127" in str(topic_fault("t" * 128))
    assert topic_fault("%RETRY%" + "g" * 248) is None
    assert topic_fault("%DLQ%" + "g" * 251) is not None
    assert group_fault("g" * 120) is None
    assert group_fault("g" * 121) is not None
    with pytest.raises(StoreError):
        path_part("p" * 256)


def test_the_longest_group_has_a_retry_and_a_dead_letter_topic() -> None:
    group = "g" * 120
    assert topic_fault(retry_topic(group)) is None
    assert topic_fault(dlq_topic(group)) is None


def test_system_topics_are_known_by_name_or_prefix() -> None:
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_REVIVE_LOG_c1")
    assert not is_system_topic("RMQ_SYS_of_a_user")


def test_segment_names_hold_their_offset() -> None:
    assert segment_name(1 << 30) == "00000000001073741824"
    assert segment_offset("00000000001073741824") == 1 << 30
    for other in ("1073741824", "00000000001073741824.bak", "0000000000107374182x", "٠" * 20):
        assert segment_offset(other) is None


@pytest.mark.parametrize(
    "name", ["", " ", "../x", "a/b", "a\\b", "a..b", ".hidden", "a\nb", "a\x00", "a\u2028b", "n" * 256, "\x1b[31m"]
)
def test_a_name_that_is_no_servers(name: str) -> None:
    assert names.server_name_fault("broker", name)


@pytest.mark.parametrize("name", ["broker-a", "host.example.com", "DefaultCluster", "键", "a b", "n" * 255])
def test_a_name_that_a_server_may_have(name: str) -> None:
    assert names.server_name_fault("broker", name) is None


def test_only_brokers_write_to_their_own_topics() -> None:
    for topic in ("rmq_sys_REVIVE_LOG_c", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT"):
        assert names.takes_no_sends(topic)
    for topic in ("rmq_sys_TRACE_DATA_eu", "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest", "%RETRY%g", "TopicA"):
        assert not names.takes_no_sends(topic)
