"""A SYNC_MASTER of ours dies under the load of a Java producer, and its replica takes over: nothing acked is lost.

    kill     SIGKILL of the master
    freeze   SIGSTOP of the master; the replica takes over, and the old master wakes up and goes on for a while
    cut      the link between them breaks and stays broken; then the master is killed
    both     SIGKILL of both at once; both come back in their roles

Taking over is a restart with another brokerRole. The old master's store is emptied before it becomes the replica: what
it took and could not replicate was never acked.

    COMETMQ_TAKEOVERS=6    how often all of these happen (once; 6 times in make soak)

What was acked and found is printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from tests.compat.harness import remoting
from tests.compat.harness.processes import wait_until
from tests.compat.harness.servers import Broker, CometBroker, CometNameServer
from tests.compat.harness.shell import JavaShell, Run
from tests.support.length import count
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.interop

GATE = ("kill", "freeze", "kill", "cut", "kill", "both", "kill")
ROUNDS = GATE * count("COMETMQ_TAKEOVERS", 1, 1, 6)
ACKS_BETWEEN = 30
WAIT_S = 60.0
GET_HA_STATUS = 907
GET_TOPIC_CONFIG = 351

SEND_ON = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_takeover"));
    p.setNamesrvAddr(args[0]);
    p.setPollNameServerInterval(300);
    p.setSendMsgTimeout(2_000);
    p.setRetryTimesWhenSendFailed(0);
    p.start();
    AtomicInteger next = new AtomicInteger();
    AtomicBoolean over = new AtomicBoolean();
    Runnable work = () -> {
        while (!over.get()) {
            int number = next.getAndIncrement();
            try {
                SendResult r = p.send(new Message(args[1], (number + " " + "x".repeat(number * 37 % 900)).getBytes()));
                if (r.getSendStatus() == SendStatus.SEND_OK) emit("number", number);
                else Thread.sleep(20);
            } catch (Exception e) {
                try {
                    Thread.sleep(50);
                } catch (InterruptedException stop) {
                    return;
                }
            }
        }
    };
    Thread[] senders = new Thread[3];
    for (int i = 0; i < senders.length; i++) (senders[i] = new Thread(work)).start();
    awaitStop();
    over.set(true);
    for (Thread t : senders) t.join();
"""
READ_NUMBERS = """
    DefaultMQPullConsumer c = use(new DefaultMQPullConsumer("takeover_reader"));
    c.setNamesrvAddr(args[0]);
    c.start();
    for (MessageQueue q : c.fetchSubscribeMessageQueues(args[1])) {
        for (long next = 0; ; ) {
            PullResult r = c.pull(q, "*", next, 32);
            if (r.getPullStatus() != PullStatus.FOUND) break;
            next = r.getNextBeginOffset();
            StringBuilder numbers = new StringBuilder();
            for (MessageExt m : r.getMsgFoundList()) numbers.append(new String(m.getBody()).split(" ")[0]).append(' ');
            emit("numbers", numbers.toString());
        }
    }
"""


class Links:
    """The link to each broker's log, in a thread with its own loop; `broken` breaks all of them."""

    def __init__(self, ports: list[int]) -> None:
        self.addresses: list[str] = []
        self._proxies: list[TcpProxy] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(ports,), daemon=True)

    def _run(self, ports: list[int]) -> None:
        self._loop.run_until_complete(self._serve(ports))
        self._loop.close()

    async def _serve(self, ports: list[int]) -> None:
        async with AsyncExitStack() as stack:
            for port in ports:
                proxy = await stack.enter_async_context(TcpProxy.before(port))
                self._proxies.append(proxy)
                self.addresses.append(proxy.address)
            self._ready.set()
            await self._over.wait()

    @classmethod
    @contextmanager
    def before(cls, ports: list[int]) -> Iterator[Links]:
        links = cls(ports)
        links._thread.start()
        assert links._ready.wait(20)
        try:
            yield links
        finally:
            links._loop.call_soon_threadsafe(links._over.set)
            links._thread.join(20)

    def set_broken(self, broken: bool) -> None:
        self._loop.call_soon_threadsafe(self._set_broken, broken)

    def _set_broken(self, broken: bool) -> None:
        for proxy in self._proxies:
            proxy.cut_requests = broken
            if broken:
                proxy.cut()


class Duel:
    """Two brokers of one name that take turns as the master."""

    def __init__(self, directory: Path, namesrv: str, topic: str) -> None:
        self.topic = topic
        settings: dict[str, object] = {
            "brokerFastFailureEnable": False,
            "flushDiskType": "SYNC_FLUSH",
            # All of it in one segment: an empty replica gets the last one only.
            "mappedFileSizeCommitLog": 64 << 20,
        }
        self.nodes: list[Broker] = []
        for name in ("one", "two"):
            (directory / name).mkdir()
            self.nodes.append(CometBroker(directory / name, namesrv, settings))

    def give_roles(self, links: Links, master: int) -> None:
        replica = 1 - master
        self.master, self.replica = self.nodes[master], self.nodes[replica]
        self.master.settings |= {"brokerRole": "SYNC_MASTER", "brokerId": 0, "haMasterAddress": ""}
        self.replica.settings |= {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": links.addresses[master]}

    def await_sync(self) -> None:
        """The replica keeps up, and could take over: it knows the topic."""

        def in_sync() -> bool:
            return bool(remoting.call(self.master.address, GET_HA_STATUS).json()["inSyncSlaveNums"] == 1)

        def has_topic() -> bool:
            return remoting.call(self.replica.address, GET_TOPIC_CONFIG, {"topic": self.topic}).code == 0

        wait_until(in_sync, "replica in sync", WAIT_S)
        wait_until(has_topic, "topic at the replica", WAIT_S)

    def take_over(self, links: Links) -> None:
        """The replica becomes the master; the old master, when it is gone, an empty replica."""
        self.replica.stop()
        self.give_roles(links, self.nodes.index(self.replica))
        self.master.start()

    def rejoin(self) -> None:
        shutil.rmtree(self.replica.store)
        self.replica.start()


def acked(producer: Run) -> set[int]:
    return {row["number"] for row in list(producer.rows)}


def test_takeovers_under_load_lose_nothing_that_was_acked(
    java55: JavaShell, jars: None, tmp_path: Path, topic: str
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    with CometNameServer(tmp_path).start() as namesrv:
        duel = Duel(tmp_path, namesrv.address, topic)
        with Links.before([node.port + 1 for node in duel.nodes]) as links, duel.nodes[0], duel.nodes[1]:
            duel.give_roles(links, 0)
            duel.master.start()
            remoting.create_topic(duel.master.address, topic, queues=4)
            duel.replica.start()
            duel.await_sync()
            producer = java55.begin(SEND_ON, namesrv.address, topic)
            for how in ROUNDS:
                producer.take(ACKS_BETWEEN + chance.randrange(ACKS_BETWEEN), timeout_s=WAIT_S)
                play(how, duel, links)
                duel.await_sync()
            producer.take(ACKS_BETWEEN, timeout_s=WAIT_S)
            producer.stop()
            read = java55.run(READ_NUMBERS, namesrv.address, topic).rows
            found = {int(number) for row in read for number in row["numbers"].split()}
            promised = acked(producer)
            assert promised <= found, f"lost {sorted(promised - found)[:20]} of {len(promised)}, seed {seed}"
            print(f"acked {len(promised)}, found {len(found)}")


def play(how: str, duel: Duel, links: Links) -> None:
    old = duel.master
    if how == "both":
        os.killpg(duel.master.pid, signal.SIGKILL)
        os.killpg(duel.replica.pid, signal.SIGKILL)
        for node in duel.nodes:
            node.kill()
        duel.master.start()
        duel.replica.start()
        return
    if how == "cut":
        links.set_broken(True)
        time.sleep(0.2)
    if how == "freeze":
        os.killpg(old.pid, signal.SIGSTOP)
        duel.take_over(links)
        os.killpg(old.pid, signal.SIGCONT)
        time.sleep(1.0)
        old.kill()
    else:
        old.kill()
        links.set_broken(False)
        duel.take_over(links)
    duel.rejoin()
