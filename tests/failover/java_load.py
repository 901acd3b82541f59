"""A stock Java 5.5.0 producer and an ordered consumer as load for a set; what they say becomes a `Load`.

Each of four threads sends its next number to a queue of its own when the last one was acked. Times are those of
CLOCK_MONOTONIC, which both System.nanoTime and time.monotonic read on Linux.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from cometmq import Client
from cometmq.errors import CometError
from tests.compat.harness.shell import JavaShell, Run
from tests.failover.real_set import TOPIC, WORKERS, Load

LOOK_S = 0.01
START_S = 60.0

SEND = """
    DefaultMQProducer p = use(new DefaultMQProducer("set_load"));
    p.setNamesrvAddr(args[0]);
    p.setPollNameServerInterval(Integer.parseInt(args[2]));
    p.setRetryTimesWhenSendFailed(Integer.parseInt(args[3]));
    p.setSendMsgTimeout(Integer.parseInt(args[4]));
    p.start();
    AtomicBoolean over = new AtomicBoolean();
    Thread[] senders = new Thread[Integer.parseInt(args[5])];
    for (int i = 0; i < senders.length; i++) {
        int queue = i;
        (senders[i] = new Thread(() -> {
            int number = 0;
            MessageQueue q = new MessageQueue(args[1], args[6], queue);
            while (!over.get()) {
                try {
                    SendResult r = p.send(new Message(args[1], (queue + ":" + number).getBytes()), q);
                    if (r.getSendStatus() == SendStatus.SEND_OK) {
                        emit("at", System.nanoTime(), "queue", queue, "offset", r.getQueueOffset(), "number", number++);
                    } else {
                        emit("unknown", r.getSendStatus());
                        Thread.sleep(20);
                    }
                    Thread.sleep(1);
                } catch (InterruptedException stop) {
                    return;
                } catch (Exception e) {
                    emit("error", String.valueOf(e.getMessage()), "at", System.nanoTime());
                    try {
                        Thread.sleep(20);
                    } catch (InterruptedException stop) {
                        return;
                    }
                }
            }
        })).start();
    }
    awaitStop();
    over.set(true);
    for (Thread t : senders) t.join();
"""

CONSUME = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer("set_judge"));
    c.setNamesrvAddr(args[0]);
    c.setPollNameServerInterval(Integer.parseInt(args[2]));
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
        for (MessageExt m : messages) {
            emit("queue", m.getQueueId(), "offset", m.getQueueOffset(), "body", new String(m.getBody()));
        }
        return ConsumeOrderlyStatus.SUCCESS;
    });
    c.start();
    awaitStop();
"""


class JavaLoad(Load):
    """`poll_ms`: how often clients read routes; a stock client does each 30 s, and sends again twice."""

    def __init__(self, java: JavaShell, name_server: str, *, poll_ms: int, retries: int, name: str = "a") -> None:
        super().__init__()
        self.consumer = java.begin(CONSUME, name_server, TOPIC, poll_ms)
        timeout_ms = 3_000 if retries else 1_000
        self.producer = java.begin(SEND, name_server, TOPIC, poll_ms, retries, timeout_ms, WORKERS, name)
        self.back: list[str] = []
        self._sent = self._seen = 0
        self._last: dict[int, int] = {}

    def pump(self) -> None:
        """Take over what was said since."""
        rows = self.producer.rows
        while self._sent < len(rows):
            row = rows[self._sent]
            self._sent += 1
            if "number" in row:
                queue, number = row["queue"], row["number"]
                self.acked.append((row["at"] / 1e9, queue, row["offset"], b"%d:%d" % (queue, number)))
            elif "unknown" in row:
                self.unknown += 1
            else:
                self.errors.append(f"{row['at'] / 1e9:.3f} {row['error']}"[:300])
        rows = self.consumer.rows
        while self._seen < len(rows):
            row = rows[self._seen]
            self._seen += 1
            self._note(row["queue"], row["offset"], row["body"].encode("latin-1"))

    def _note(self, queue: int, offset: int, body: bytes) -> None:
        """A message may come again; one that was not there yet comes after those before it."""
        known = self.seen.setdefault((queue, offset), body)
        if known != body:
            self.changed.append(f"{queue} {offset}: {known!r} and {body!r}")
        last = self._last.get(queue, -1)
        if offset > last + 1:
            self.back.append(f"queue {queue}: {offset} after {last}")
        self._last[queue] = max(last, offset)

    def stop(self) -> None:
        for run in (self.producer, self.consumer):
            _stop(run)
        self.pump()


def _stop(run: Run) -> None:
    if not run.ended:
        run.stop()


async def with_java_load(
    java: JavaShell, name_server: str, faults: Callable[[JavaLoad], Awaitable[None]], *, poll_ms: int, retries: int
) -> JavaLoad:
    """Run `faults` beside a Java producer and consumer; ends when the consumer has seen what was acked."""
    await make_topic(name_server)
    load = JavaLoad(java, name_server, poll_ms=poll_ms, retries=retries)
    pumping = asyncio.create_task(_pump(load))
    try:
        async with asyncio.timeout(START_S):
            while len(load.acked) < 50:  # noqa: ASYNC110 - it comes from another process
                await asyncio.sleep(LOOK_S)
        await faults(load)
        await asyncio.to_thread(_stop, load.producer)
        load.pump()
        await _drained(load)
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)
        await asyncio.to_thread(load.stop)
    return load


async def _drained(load: JavaLoad) -> None:
    """All that was acked has come; who takes too long is judged by what it saw."""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            while not {(queue, offset) for _, queue, offset, _ in load.acked} <= load.seen.keys():  # noqa: ASYNC110
                await asyncio.sleep(0.2)


async def _pump(load: JavaLoad) -> None:
    while True:
        load.pump()
        await asyncio.sleep(LOOK_S)


async def make_topic(name_server: str) -> None:
    async with Client(name_server) as client, client.admin() as admin:
        for _ in range(200):
            with suppress(CometError):
                await admin.create_topic(TOPIC, queues=WORKERS)
                return
            await asyncio.sleep(0.1)
    raise AssertionError("the topic could not be made within 20 s")
