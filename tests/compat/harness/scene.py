"""The same small scene at a Java and at one of our brokers, and what the admin tool prints about each.

    topic T, 2 queues, 6 messages with tags, keys and a property; producer PG and consumer group G are online, G has
    handled and committed all of them

What differs by nature (addresses, clocks, ids, positions in the log) is replaced by a word before two prints are
compared.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.compat.harness import remoting
from tests.compat.harness.admin import Completed, MqAdmin
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import consume
from tests.compat.harness.servers import Make
from tests.compat.harness.shell import JavaShell

TOPIC, GROUP, PRODUCER_GROUP = "T", "G", "PG"
MESSAGES = 6

SEND = """
    DefaultMQProducer p = use(new DefaultMQProducer(args[2]));
    p.setNamesrvAddr(args[0]);
    p.start();
    for (int i = 0; i < Integer.parseInt(args[3]); i++) {
        Message m = new Message(args[1], "tag" + i % 2, "key" + i, ("body" + i).getBytes());
        m.putUserProperty("number", Integer.toString(i));
        int queue = i % 2;
        SendResult r = p.send(m, (queues, message, arg) -> queues.get(queue), null);
        emit("id", r.getMsgId(), "offsetId", r.getOffsetMsgId());
    }
    awaitStop();
"""

REPLACED = (
    (r"[0-9.]+@\d+#\d+", "CLIENT"),
    (r"127\.0\.0\.1:\d+", "PEER"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "DATE"),
    (r"\b[0-9A-F]{56}\b|\b[0-9A-F]{32}\b", "ID"),
    (r"\b1[789]\d{11}\b", "TIME"),
    (r"(physicOffset|commitLogOffset)=\d+", r"\1=POSITION"),
    (r"(?<=@)\d+$", "POSITION"),
)


class Scene:
    """One make's side of it. `print` runs a command and gives its lines, comparable."""

    def __init__(self, make: Make, directory: Path, java: JavaShell, stack: ExitStack) -> None:
        self.make = make
        self.directory = directory
        self.namesrv = stack.enter_context(make.name_server(directory).start())
        settings = {"messageDelayLevel": " ".join(["1s"] * 18)}
        self.broker = stack.enter_context(make.broker(directory, self.namesrv.address, settings).start())
        self._admin = MqAdmin(directory)  # some commands remember the name server of their first use
        stack.callback(self._admin.close)
        remoting.create_topic(self.broker.address, TOPIC, queues=2)
        self.producer = java.begin(SEND, self.namesrv.address, TOPIC, PRODUCER_GROUP, MESSAGES)
        self.sent: list[dict[str, Any]] = self.producer.take(MESSAGES)
        first = consume(java, self.namesrv.address, TOPIC, GROUP)
        first.take(MESSAGES)
        first.stop()  # commits at once; a running consumer does so every 5 s, the first time after 10 s
        self.broker.await_all_committed(GROUP, TOPIC, queues=2)
        self.consumer = consume(java, self.namesrv.address, TOPIC, GROUP)
        wait_until(self._is_consuming, f"the consumer of the {make.name} scene")

    def _is_consuming(self) -> bool:
        """The consumer is online and says that it reads both queues."""
        answer = remoting.call(self.broker.address, 203, {"consumerGroup": GROUP})
        if answer.code != 0:
            return False
        (member,) = answer.json()["connectionSet"]
        asked = {"consumerGroup": GROUP, "clientId": member["clientId"], "jstackEnable": "false"}
        told = remoting.call(self.broker.address, 307, asked).body.decode()
        return all(f'"queueId":{queue},"topic":"{TOPIC}"' in told for queue in (0, 1))

    def offsets(self, group: str, topic: str, queues: int = 2) -> list[int]:
        ext: dict[str, object] = {"consumerGroup": group, "topic": topic}
        answers = [remoting.call(self.broker.address, 14, {**ext, "queueId": number}) for number in range(queues)]
        return [int(answer.ext["offset"]) if answer.code == 0 else -1 for answer in answers]

    def run(self, *command: object, check: bool = True) -> Completed:
        return self._admin(*command, namesrv=self.namesrv.address, check=check)

    def print(self, *command: object) -> list[str]:
        """Each BROKER among the words is the address of the broker."""
        words = [self.broker.address if word == "BROKER" else word for word in command]
        return [self.plain(line) for line in self.run(*words).lines]

    def plain(self, text: str) -> str:
        for own, word in ((self.namesrv.address, "NAMESRV"), (self.broker.address, "BROKER")):
            text = text.replace(own, word)
        text = text.replace(str(self.directory), "DIRECTORY")
        for pattern, word in REPLACED:
            text = re.sub(pattern, word, text)
        return text


class Scenes:
    """Both sides. `alike` lets the admin tool say the same to both, and compares what it prints."""

    def __init__(self, java: Scene, comet: Scene) -> None:
        self.java = java
        self.comet = comet
        self.both = (java, comet)

    def alike(
        self, *command: object, key: Callable[[str], object] = str, leave_out: str = "", ordered: bool = True
    ) -> list[str]:
        """`key` takes from a line what is to be compared; lines that begin with `leave_out` are not compared."""
        theirs, ours = (
            [str(key(line)) for line in scene.print(*command) if not leave_out or not line.startswith(leave_out)]
            for scene in self.both
        )
        if not ordered:
            theirs, ours = sorted(theirs), sorted(ours)
        if not theirs or ours != theirs:
            difference = "\n".join(difflib.unified_diff(theirs, ours, "RocketMQ", "CometMQ", lineterm=""))
            raise AssertionError(f"{command} prints differently, or nothing:\n{difference}")
        return ours
