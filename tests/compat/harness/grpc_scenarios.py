"""What every 5.x client must be able to do with every front, once, for all of them.

A scenario is a function of `Cell`: one client program before one front. Those of a cell run at the same time, each in
a thread of its own with topics and groups of its own, because most of their time they wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from tests.compat.harness.grpc_clients import Driver, Refusal, Row
from tests.compat.harness.grpc_fronts import Front
from tests.compat.harness.processes import wait_until
from tests.compat.harness.remoting import max_offset, route

INVISIBLE_S: Final = 10  # the least that is allowed
LONG_S: Final = 60
PATIENCE_S: Final = 60.0

ILLEGAL_INVISIBLE_TIME: Final = 40011
ILLEGAL_PROPERTY_KEY: Final = 40007
INVALID_HANDLE: Final = 40013
TOPIC_NOT_FOUND: Final = 40402
INTERNAL_ERROR: Final = 50001

Scenario = Callable[["Words"], None]


class Words:
    """One scenario of a cell: names of its own, and short words for orders."""

    def __init__(self, driver: Driver, front: Front, cell: str, scenario: str) -> None:
        self.driver = driver
        self.front = front
        self.prefix = f"{cell}_{scenario}"
        self.topic = f"T_{self.prefix}"
        self.group = f"G_{self.prefix}"

    def producer(self, *topics: str) -> str:
        name = f"p_{self.prefix}"
        with self.driver.starting:
            self.driver.do("producer", name, topics=list(topics or (self.topic,)))
        return name

    def send(self, producer: str, body: str, **words: Any) -> Row:
        return self.driver.do("send", producer, topic=self.topic, body=body, **words)

    def simple(self, *, filter: str = "*", sql: bool = False, topic: str = "", group: str = "", name: str = "s") -> str:
        name = f"{name}_{self.prefix}"
        words: dict[str, Any] = {
            "topic": topic or self.topic,
            "group": group or self.group,
            "filter": filter,
            "sql": sql,
        }
        with self.driver.starting:
            self.driver.do("simple", name, **words)
        return name

    def push(self, **words: Any) -> str:
        name = f"c_{self.prefix}"
        with self.driver.starting:
            self.driver.do("push", name, **{"topic": self.topic, "group": self.group, **words})
        return name

    def receive(self, consumer: str, count: int, *, invisible_s: float = LONG_S) -> list[Row]:
        """`count` messages, by as many receives as it takes."""
        found: list[Row] = []
        until_s = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < until_s, f"{len(found)} of {count} messages were received: {found}"
            try:
                found += self.driver.do("receive", consumer, count=16, invisible_s=invisible_s)["messages"]
            except Refusal as refusal:
                if not self._is_early(refusal):
                    raise
        return found

    def _is_early(self, refusal: Refusal) -> bool:
        """Python's client does not wait for the answer to its settings; RocketMQ's proxy then trips, ours waits."""
        is_both = self.front.kind == "rocketmq" and self.driver.client == "python"
        return is_both and refusal.code == INTERNAL_ERROR

    def ack(self, consumer: str, rows: list[Row]) -> None:
        for row in rows:
            self.driver.do("ack", consumer, ref=row["ref"])

    def is_empty(self, consumer: str) -> bool:
        """A whole poll brings nothing."""
        return not self.driver.do("receive", consumer, count=16, invisible_s=LONG_S)["messages"]


def bodies(rows: list[Row]) -> list[str]:
    return [row["body"] for row in rows]


def normal(it: Words) -> None:
    consumer, producer = it.simple(), it.producer()
    ids = [
        it.send(producer, f"hello {number}", tag="blue", key=f"key{number}", properties={"colour": "grün"})["id"]
        for number in range(5)
    ]
    rows = it.receive(consumer, 5)
    assert sorted(bodies(rows)) == [f"hello {number}" for number in range(5)]
    assert sorted(row["id"] for row in rows) == sorted(ids)
    first = next(row for row in rows if row["body"] == "hello 0")
    assert (first["tag"], first["keys"], first["properties"]) == ("blue", ["key0"], {"colour": "grün"})
    assert {row["attempt"] for row in rows} == {1}
    it.ack(consumer, rows)
    assert it.is_empty(consumer)


def large(it: Words) -> None:
    consumer, producer = it.simple(), it.producer()
    text = "x" * ((2 << 20) - 20_000)  # the Go client takes messages up to 2 MiB with all that is around
    for number in range(3):
        it.send(producer, text + str(number))
    rows = it.receive(consumer, 3)
    assert sorted(bodies(rows)) == [text + str(number) for number in range(3)]


def tag_filter(it: Words) -> None:
    consumer, producer = it.simple(filter="red||blue"), it.producer()
    for tag in ("red", "green", "blue", "green", "red"):
        it.send(producer, tag, tag=tag)
    rows = it.receive(consumer, 3)
    assert sorted(bodies(rows)) == ["blue", "red", "red"]
    it.ack(consumer, rows)
    assert it.is_empty(consumer)


def sql_filter(it: Words) -> None:
    consumer, producer = it.simple(filter="size > 2 AND colour = 'red'", sql=True), it.producer()
    for size in range(1, 6):
        it.send(producer, str(size), properties={"size": str(size), "colour": "red" if size != 4 else "blue"})
    rows = it.receive(consumer, 2)
    assert sorted(bodies(rows)) == ["3", "5"]
    it.ack(consumer, rows)
    assert it.is_empty(consumer)


def fifo(it: Words) -> None:
    consumer, producer = it.push(), it.producer()
    for number in range(8):
        for group in ("one", "two"):
            it.send(producer, f"{group} {number}", group=group)
    rows = it.driver.messages(consumer, 16)
    for group in ("one", "two"):
        assert bodies([row for row in rows if row["group"] == group]) == [f"{group} {number}" for number in range(8)]


def fifo_blocks(it: Words) -> None:
    """What is not done with holds back what follows."""
    consumer, producer = it.simple(), it.producer()
    it.send(producer, "first", group="g")
    held = it.receive(consumer, 1)
    it.send(producer, "second", group="g")
    assert it.is_empty(consumer)
    it.ack(consumer, held)
    assert bodies(it.receive(consumer, 1)) == ["second"]


def fifo_dead_letters(it: Words) -> None:
    """A message that fails as often as allowed is given up by the client, and the next of its group comes."""
    consumer, producer = it.push(), it.producer()
    for body in ("good 1", "bad 2", "good 3"):
        it.send(producer, body, group="g")
    wait_until(lambda: _letters(it) == 1, f"dead letter of {it.group}", PATIENCE_S)
    rows = it.driver.messages(consumer, 4)
    assert bodies(rows).count("bad 2") == 2, [(row["body"], row["attempt"]) for row in rows]
    assert {"good 1", "good 3"} <= set(bodies(rows))


def _letters(it: Words) -> int:
    topic = f"%DLQ%{it.group}"
    if route(it.front.broker.namesrv, topic).code != 0:
        return 0
    return max_offset(it.front.broker.address, topic, 0)


def delay(it: Words) -> None:
    consumer, producer = it.push(), it.producer()
    due_ms = int(time.time() + 4) * 1000
    it.send(producer, "later", deliver_ms=due_ms)
    row = it.driver.told(consumer, 1)[0]
    assert row["message"]["body"] == "later"
    assert row["at_s"] * 1000 >= due_ms - 1_000, "it came before its time"


def transaction(it: Words) -> None:
    consumer, producer = it.push(), it.producer()
    for half, body in (("commit", "ended commit"), ("rollback", "ended rollback"),
                       ("leave", "asked commit"), ("leave", "asked rollback")):  # fmt: skip
        it.send(producer, body, half=half)
    asked = [row["checked"] for row in it.driver.told(producer, 2)]
    assert set(asked) == {"asked commit", "asked rollback"}
    assert sorted(bodies(it.driver.messages(consumer, 2))) == ["asked commit", "ended commit"]


def redelivery(it: Words) -> None:
    """What is neither acknowledged nor put off comes again, with a higher count; its old handle is worth nothing."""
    consumer, producer = it.simple(), it.producer()
    it.send(producer, "again")
    (first,) = it.receive(consumer, 1, invisible_s=INVISIBLE_S)
    (second,) = it.receive(consumer, 1)
    assert (first["body"], first["attempt"]) == ("again", 1)
    assert (second["body"], second["attempt"]) == ("again", 2)
    assert second["id"] == first["id"]
    # Go's client does not look at the answer.
    if it.driver.client != "go":
        assert _refused(it, "ack", consumer, ref=first["ref"]) == INVALID_HANDLE
    it.ack(consumer, [second])
    assert it.is_empty(consumer)


def put_off(it: Words) -> None:
    consumer, producer = it.simple(), it.producer()
    it.send(producer, "soon again")
    (first,) = it.receive(consumer, 1)
    it.driver.do("change", consumer, ref=first["ref"], invisible_s=1)
    (second,) = it.receive(consumer, 1)
    assert (second["body"], second["attempt"]) == ("soon again", 2)


def dead_letters(it: Words) -> None:
    """Two attempts are allowed: the third finds it in the dead letters."""
    consumer, producer = it.push(), it.producer()
    for body in ("bad", "good"):
        it.send(producer, body)
    wait_until(lambda: _letters(it) == 1, f"dead letter of {it.group}", PATIENCE_S)
    rows = it.driver.messages(consumer, 3)
    assert [(row["body"], row["attempt"]) for row in rows if row["body"] == "bad"] == [("bad", 1), ("bad", 2)]
    letters = it.simple(topic=f"%DLQ%{it.group}", group=f"{it.group}_letters")
    assert bodies(it.receive(letters, 1)) == ["bad"]


def push(it: Words) -> None:
    consumer, producer = it.push(), it.producer()
    sent = [f"message {number}" for number in range(20)] + ["once failed"]
    for body in sent:
        it.send(producer, body)
    rows = it.driver.messages(consumer, 22)
    assert sorted(bodies(rows)) == sorted([*sent, "once failed"])
    assert [row["attempt"] for row in rows if row["body"] == "once failed"] == [1, 2]
    it.driver.do("close", consumer)


def recall(it: Words) -> None:
    consumer, producer = it.push(), it.producer()
    due_ms = int(time.time() + 8) * 1000
    taken_back = it.send(producer, "taken back", deliver_ms=due_ms)
    it.send(producer, "stays", deliver_ms=due_ms + 2_000)
    answer = it.driver.do("recall", producer, topic=it.topic, handle=taken_back["recall"])
    assert answer["id"] == taken_back["id"]
    assert bodies(it.driver.messages(consumer, 1)) == ["stays"]


def refusals(it: Words) -> None:
    consumer, producer = it.simple(), it.producer()
    it.send(producer, "here")
    assert _refused(it, "receive", consumer, count=1, invisible_s=1) == ILLEGAL_INVISIBLE_TIME
    reserved = {"properties": {"TIMER_ROLL_TIMES": "1"}}
    assert _refused(it, "send", producer, topic=it.topic, body="b", **reserved) == ILLEGAL_PROPERTY_KEY
    # Python's client does not say why it knows of no route.
    unknown = _refused(it, "send", producer, topic=f"{it.topic}_missing", body="b")
    assert unknown == (0 if it.driver.client == "python" else TOPIC_NOT_FOUND)
    # A message of another kind than the topic's; clients look at the route and say so themselves.
    assert _refused(it, "send", producer, topic=it.topic, body="b", group="g") in (0, 40014)


def _refused(it: Words, op: str, name: str, **words: Any) -> int:
    try:
        answer = it.driver.do(op, name, **words)
    except Refusal as refusal:
        return refusal.code
    raise AssertionError(f"{op} {words} was not refused: {answer}")


SCENARIOS: Final[dict[str, tuple[Scenario, str]]] = {
    "normal": (normal, "NORMAL"),
    "large": (large, "NORMAL"),
    "tag_filter": (tag_filter, "NORMAL"),
    "sql_filter": (sql_filter, "NORMAL"),
    "fifo": (fifo, "FIFO"),
    "fifo_blocks": (fifo_blocks, "FIFO"),
    "fifo_dead_letters": (fifo_dead_letters, "FIFO"),
    "delay": (delay, "DELAY"),
    "transaction": (transaction, "TRANSACTION"),
    "redelivery": (redelivery, "NORMAL"),
    "put_off": (put_off, "NORMAL"),
    "dead_letters": (dead_letters, "NORMAL"),
    "push": (push, "NORMAL"),
    "recall": (recall, "DELAY"),
    "refusals": (refusals, "NORMAL"),
}


class Cell:
    """One client program before one front, with the scenarios that are asked of it all on their way."""

    def __init__(self, driver: Driver, front: Front, name: str, scenarios: list[str]) -> None:
        self._driver = driver
        words = {scenario: Words(driver, front, name, scenario) for scenario in scenarios}
        front.make_topics({it.topic: SCENARIOS[scenario][1] for scenario, it in words.items()})
        # In a FIFO group, Node's client takes a customized policy for one attempt, Python's an exponential one for 17.
        policy = "EXPONENTIAL" if driver.client == "node" else "CUSTOMIZED"
        for scenario, it in words.items():
            fails = scenario in ("fifo_dead_letters", "dead_letters")
            is_fifo = SCENARIOS[scenario][1] == "FIFO"
            front.make_group(it.group, policy, is_fifo=is_fifo, retries=1 if fails else 16)
            if fails:
                front.make_group(f"{it.group}_letters", policy)
        self._pool = ThreadPoolExecutor(len(scenarios))
        self._runs: dict[str, Future[None]] = {}
        for scenario, it in words.items():
            self._runs[scenario] = self._pool.submit(SCENARIOS[scenario][0], it)

    def check(self, scenario: str) -> None:
        self._runs[scenario].result()

    def close(self) -> None:
        self._driver.close()
        self._pool.shutdown()
