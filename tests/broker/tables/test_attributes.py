"""Attributes: the change list and its rules."""

import pytest

from cometmq.broker.tables.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, change_attributes, parse_changes
from cometmq.errors import RequestError


def test_a_change_list_is_signed_keys_with_values() -> None:
    assert parse_changes("+message.type=FIFO,-queue.type") == {"+message.type": "FIFO", "-queue.type": ""}
    assert parse_changes("") == {}
    assert parse_changes(None) == {}


@pytest.mark.parametrize("text", ["message.type=FIFO", "+message.type", "+message.type=", "-queue.type=SimpleCQ", "x"])
def test_a_change_without_sign_or_value_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"neither \+key=value nor -key") as caught:
        parse_changes(text)
    assert caught.value.code == 1


def test_a_change_that_comes_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="twice"):
        parse_changes("+a=1,+a=2")
    with pytest.raises(RequestError, match="twice"):
        change_attributes({"message.type": "FIFO"}, {"+message.type": "FIFO", "-message.type": ""}, TOPIC_ATTRIBUTES)


def test_setting_and_deleting() -> None:
    current = {"message.type": "FIFO", "queue.type": "SimpleCQ"}

    assert change_attributes(current, {"+message.type": "DELAY"}, TOPIC_ATTRIBUTES)["message.type"] == "DELAY"
    assert change_attributes(current, {"-message.type": ""}, TOPIC_ATTRIBUTES) == {"queue.type": "SimpleCQ"}
    assert change_attributes(None, {"+queue.type": "BatchCQ"}, TOPIC_ATTRIBUTES) == {"queue.type": "BatchCQ"}
    assert current == {"message.type": "FIFO", "queue.type": "SimpleCQ"}


@pytest.mark.parametrize(
    ("current", "change", "value", "said"),
    [
        (None, "-message.type", "", "being created"),
        ({}, "-message.type", "", "is not set"),
        ({"queue.type": "SimpleCQ"}, "-queue.type", "", "cannot be deleted"),
        ({}, "+cleanup.policy", "DELETE", "cannot be changed"),
        ({}, "+message.type", "SMALL", "allowed are DELAY, FIFO, LITE, MIXED, NORMAL"),
        ({}, "+colour", "red", "is not known, known are: cleanup.policy, cometmq.lake, lite.topic.exp"),
        ({}, "+reserve.time", "-2", "allowed are -1 to 9223372036854775807"),
        ({}, "+reserve.time", "soon", "allowed are -1 to"),
        ({}, "+reserve.time", "9223372036854775808", "allowed are -1 to"),
        ({}, "+reserve.time", "9" * 5000, "allowed are -1 to"),
        ({}, "message.type", "FIFO", r"neither \+ nor -"),
    ],
)
def test_what_cannot_be_changed_says_why(current: dict[str, str] | None, change: str, value: str, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        change_attributes(current, {change: value}, TOPIC_ATTRIBUTES)
    assert caught.value.code == 1


def test_numbers_and_texts_are_kept_as_they_were_written() -> None:
    assert change_attributes({}, {"+reserve.time": "-1"}, TOPIC_ATTRIBUTES) == {"reserve.time": "-1"}
    assert change_attributes({}, {"+lite.bind.topic": "Parent"}, GROUP_ATTRIBUTES) == {"lite.bind.topic": "Parent"}
    with pytest.raises(RequestError, match="any text that is not blank"):
        change_attributes({}, {"+lite.bind.topic": " "}, GROUP_ATTRIBUTES)
