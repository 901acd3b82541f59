"""Fuzzed requests through the whole dispatch table of one broker: none kills it, none is forgotten, nothing leaks.

Half of them are golden request frames with small injuries, half have a known code with fields and bodies drawn from a
pool of usual and unusual ones. They are fed straight into connections, without sockets. A broken frame closes its
connection; the next request comes on a new one.

COMETMQ_FUZZ_INPUTS sets the number of requests, COMETMQ_FUZZ_SEED the seed; both are printed.
"""

import asyncio
import gc
import logging
import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.errors import WireError
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.codes import Request
from cometmq.wire.command import JSON, ROCKETMQ, Command, encode, request
from cometmq.wire.frame import FrameSplitter
from tests.fuzz.test_frames import mutate
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker
from tests.support.direct import DirectPeer
from tests.support.golden import golden_frames
from tests.support.length import count
from tests.support.served import CODES

INPUTS = count("COMETMQ_FUZZ_INPUTS", 20000, 100000, 1000000)
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED", "20261115"))
REPLAY = f"COMETMQ_FUZZ_SEED={SEED} COMETMQ_FUZZ_INPUTS={INPUTS} pytest tests/fuzz/test_requests.py"

GROWTH_BYTES_MAX = 24 << 20
# The text of an exception that no handler has foreseen.
FORESEEN = "HeaderError|WireError|StoreError|CallTimeout|ConnectionLost|SendFailed"
BUG = re.compile(rf"^(?!{FORESEEN})[A-Za-z]+(Error|Exception)\b")

# The first ones of each are those that get past the first check.
TOPICS = ["TopicA", "TopicB", "%RETRY%consumers", "%DLQ%consumers", "SCHEDULE_TOPIC_XXXX", "TBW102", "New", "a/b", ""]
GROUPS = ["consumers", "others", "CID_RMQ_SYS_x", "a b", "", "g" * 200]
NUMBERS = ["0", "1", "2", "3", "31", "-1", "100000", "2147483647", "2147483648", str(2**63 - 1), str(-(2**63)), "x"]
TEXTS = [
    "",
    "*",
    "A || B",
    "true",
    "false",
    "TAG",
    "SQL92",
    "{}",
    "x" * 5000,
    "Grüße \U0001f600",
    "\x01\x02\x01",
    "KEYS\x01k\x02DELAY\x013\x02",
    "DELAY\x01-1\x02TAGS\x01t",
    "WAIT\x01false\x02UNIQ_KEY\x01u\x02",
    "INNER_NUM\x015\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01p\x02",
]
BODIES = [
    b"",
    b"hello",
    b"{}",
    b"[]",
    b"null",
    b"[" * 300,
    b"\xff\xfe",
    b"\x00" * 100,
    b"x" * 100_000,
    b"brokerPermission=9\nnonsense\n",
    b'{"topicName":"TopicA"}',
    b'{"groupName":"consumers","retryMaxTimes":-5,"consumeEnable":true}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"consumers"}],"producerDataSet":[{"groupName":"p"}]}',
    b'{"clientId":"c","consumerGroup":"consumers","mqSet":[{"topic":"TopicA","brokerName":"b","queueId":0}]}',
]
OFTEN = {10, 310, 320, 11, 361, 36}
# Requests that would change the very settings or tables under which the others run.
LEFT_OUT = {Request.UPDATE_BROKER_CONFIG, Request.DELETE_TOPIC_IN_BROKER, Request.DELETE_SUBSCRIPTIONGROUP}


def golden_requests() -> list[bytes]:
    frames = [bytes.fromhex(row["frame_hex"]) for row in golden_frames() if row["kind"] == "request"]
    return [frame for frame in frames if FrameSplitter().feed(frame)[0].code in CODES]


def field_names() -> dict[int, list[str]]:
    """By code, the fields that golden requests have; those of all requests for codes without one."""
    names: dict[int, set[str]] = {}
    for frame in golden_requests():
        command = FrameSplitter().feed(frame)[0]
        names.setdefault(command.code, set()).update(command.ext)
    everything = sorted(set().union(*names.values()) | {"group", "offset", "delayLevel", "timestamp", "clientId"})
    return {code: sorted(names.get(code, ())) or everything for code in CODES}


def value_of(name: str, wildness: float, chance: random.Random) -> str:
    """Of the kind that the field's name suggests, and one that will do, unless it is wild."""
    wild = chance.random() < wildness
    if wild and chance.random() < 0.3:
        return chance.choice(TEXTS + NUMBERS)
    lower = name.lower()
    if ("topic" in lower and "num" not in lower) or name in "bc":
        return chance.choice(TOPICS if wild else TOPICS[:3])
    if "group" in lower or name == "a":
        return chance.choice(GROUPS if wild else GROUPS[:2])
    if name == "i" or "subscription" in lower or "properties" in lower or "type" in lower:
        return chance.choice(TEXTS)
    if lower in ("k", "m", "batch", "unitmode", "order", "offline"):
        return chance.choice(["true", "false", "false"])
    return chance.choice(NUMBERS if wild else NUMBERS[:4])


def invented(chance: random.Random, codes: list[int], names: dict[int, list[str]]) -> bytes:
    code = chance.choice(codes)
    wildness = chance.choice((0.0, 0.02, 0.1, 0.4))
    ext = {name: value_of(name, wildness, chance) for name in names[code] if chance.random() >= wildness / 4}
    command = request(code, ext, chance.choice(BODIES), opaque=chance.randrange(2**31), oneway=chance.random() < 0.1)
    command.version = chance.choice((513, 513, 0, 100, 399, 401))
    command.form = ROCKETMQ if code < 1 << 15 and chance.random() < 0.3 else JSON
    return encode(command)


def anonymous_bytes() -> int:
    """Resident memory that is no mapped file: segments of the log do not count."""
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGESIZE")


class Crowd:
    """Some connections; one that was closed is replaced."""

    def __init__(self, broker: Broker, count: int) -> None:
        self._broker = broker
        self._peers = [DirectPeer(broker.server, 40_000 + number) for number in range(count)]
        self.opened = count
        self.codes: Counter[int] = Counter()
        self.bugs: list[str] = []

    def feed(self, data: bytes, chance: random.Random) -> None:
        index = chance.randrange(len(self._peers))
        peer = self._peers[index]
        peer.feed(data)
        # A frame whose length grew waits for the rest: nobody sends it.
        if peer.closed or peer.connection.intake.partial_bytes or chance.random() < 0.002:
            self._collect(peer)
            if not peer.closed:
                peer.leave()
            self.opened += 1
            self._peers[index] = DirectPeer(self._broker.server, 40_000 + self.opened % 20_000)

    def _collect(self, peer: DirectPeer) -> None:
        for answer in peer.answers:
            if answer.is_response:
                self.codes[answer.code] += 1
                if BUG.match(answer.remark or ""):
                    self.bugs.append(f"{answer.code} {answer.remark}")
        peer.answers.clear()

    def collect(self) -> None:
        for peer in self._peers:
            self._collect(peer)

    def leave(self) -> None:
        self.collect()
        for peer in self._peers:
            if not peer.closed:
                peer.leave()


@pytest.mark.repeated
def test_fuzzed_requests_neither_kill_the_broker_nor_leak(tmp_path: Path) -> None:
    logging.disable(logging.CRITICAL)
    try:
        run(_fuzz(tmp_path), timeout_s=1200)
    finally:
        logging.disable(logging.NOTSET)


async def _fuzz(directory: Path) -> None:
    chance = random.Random(SEED)
    clock = ManualClock()
    golden = golden_requests()
    codes = sorted(CODES - LEFT_OUT) + sorted(OFTEN) * 10
    names = field_names()
    settings = {
        "autoCreateTopicEnable": False, "autoCreateSubscriptionGroup": False, "mappedFileSizeCommitLog": 8 << 20,
        "serverChannelMaxIdleTimeSeconds": 10_000_000, "maxHashSlotNum": 100, "maxIndexNum": 100_000,
    }  # fmt: skip
    async with running_broker(directory, clock, **settings) as broker:
        for topic in ("TopicA", "TopicB"):
            add_topic(broker, topic, 4)
        broker.tables.groups.update([SubscriptionGroupConfig(group_name=group) for group in ("consumers", "others")])
        await broker.rooms.settled()
        tasks_before = len(asyncio.all_tasks())
        crowd = Crowd(broker, 20)
        settled_bytes = 0
        for number in range(INPUTS):
            if chance.random() < 0.5:
                data = mutate(chance.choice(golden), chance)
                if _changes_settings(data):
                    continue
            else:
                data = invented(chance, codes, names)
            crowd.feed(data, chance)
            if number % 50 == 0:
                await asyncio.sleep(0)
            if number % 1000 == 0:
                crowd.collect()
                await _let_time_pass(broker, clock)
                assert not crowd.bugs, f"{Counter(crowd.bugs).most_common(5)}\nreplay: {REPLAY}"
            if number == INPUTS * 3 // 10:
                gc.collect()
                settled_bytes = anonymous_bytes()
        crowd.leave()
        await _let_time_pass(broker, clock)
        gc.collect()
        grown_bytes = anonymous_bytes() - settled_bytes
        assert not crowd.bugs, f"{Counter(crowd.bugs).most_common(5)}\nreplay: {REPLAY}"
        waiting = {name: family.waiting for name, family in broker.rooms.families.items() if family.waiting}
        print(
            f"{INPUTS} fuzzed requests, seed {SEED}: {sum(crowd.codes.values())} answers "
            f"{dict(sorted(crowd.codes.items()))}, {crowd.opened} connections, "
            f"{broker.rooms.shared.stats.messages()[0]} messages stored, memory grew by {grown_bytes >> 10} KiB"
        )
        assert waiting == {}, f"{waiting}\nreplay: {REPLAY}"
        assert broker.rooms.consume.longpoll.count == 0
        assert not broker.server.endpoint.tasks
        assert broker.server.endpoint.inflight_bytes == broker.server.endpoint.partial_bytes == 0
        assert broker.server.connections == []
        for _ in range(1000):  # a table that is just being saved is no leak
            if len(asyncio.all_tasks()) <= tasks_before:
                break
            await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) <= tasks_before, [repr(task) for task in asyncio.all_tasks()]
        assert grown_bytes < GROWTH_BYTES_MAX, f"memory grew by {grown_bytes} bytes; replay: {REPLAY}"
        await _is_well(broker)


def _changes_settings(data: bytes) -> bool:
    """Injuries can make a request of a kind that is left out."""
    try:
        commands: list[Command] = FrameSplitter().feed(data)
    except WireError:
        return False
    return any(command.code in LEFT_OUT for command in commands)


async def _let_time_pass(broker: Broker, clock: ManualClock) -> None:
    """Parked pulls and calls to peers that never answer come to their end."""
    for _ in range(70):
        clock.advance(1)
        await asyncio.sleep(0)
    for _ in range(1000):
        if not broker.server.endpoint.tasks and not broker.background.busy:
            break
        await asyncio.sleep(0.002)
    for _ in range(5):
        await asyncio.sleep(0)


async def _is_well(broker: Broker) -> None:
    add_topic(broker, "Honest")
    broker.tables.groups.update([SubscriptionGroupConfig(group_name="honest")])
    async with Peer.of(broker) as peer:
        assert (await peer.send("Honest", b"still here")).code == 0
        assert [message.body for message in await peer.pull_messages("Honest", group="honest")] == [b"still here"]
