"""kill -9 right after acks that create something: what was acked can be read after the next start.

Each life of the broker gets some requests at the same time, each of a kind that brings something into being that was
not there before: a topic (by a message, a batch, a delayed one, a half one), a retry topic, dead letters, a group. The
process is killed in the moment in which one of the acks arrives, the first or a later one. The next life has to have
all that was acked, as a consumer finds it: the topic is known and a pull brings the message; a half one is committed
first, a delayed one is waited for. In the end everything is looked at once more.

    COMETMQ_ACK_KILLS=500     how many kills (12; 50 in make verify, 500 in make soak)
    COMETMQ_ACK_SEED=123      choose like this; moments differ, because the machine is not seeded
    python -m tests.crash.test_kill_after_acks DIRECTORY KILLS     the same as a program
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cometmq.errors import CometError
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.codes import Request
from cometmq.wire.command import Command
from cometmq.wire.record.message import decode_records
from cometmq.wire.record.message_id import decode_offset_id
from tests.broker.processes import Process, broker_process
from tests.support.aio import run
from tests.support.brokers import Peer, batch_request
from tests.support.length import count
from tests.support.transacting import COMMIT, GROUP, HalfSent, end_request

KILLS = count("COMETMQ_ACK_KILLS", 12, 50, 500)
SEED = int(os.environ.get("COMETMQ_ACK_SEED", random.SystemRandom().randrange(1_000_000)))
REQUESTS_MAX = 6
KILLS_PER_STORE = 50
GROUP_LIMIT = 7
BATCH_MESSAGES = 20
ARRIVAL_S = 30.0
BASE = "Base"
SETTINGS: dict[str, object] = {
    "messageDelayLevel": "1s 1s 1s 1s 1s",
    "timerPrecisionMs": 100,
    "timerFlushIntervalMs": 200,
    "transactionTimeOut": 600_000,
}


@dataclass(slots=True)
class Thing:
    """What one request creates. `bodies` are to be found in `topic`, by `readers`, after `half` is committed."""

    kind: str
    topic: str
    bodies: list[bytes]
    readers: str
    queue_id: int = 0
    half: HalfSent | None = None
    group: str = ""


@dataclass(slots=True)
class Trial:
    """One store through its lives. `base` is where messages lie that can be given back."""

    chance: random.Random
    things: list[Thing] = field(default_factory=list)
    acked: list[Thing] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    count: int = 0
    base: list[int] = field(default_factory=list)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # What is asked for

    async def create(self, peer: Peer) -> Thing:
        kind = self.chance.choice(list(_MAKERS))
        return await _MAKERS[kind](self, peer)

    async def topic(self, peer: Peer) -> Thing:
        thing = self._thing("topic")
        _ok(await peer.send(thing.topic, thing.bodies[0], queue_id=thing.queue_id))
        return thing

    async def batch(self, peer: Peer) -> Thing:
        thing = self._thing("batch", BATCH_MESSAGES)
        _ok(await peer.ask(batch_request(thing.topic, [(body, {}) for body in thing.bodies], queue_id=thing.queue_id)))
        return thing

    async def delayed(self, peer: Peer) -> Thing:
        thing = self._thing("delayed")
        _ok(await peer.send(thing.topic, thing.bodies[0], queue_id=thing.queue_id, properties={"DELAY": "1"}))
        return thing

    async def timer(self, peer: Peer) -> Thing:
        thing = self._thing("timer")
        properties = {"TIMER_DELAY_MS": "1000"}
        _ok(await peer.send(thing.topic, thing.bodies[0], queue_id=thing.queue_id, properties=properties))
        return thing

    async def half(self, peer: Peer) -> Thing:
        thing = self._thing("half")
        properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": thing.topic}
        answer = await peer.send(
            thing.topic,
            thing.bodies[0],
            queue_id=thing.queue_id,
            properties=properties,
            sys_flag=4,
            born_timestamp=time.time_ns() // 1_000_000,
        )
        _ok(answer)
        place = decode_offset_id(answer.ext["msgId"]).physical_offset
        thing.half = HalfSent(int(answer.ext["queueOffset"]), place, thing.topic)
        return thing

    async def committed(self, peer: Peer) -> Thing:
        thing = await self.half(peer)
        assert thing.half is not None
        _ok(await peer.ask(end_request(thing.half, COMMIT)))
        thing.kind, thing.half = "committed", None
        return thing

    async def given_back(self, peer: Peer) -> Thing:
        group = self.name("Back")
        _ok(await self._give_back(peer, group, delayLevel=1))
        return Thing("given back", f"%RETRY%{group}", [b"base"], group)

    async def dead_letter(self, peer: Peer) -> Thing:
        group = self.name("Dead")
        _ok(await self._give_back(peer, group, delayLevel=-1))
        return Thing("dead letter", f"%DLQ%{group}", [b"base"], f"{group}Readers")

    async def own_retry(self, peer: Peer) -> Thing:
        group = self.name("Own")
        topic = f"%RETRY%{group}"
        body = topic.encode()
        _ok(await peer.send(topic, body, reconsume_times=1, max_reconsume_times=16))
        return Thing("sent to the retry topic", topic, [body], group)

    async def own_dead_letter(self, peer: Peer) -> Thing:
        group = self.name("OwnDead")
        body = group.encode()
        _ok(await peer.send(f"%RETRY%{group}", body, reconsume_times=17, max_reconsume_times=16))
        return Thing("sent to the dead letters", f"%DLQ%{group}", [body], f"{group}Readers")

    async def group(self, peer: Peer) -> Thing:
        name = self.name("Group")
        config = SubscriptionGroupConfig(group_name=name, retry_max_times=GROUP_LIMIT)
        _ok(await peer.call(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config.encode()))
        return Thing("group", "", [], "", group=name)

    async def queues(self, peer: Peer) -> Thing:
        """A message for a queue that its topic gets at the same time."""
        thing = self._thing("queues")
        thing.queue_id = 0
        _ok(await peer.send(thing.topic, b"before", queue_id=0))
        change = {
            "topic": thing.topic, "defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        changing = asyncio.create_task(peer.call(Request.UPDATE_AND_CREATE_TOPIC, **change))
        try:
            while (await peer.send(thing.topic, thing.bodies[0], queue_id=7)).code != 0:
                pass
        finally:
            changing.cancel()
        thing.queue_id = 7
        return thing

    def _thing(self, kind: str, count: int = 1) -> Thing:
        topic = self.name("New")
        return Thing(kind, topic, [b"%s-%d" % (topic.encode(), it) for it in range(count)], "Readers",
                     queue_id=self.chance.randrange(4))  # fmt: skip

    async def _give_back(self, peer: Peer, group: str, **ext: object) -> Command:
        place = self.chance.choice(self.base)
        return await peer.call(
            Request.CONSUMER_SEND_MSG_BACK, b"", offset=place, group=group, originTopic=BASE, unitMode=False, **ext
        )

    # A life

    async def live_and_die(self, process: Process) -> None:
        async with Peer.at(process.address) as peer:
            if not self.base:
                await self._fill(peer)
            await self._look_at(peer, self.things)
            self.things = []
            wanted = self.chance.randint(1, REQUESTS_MAX)
            deadly = self.chance.randint(1, wanted)
            done: list[Thing] = []

            async def ask() -> None:
                done.append(await self.create(peer))
                if len(done) == deadly:
                    process.child.kill()
                    self.kills[done[-1].kind] += 1

            results = await asyncio.gather(*(ask() for _ in range(wanted)), return_exceptions=True)
            process.child.kill()
            process.child.wait()
            for result in results:
                assert result is None or isinstance(result, CometError), repr(result)
            self.things = done
            self.acked += done

    async def _fill(self, peer: Peer) -> None:
        answer = await peer.ask(batch_request(BASE, [(b"base", {})] * 10))
        _ok(answer)
        self.base = [decode_offset_id(it).physical_offset for it in answer.ext["msgId"].split(",")]

    # Judging

    async def _look_at(self, peer: Peer, things: list[Thing]) -> None:
        end_s = time.monotonic() + ARRIVAL_S
        for thing in things:
            if thing.half is not None:
                _ok(await peer.ask(end_request(thing.half, COMMIT)))
                thing.half = None
        for thing in things:
            if thing.group:
                answer = await peer.call(Request.GET_SUBSCRIPTIONGROUP_CONFIG, b"", group=thing.group)
                assert answer.code == 0, f"group {thing.group} was acked: {answer.code} {answer.remark}"
                limit = SubscriptionGroupConfig.decode(answer.body).retry_max_times  # asking makes one that is lost
                assert limit == GROUP_LIMIT, f"group {thing.group} was acked, and has retryMaxTimes={limit}"
                continue
            fault = await self._fault(peer, thing)
            while fault and time.monotonic() < end_s:
                await asyncio.sleep(0.1)
                fault = await self._fault(peer, thing)
            assert not fault, f"{thing.kind} was acked: {fault}"

    async def _fault(self, peer: Peer, thing: Thing) -> str:
        found: list[bytes] = []
        answer = await peer.pull(thing.topic, thing.queue_id, group=thing.readers)
        if answer.code not in (0, 19, 20, 21):
            return f"topic {thing.topic} queue {thing.queue_id}: {answer.code} {answer.remark}"
        if answer.code == 0:
            found = [message.body for message in decode_records(answer.body)]
        missing = [body for body in thing.bodies if body not in found]
        return f"topic {thing.topic} queue {thing.queue_id} lacks {missing[:3]}, has {found[:3]}" if missing else ""

    async def look_at_all(self, process: Process) -> None:
        async with Peer.at(process.address) as peer:
            await self._look_at(peer, self.acked)


def _ok(answer: Command) -> None:
    assert answer.code == 0, f"{answer.code}: {answer.remark}"


_MAKERS: dict[str, Callable[[Trial, Peer], Awaitable[Thing]]] = {
    "topic": Trial.topic,
    "batch": Trial.batch,
    "delayed": Trial.delayed,
    "timer": Trial.timer,
    "half": Trial.half,
    "committed": Trial.committed,
    "given back": Trial.given_back,
    "dead letter": Trial.dead_letter,
    "own retry": Trial.own_retry,
    "own dead letter": Trial.own_dead_letter,
    "group": Trial.group,
    "queues": Trial.queues,
}


def kill_after_acks(where: Path, kills: int, seed: int) -> str:
    """One line about what was done; AssertionError if something that was acked cannot be read."""
    chance = random.Random(seed)
    began_s = time.monotonic()
    killed: Counter[str] = Counter()
    acked = 0
    for number in range(0, kills, KILLS_PER_STORE):
        home = where / f"store-{number}"
        home.mkdir(parents=True)
        trial = Trial(random.Random(chance.randrange(1 << 30)))
        try:
            _kill(trial, home, min(KILLS_PER_STORE, kills - number))
        except BaseException:
            tail = "\n".join((home / "stderr").read_text().splitlines()[-30:])
            print(f"seed={seed} replay: COMETMQ_ACK_SEED={seed} pytest tests/crash/test_kill_after_acks.py\n{tail}")
            raise
        acked += len(trial.acked)
        killed += trial.kills
        print(f"{number + KILLS_PER_STORE} kills, {acked} acked", file=sys.stderr, flush=True)
        shutil.rmtree(home)
    return (
        f"kill -9 after acks: {kills} kills, 0 of {acked} acked things cannot be read; "
        f"killed at the ack of {dict(killed)}; {time.monotonic() - began_s:.0f} s, seed {seed}"
    )


def _kill(trial: Trial, home: Path, kills: int) -> None:
    for number in range(kills):
        mode = ("ASYNC_FLUSH", "SYNC_FLUSH")[number % 2]
        with broker_process(home, flushDiskType=mode, listenPort=_port(), **SETTINGS) as process:
            run(trial.live_and_die(process), timeout_s=ARRIVAL_S + 60)
    with broker_process(home, listenPort=_port(), **SETTINGS) as process:
        run(trial.look_at_all(process), timeout_s=ARRIVAL_S + 60)


def _port() -> int:
    """Below those that the kernel gives to clients: none of hundreds of starts may meet one of these."""
    while True:
        port = random.randrange(12_000, 30_000)
        if not any(_is_taken(port + beside) for beside in (-2, 0, 1)):
            return port


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


@pytest.mark.repeated
def test_what_was_acked_can_be_read_after_a_kill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = kill_after_acks(tmp_path, KILLS, SEED)
    with capsys.disabled():
        print(f"\n{figures}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch)
        print(kill_after_acks(directory, int(sys.argv[2]) if len(sys.argv) > 2 else KILLS, SEED))
