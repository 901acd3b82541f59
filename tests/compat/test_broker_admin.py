"""RocketMQ's admin tool at our broker and at RocketMQ's: what it reads about the same scene, it prints alike.

Commands that change something: test_broker_admin_changes.py. Figures and settings: test_broker_figures.py.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.compat.harness.scene import GROUP, PRODUCER_GROUP, TOPIC, Scene, Scenes

pytestmark = pytest.mark.interop


READS: dict[str, tuple[object, ...]] = {
    "topicRoute": ("topicRoute", "-t", TOPIC),
    "topicClusterList": ("topicClusterList", "-t", TOPIC),
    "topicStatus": ("topicStatus", "-t", TOPIC),
    "consumerProgress of a group": ("consumerProgress", "-g", GROUP),
    "consumerProgress of a topic": ("consumerProgress", "-g", GROUP, "-t", TOPIC),
    "consumerConnection": ("consumerConnection", "-g", GROUP),
    "consumerStatus": ("consumerStatus", "-g", GROUP),
    "producerConnection": ("producerConnection", "-g", PRODUCER_GROUP, "-t", TOPIC),
    "getConsumerConfig": ("getConsumerConfig", "-g", GROUP),
    "queryMsgByKey": ("queryMsgByKey", "-t", TOPIC, "-k", "key3"),
    "queryMsgByOffset": ("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", 1, "-o", 1),
    "printMsg": ("printMsg", "-t", TOPIC, "-d", "true"),
    "printMsg of a tag": ("printMsg", "-t", TOPIC, "-d", "true", "-s", "tag1"),
    "printMsgByQueue": ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", 0, "-p", "true", "-d", "true"),
    "printMsgByQueue by tag": ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", 0, "-f", "true"),
    "consumeMessage": ("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", 0, "-o", 0, "-c", 2),
    "queryCq": ("queryCq", "-t", TOPIC, "-q", 0, "-i", 0, "-c", 5),
    "brokerConsumeStats": ("brokerConsumeStats", "-b", "BROKER"),
    "topicList": ("topicList",),
    "topicList with consumers": ("topicList", "-c"),
    "allocateMQ": ("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2"),
}
UNORDERED = {"topicList", "topicList with consumers"}
TPS = re.compile(r"(TPS: )[0-9.]+")


# A consumer commits what it has read of its retry topic, nothing, sooner or later.
BY_CHANCE = {"consumerProgress of a group", "consumerProgress of a topic", "brokerConsumeStats"}


@pytest.mark.parametrize("name", READS)
def test_a_command_that_reads_prints_the_same(scenes: Scenes, name: str) -> None:
    scenes.alike(
        *READS[name],
        key=lambda line: TPS.sub(r"\1RATE", line),
        leave_out="%RETRY%" if name in BY_CHANCE else "",
        ordered=name not in UNORDERED,
    )


@pytest.mark.parametrize(("command", "field"), [("queryMsgById", "offsetId"), ("queryMsgByUniqueKey", "id")])
def test_a_message_is_shown_alike_by_its_id(scenes: Scenes, command: str, field: str) -> None:
    theirs, ours = (scene.print(command, "-t", TOPIC, "-i", scene.sent[3][field]) for scene in scenes.both)
    assert ours == theirs
    for words in ("Keys:                [key3]", "Queue Offset:        1", "number=3"):
        assert any(words in line for line in ours)
    assert any("MessageTrack [consumerGroup=G, trackType=CONSUMED" in line for line in ours)


def test_the_entries_of_a_queue_are_shown_with_the_subscription_of_a_group(scenes: Scenes) -> None:
    """RocketMQ tells of an entry whether the group wants it only if the entry has an extension; we always do."""
    command = ("queryCq", "-t", TOPIC, "-q", 0, "-i", 0, "-c", 5, "-g", GROUP)
    lines = scenes.alike(*command, key=lambda line: line.replace("eval=true", "eval=false"))
    assert sum("ConsumeQueueData" in line for line in lines) == 3


def test_what_is_not_there_fails_alike(scenes: Scenes) -> None:
    """With the same code; the words are each broker's own."""
    for command, code in (
        (("topicStatus", "-t", "Nothing"), 17),
        (("consumerProgress", "-g", "Nobody"), 17),
        (("consumerConnection", "-g", "Nobody"), 17),
        (("queryMsgByKey", "-t", TOPIC, "-k", "no such key"), 208),
        (("updateTopic", "-b", "BROKER", "-t", "not a name!"), 29),
    ):
        for scene in scenes.both:
            words = [scene.broker.address if word == "BROKER" else word for word in command]
            assert f"CODE: {code}  DESC:" in scene.run(*words, check=False).stderr, (scene.make.name, command)


def test_all_topics_and_groups_have_the_same_figures(scenes: Scenes) -> None:
    """Rates and totals are samples of the last seconds and of the last day; what was sent and read is the same."""

    def steady(line: str) -> tuple[str, ...]:
        """Topic, group, accumulation."""
        words = line.split()
        return tuple(words[:3]) if words[1] == GROUP else tuple(words[:2])

    lines = scenes.alike("statsAll", key=steady, ordered=False)
    assert str((TOPIC, GROUP, "0")) in lines


def exported(scene: Scene, name: str, *command: object) -> Any:
    folder = scene.directory / "exports"
    folder.mkdir(exist_ok=True)
    scene.run(*command, "-c", "compat", "-f", folder)
    text = scene.plain((folder / name).read_text())
    return json.loads(re.sub(r'"exportTime":\w+', '"exportTime":0', text))


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("metadata.json", ("exportMetadata",)),
        ("topic.json", ("exportMetadata", "-t")),
        ("subscriptionGroup.json", ("exportMetadata", "-g")),
        ("configs.json", ("exportConfigs",)),
    ],
)
def test_exports_have_the_same_content(scenes: Scenes, name: str, command: tuple[str, ...]) -> None:
    theirs, ours = (exported(scene, name, *command) for scene in scenes.both)
    assert len(str(theirs)) > 100
    assert ours == theirs


def test_the_tool_talks_to_a_broker_whose_consumers_it_asks(scenes: Scenes) -> None:
    """consumerStatus also writes down what the consumer said; the broker passed the question on."""
    for scene in scenes.both:
        before = set(scene.directory.rglob("*@*"))
        scene.run("consumerStatus", "-g", GROUP)
        (told,) = set(scene.directory.rglob("*@*")) - before
        text = told.read_text()
        assert re.search(rf"^{TOPIC} +broker-a +0 +", text, re.MULTILINE), text
        assert "#Consumer Properties#" in text
