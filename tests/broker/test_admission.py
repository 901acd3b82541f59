"""When a broker refuses: a loop that stood still, a slow disk, full families, groups far behind; and what it logs."""

import asyncio
import gc
import logging
import socket
import threading
import time
from pathlib import Path

import pytest

from cometmq.broker.admission import FAMILIES, STALL_GRACE_MS, LoopWatch, SendGate, make_families
from cometmq.broker.config import BrokerConfig
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, encode
from cometmq.wire.frame import FrameSplitter
from tests.broker.consume.test_long_poll import resident_bytes
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, pull_request, running_broker, send_request, stored
from tests.support.direct import DirectPeer
from tests.support.net import RawPeer, until


class SendingThread(threading.Thread):
    """A client outside of the event loop: writes sends, then notes each answer and when it came."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.answers: list[Command] = []
        self.took_s = 0.0
        self._link = socket.create_connection(("127.0.0.1", port))

    def run(self) -> None:
        frames = []
        for number in range(self.count):
            command = send_request("TopicA", b"%d" % number)
            command.opaque = number
            frames.append(encode(command))
        began_s = time.monotonic()
        self._link.sendall(b"".join(frames))
        splitter = FrameSplitter()
        self._link.settimeout(20)
        while len(self.answers) < self.count:
            self.answers += splitter.feed(self._link.recv(1 << 16))
        self.took_s = time.monotonic() - began_s
        self._link.close()


@pytest.mark.mission("PR-01")
@pytest.mark.parametrize(("stall_s", "refused"), [(1.2, True), (0.5, False)])
async def test_sends_that_lay_in_the_socket_while_the_loop_stood_still(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stall_s: float, refused: bool
) -> None:
    async with running_broker(tmp_path, brokerFastFailureEnable=True) as broker:
        add_topic(broker, "TopicA")
        await asyncio.sleep(0.2)
        client = SendingThread(broker.port, 100)
        await until(lambda: len(broker.server.connections) == 1)
        family = broker.rooms.families["send"]
        caplog.clear()
        client.start()
        time.sleep(stall_s)  # noqa: ASYNC251 - the stall itself
        await asyncio.to_thread(client.join)
        assert client.took_s < stall_s + 5
        assert sorted(answer.opaque for answer in client.answers) == list(range(100)), "one answer each"
        done = {answer.opaque for answer in client.answers if answer.code == 0}
        busy = [answer for answer in client.answers if answer.code == Response.SYSTEM_BUSY]
        assert len(done) + len(busy) == 100
        assert {int(message.body) for message in stored(broker, "TopicA")} == done, "a refusal does nothing"
        assert family.refused == len(busy)
        if not refused:
            # Unless the machine has added to the stall.
            assert not busy or broker.watch.longest_s * 1000 >= 200 + STALL_GRACE_MS
            return
        assert busy
        assert all((answer.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]") for answer in busy)
        assert "200 ms" in (busy[0].remark or "")
        lines = [it.getMessage() for it in caplog.records if it.getMessage().startswith("refuse request")]
        assert len(lines) == 1
        assert broker.server.endpoint.log_refused.count == len(busy)
        assert broker.watch.longest_s >= stall_s - 0.1
        async with Peer.of(broker) as peer:
            await asyncio.sleep(0.05)
            assert (await peer.send("TopicA")).code == 0


@pytest.mark.mission("PR-01")
def test_each_family_has_its_own_patience_and_fast_failure_can_be_switched_off() -> None:
    clock = ManualClock()
    config = [BrokerConfig()]
    watch = LoopWatch(clock)
    families = make_families(lambda: config[0], watch, SendGate(SlowBench().store.log, False))
    watch.start()
    patience_ms = {name: getattr(config[0], wait) for name, (_, wait) in FAMILIES.items() if wait is not None}
    assert patience_ms == {
        "send": 200, "pull": 5000, "lite pull": 5000, "ack": 3000, "heartbeat": 31_000, "transaction": 3000,
        "admin": 5000,
    }  # fmt: skip
    for stall_ms in (500, 1100, 4000, 6000, 32_500):
        clock._elapsed_ns += stall_ms * 1_000_000
        refusing = {name for name, family in families.items() if family.refusal() is not None}
        waited_ms = stall_ms - 50
        assert refusing == {name for name, limit in patience_ms.items() if waited_ms >= limit + STALL_GRACE_MS}
        config[0] = BrokerConfig(fast_failure=False)
        assert all(family.refusal() is None for family in families.values())
        config[0] = BrokerConfig()
        clock.advance(1)
        assert all(family.refusal() is None for family in families.values()), "soon after it is forgotten"
    watch.stop()


@pytest.mark.mission("PR-01")
def test_what_is_read_right_after_a_stall_counts_as_having_waited() -> None:
    """On some loops timers run before sockets: the tick has passed when the requests are read."""
    clock = ManualClock()
    watch = LoopWatch(clock)
    watch.start()
    clock._elapsed_ns += 1_200_000_000
    watch._tick()  # it was due long ago
    assert 1149 <= watch.waited_ms() <= 1150
    clock._elapsed_ns += 9_000_000
    assert 1149 <= watch.waited_ms() <= 1150
    clock._elapsed_ns += 2_000_000
    assert watch.waited_ms() == 0
    watch.stop()


async def test_a_full_family_refuses_only_itself(tmp_path: Path) -> None:
    settings = {"pullThreadPoolQueueCapacity": 5}
    async with running_broker(tmp_path, **settings) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        for _ in range(5):
            peer.send(pull_request("TopicA", suspend_ms=15_000))
        await until(lambda: broker.rooms.consume.longpoll.count == 5)
        answer = await peer.call(pull_request("TopicA", suspend_ms=15_000))
        assert answer.code == Response.SYSTEM_BUSY
        assert (answer.remark or "").startswith("[OVERLOAD]")
        assert (await peer.call(pull_request("TopicA", code=Request.LITE_PULL_MESSAGE))).code == 19
        assert (await peer.call(send_request("Other"))).code == 0


# A slow disk


@pytest.mark.mission("PR-02")
async def test_an_append_that_stalls_turns_into_quick_refusals_and_ends_soon_after(tmp_path: Path) -> None:
    disk = FakeDisk()
    settings = {"mappedFileSizeCommitLog": 8192}
    async with running_broker(tmp_path, None, disk, **settings) as broker, Peer.of(broker) as peer:
        assert (await peer.send("TopicA")).code == 0
        # Segments are made by the append itself, and making one takes 2 s.
        await until(lambda: not broker.background.busy)
        broker.store.segments.allocate_alone()
        broker.store.segments.drop_prepared()
        stalls: list[float] = []

        def stall(operation: str, path: str) -> None:
            if operation == "allocate" and "commitlog" in path and not stalls:
                stalls.append(time.monotonic())
                time.sleep(2)

        disk.on_call = stall
        gc.collect()
        bytes_before = resident_bytes()
        sends = [asyncio.create_task(peer.send("TopicA", b"x" * 1000)) for _ in range(500)]
        answers = [await send for send in sends]
        ended_s = time.monotonic()
        busy = [answer for answer in answers if answer.code == Response.SYSTEM_BUSY]
        assert stalls
        assert len(busy) > 20  # nearly all, where the sender gets its share of the machine
        assert all("osPageCacheBusyTimeOutMills" in (answer.remark or "") for answer in busy)
        assert sum(answer.code == 0 for answer in answers) == len(stored(broker, "TopicA")) - 1
        assert resident_bytes() - bytes_before < 20 << 20
        while (await peer.send("TopicA")).code != 0:
            assert time.monotonic() - ended_s < 10, "taken again within 100 ms; the rest is for a busy machine"
            await asyncio.sleep(0.01)


async def test_a_segment_that_is_not_ready_refuses_without_waiting(tmp_path: Path) -> None:
    disk = FakeDisk()
    may_go_on = threading.Event()
    settings = {"mappedFileSizeCommitLog": 8192}
    async with running_broker(tmp_path, None, disk, **settings) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA")
        await until(lambda: not broker.background.busy)

        def stall(operation: str, path: str) -> None:
            if operation == "allocate" and "commitlog" in path:
                may_go_on.wait(20)

        disk.on_call = stall
        codes = [(await peer.send("TopicA", b"x" * 1000)).code for _ in range(60)]
        assert codes[-1] == Response.SYSTEM_ERROR
        began_s = time.monotonic()
        refused = [await peer.send("TopicA", b"x" * 1000) for _ in range(50)]
        assert time.monotonic() - began_s < 10, "not until the disk is ready; it may take 20 s"
        assert {answer.code for answer in refused} == {Response.SYSTEM_ERROR}
        assert "slow disk" in (refused[0].remark or "")
        may_go_on.set()
        await until(lambda: broker.store.segments.prepared)
        assert (await peer.send("TopicA", b"x" * 1000)).code == 0


# Groups far behind


@pytest.mark.mission("PR-03")
async def test_a_group_far_behind_is_switched_off_until_an_operator_switches_it_on(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"disableConsumeIfConsumerReadSlowly": True, "consumerFallbehindThreshold": 1 << 20,
                "mappedFileSizeCommitLog": 8 << 20, "serverChannelMaxIdleTimeSeconds": 1_000_000}  # fmt: skip
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        for _ in range(21):
            await peer.send("TopicA", b"x" * 100_000)
        assert (await peer.pull("TopicA", group="laggard", count=1)).code == 0
        assert (await peer.pull("TopicA", offset=20, group="quick")).code == 0
        clock.advance(179)
        assert (await peer.pull("TopicA", group="laggard", count=1)).code == 0
        clock.advance(1)
        refused = await peer.pull("TopicA", group="laggard")
        assert (refused.code, refused.ext) == (Response.NO_PERMISSION, {"forbiddenType": "2"})
        assert (await peer.pull("TopicA", offset=20, group="quick")).code == 0
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        assert (await peer.pull("TopicA", group="laggard")).code == Response.NO_PERMISSION
        body = SubscriptionGroupConfig(group_name="laggard").encode()
        assert (await peer.call(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
        assert (await peer.pull("TopicA", group="laggard")).code == 0


async def test_groups_far_behind_stay_as_they_are_unless_that_is_switched_on(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"consumerFallbehindThreshold": 1000, "serverChannelMaxIdleTimeSeconds": 1_000_000}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        for _ in range(5):
            await peer.send("TopicA", b"x" * 1000)
        assert (await peer.pull("TopicA", count=1)).code == 0
        clock.advance(400)
        assert (await peer.pull("TopicA", count=1)).code == 0


# Slow paths are logged


class SlowBench:
    """A store without threads whose disk operations take time of a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = FakeDisk(now_ms=self.clock.now_ms)
        self.slow: dict[str, float] = {}
        self.disk.on_call = self._on_call
        sizes = {"segment_bytes": 4096, "queue_file_bytes": 2000, "index_slots": 50, "index_entries": 200}
        self.store = Store(StoreOptions(root_dir="/store", **sizes), self.disk, self.clock)  # type: ignore[arg-type]

    def _on_call(self, operation: str, path: str) -> None:
        if "commitlog" in path:
            self.clock.advance(self.slow.get(operation, 0.0))

    def put(self) -> int:
        return self.store.put(AppendRequest("TopicA", 0, b"x" * 1000)).status


@pytest.mark.mission("MO-04")
@pytest.mark.parametrize(
    ("operation", "limit_s", "words", "level"),
    [
        ("allocate", 0.5, "put slowly", logging.WARNING),
        ("sync", 0.5, "flushed slowly", logging.WARNING),
        ("allocate", 0.01, "created segment slowly", logging.INFO),
    ],
)
def test_what_takes_just_over_its_limit_is_logged_with_the_figure(
    caplog: pytest.LogCaptureFixture, operation: str, limit_s: float, words: str, level: int
) -> None:
    caplog.set_level(logging.INFO)
    for over_ms, lines in ((0, 0), (1, 1)):
        bench = SlowBench()
        bench.slow[operation] = limit_s + over_ms / 1000
        caplog.clear()
        assert bench.put() == PutStatus.OK
        bench.store.flush_now()
        bench.slow.clear()
        found = [it for it in caplog.records if words in it.getMessage()]
        assert len(found) == lines, caplog.text
        if found:
            assert f"took_ms={limit_s * 1000 + 1:.0f}" in found[0].getMessage()
            assert found[0].levelno == level
        bench.store.close()


@pytest.mark.mission("MO-04")
def test_a_hundred_thousand_refusals_are_two_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with running_broker(tmp_path, ManualClock()) as broker:
            add_topic(broker, "TopicA")
            broker.rooms.families["send"].waiting = broker.rooms.families["send"].waiting_max
            peer = DirectPeer(broker.server)
            frame = encode(send_request("TopicA"))
            caplog.clear()
            for _ in range(1000):
                await peer.feed_in_turn(frame * 100)
            refused = [answer for answer in peer.answers if answer.code == Response.SYSTEM_BUSY]
            assert len(refused) == broker.rooms.families["send"].refused == 100_000
            lines = [it.getMessage() for it in caplog.records if it.getMessage().startswith("refuse request")]
            assert len(lines) == 2
            assert lines[1].endswith("seen=50001")
            broker.rooms.families["send"].waiting = 0
            peer.leave()

    run(main(), timeout_s=120)


@pytest.mark.mission("MO-04")
def test_refused_puts_are_thinned_too(caplog: pytest.LogCaptureFixture) -> None:
    bench = SlowBench()
    bench.store.log.closed = "for this test"
    caplog.clear()
    for _ in range(100_000):
        bench.put()
    lines = [it.getMessage() for it in caplog.records if it.getMessage().startswith("refused put")]
    assert len(lines) == 2
    bench.store.close()


async def test_the_gate_knows_the_store_of_a_running_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert isinstance(broker, Broker)
        assert broker.rooms.gate.log is broker.store.log
        assert not broker.rooms.gate.is_replica
