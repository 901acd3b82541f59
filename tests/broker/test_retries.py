"""Where a failed message goes: another try or the dead letters."""

import pytest

from cometmq.broker import retries
from cometmq.broker.retries import Destination
from cometmq.wire.bodies import SubscriptionGroupConfig

DEAD = Destination("%DLQ%g", 1, 0, True)


def test_the_limit_is_the_groups_unless_a_new_enough_client_has_its_own() -> None:
    group = SubscriptionGroupConfig(group_name="g", retry_max_times=5)

    assert retries.limit_of(group, 513, None) == 5
    assert retries.limit_of(group, 121, 2) == 2
    assert retries.limit_of(group, 120, 2) == 5
    assert retries.limit_of(group, 513, -1) == -1


@pytest.mark.parametrize(("times", "level"), [(0, 3), (1, 4), (2, 5), (15, 18)])
def test_a_message_sent_back_waits_longer_each_time(times: int, level: int) -> None:
    assert retries.sent_back("g", 1, times, 16, 0) == Destination("%RETRY%g", 1, level, False)


def test_a_wished_level_is_taken_as_it_is() -> None:
    assert retries.sent_back("g", 3, 5, 16, 2) == Destination("%RETRY%g", 3, 2, False)


def test_sent_back_at_the_limit_is_a_dead_letter() -> None:
    assert not retries.sent_back("g", 1, 1, 2, 0).is_dead_letter
    assert retries.sent_back("g", 1, 2, 2, 0) == DEAD


def test_a_negative_level_is_a_dead_letter_at_once() -> None:
    assert retries.sent_back("g", 1, 0, 16, -1) == DEAD


def test_sent_to_the_retry_topic_only_beyond_the_limit_is_a_dead_letter() -> None:
    assert retries.sent_to_retry_topic("g", 2, 2, False) is None
    assert retries.sent_to_retry_topic("g", 3, 2, False) == DEAD


def test_what_an_ordered_consumer_sends_is_a_dead_letter() -> None:
    assert retries.sent_to_retry_topic("g", 0, 16, True) == DEAD


@pytest.mark.parametrize(
    ("topic", "group"), [("%RETRY%g", "g"), ("%RETRY%g+T", "g"), ("%RETRY%ns%g", "ns%g"), ("%RETRY%a+b+c", "a+b+c")]
)
def test_the_group_behind_a_retry_topic(topic: str, group: str) -> None:
    assert retries.group_of(topic) == group


def test_the_copy_remembers_where_it_came_from() -> None:
    first = retries.sent_back_properties({"KEYS": "k"}, "T", "id-1", 3)
    assert first == {"KEYS": "k", "RETRY_TOPIC": "T", "WAIT": "false", "DELAY": "3", "ORIGIN_MESSAGE_ID": "id-1"}

    second = retries.sent_back_properties(first, "%RETRY%g", "id-2", 4)
    assert (second["RETRY_TOPIC"], second["ORIGIN_MESSAGE_ID"], second["DELAY"]) == ("T", "id-1", "4")
