"""The sync client against an embedded cluster: everything a program without asyncio does."""

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cometmq import StartFrom, Tx, json_codec
from cometmq.client.loop_thread import LoopThread
from cometmq.errors import ConfigError, NotRunning
from cometmq.sync import Client
from cometmq.testing import SyncCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: SyncCluster) -> Iterator[Client]:
    before = set(threading.enumerate())
    with Client(cluster.namesrv) as client:
        yield client
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith("asyncio_"):
            thread.join(20)  # those of handlers end soon after the last of them
            assert not thread.is_alive(), thread.name


def test_messages_are_sent_and_looped_over(cluster: SyncCluster, client: Client) -> None:
    cluster.create_topic("plain", queues=2)
    with client.producer("plain-pg", codec=json_codec) as producer:
        receipt = producer.send("plain", {"id": 0}, tag="t", keys=["k"])
        futures = [producer.send_soon("plain", {"id": number}) for number in range(1, 5)]
        assert len({future.result(20).id for future in futures}) == 4
        receipts = producer.send_many("plain", ({"id": number} for number in range(5, 10)))
        producer.send_oneway("plain", {"id": 10}).result(20)
        producer.flush()
    assert receipt.topic == "plain"
    assert len(receipts) == 5
    with client.consumer("plain-cg", "plain", codec=json_codec, start=StartFrom.FIRST) as consumer:
        found = []
        for message in consumer.iter(timeout=20):
            found.append(message.value["id"])
            if len(found) == 11:
                break
    assert sorted(found) == list(range(11))
    with client.admin() as admin:
        assert sum(lag.behind for lag in admin.group_lag("plain-cg", "plain").values()) == 0


def test_a_program_says_itself_what_is_done(cluster: SyncCluster, client: Client) -> None:
    cluster.create_topic("manual", queues=1)
    with client.producer("manual-pg") as producer:
        for body in (b"good", b"bad"):
            producer.send("manual", body)
    with client.consumer("manual-cg", ["manual"], auto_ack=False, start=StartFrom.FIRST) as consumer:
        for _ in range(2):
            message = consumer.receive(timeout=20)
            assert message is not None
            if message.body == b"good":
                message.ack()
                message.ack()
            else:
                message.dead_letter()
        assert consumer.receive(timeout=0.05) is None
    with client.admin() as admin:
        assert [letter.body for letter in admin.dead_letters("manual-cg")] == [b"bad"]


def test_a_message_whose_loop_fails_comes_again_and_one_before_it_does_not(
    cluster: SyncCluster, client: Client
) -> None:
    cluster.create_topic("failing", queues=1)
    with client.producer("failing-pg") as producer:
        for number in range(3):
            producer.send("failing", str(number).encode())

    def fail_at_the_second() -> None:
        with client.consumer("failing-cg", "failing", start=StartFrom.FIRST) as consumer:
            for message in consumer.iter(timeout=20):
                if message.body == b"1":
                    raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail_at_the_second()
    with client.consumer("failing-cg", "failing") as consumer:
        first = consumer.receive(timeout=20)
        assert first is not None
        assert first.body == b"2", "what was done and what was sent back does not come from the queue again"
        first.ack()
    cluster.advance(11)  # the first retry comes after ten seconds
    deadline_s = time.monotonic() + 20
    while [message.body for message in cluster.messages("%RETRY%failing-cg")] != [b"1"]:
        assert time.monotonic() < deadline_s, "it was not sent back"
        time.sleep(0.02)


def test_threads_share_the_messages_and_finish_theirs_when_the_consumer_stops(
    cluster: SyncCluster, client: Client
) -> None:
    cluster.create_topic("shared", queues=2)
    with client.producer("shared-pg") as producer:
        for number in range(20):
            producer.send("shared", str(number).encode())
    seen: list[int] = []
    with client.consumer("shared-cg", "shared", start=StartFrom.FIRST) as consumer:

        def loop() -> None:
            for message in consumer:
                time.sleep(0.01)
                seen.append(int(message.body))

        threads = [threading.Thread(target=loop) for _ in range(3)]
        for thread in threads:
            thread.start()
        deadline_s = time.monotonic() + 20
        while len(seen) < 20 and time.monotonic() < deadline_s:
            time.sleep(0.01)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(seen) == list(range(20))
    with client.admin() as admin:
        assert sum(lag.behind for lag in admin.group_lag("shared-cg", "shared").values()) == 0


def test_handlers_run_in_threads_until_the_consumer_is_stopped(cluster: SyncCluster, client: Client) -> None:
    cluster.create_topic("pushed", queues=1)
    with client.producer("pushed-pg") as producer:
        for number in range(5):
            producer.send("pushed", str(number).encode())
    app = client.push_consumer("pushed-cg", start=StartFrom.FIRST, concurrency=2)
    seen: list[str] = []
    threads: set[str] = set()
    complete = threading.Event()

    @app.on("pushed")
    def handle(text: str) -> None:
        threads.add(threading.current_thread().name)
        seen.append(text)
        if len(seen) == 5:
            complete.set()

    runner = threading.Thread(target=app.run)
    runner.start()
    assert complete.wait(25)
    app.stop()
    runner.join(25)
    assert not runner.is_alive()
    assert sorted(seen) == ["0", "1", "2", "3", "4"]
    assert threading.main_thread().name not in threads


def test_pulling_seeking_and_committing(cluster: SyncCluster, client: Client) -> None:
    cluster.create_topic("pulled", queues=1)
    with client.producer("pulled-pg") as producer:
        for number in range(5):
            producer.send("pulled", str(number).encode())
    with client.pull_consumer("pulled-cg", auto_commit=False) as consumer:
        (queue,) = consumer.queues("pulled")
        consumer.assign([queue])
        consumer.seek(queue, consumer.BEGIN)
        batch = consumer.poll(max_messages=3, timeout=20)
        assert [message.body for message in batch] == [b"0", b"1", b"2"]
        consumer.commit(batch.positions)
        assert consumer.committed(queue) == 3
        consumer.pause(queue)
        assert not consumer.poll(timeout=0)
        consumer.resume(queue)


def test_a_transaction_commits_when_left_and_rolls_back_when_it_fails(cluster: SyncCluster, client: Client) -> None:
    cluster.create_topic("tx", queues=1)
    with client.transaction_producer("tx-pg", check=lambda _: Tx.UNKNOWN) as producer:
        with producer.begin("tx", b"done") as transaction:
            assert transaction.message.body == b"done"
        with pytest.raises(RuntimeError, match="on purpose"), producer.begin("tx", b"failed"):
            raise RuntimeError("on purpose")
        producer.send("tx", b"after")
    with client.consumer("tx-cg", "tx", start=StartFrom.FIRST) as consumer:
        bodies = {message.body for _, message in zip(range(2), consumer.iter(timeout=20), strict=False)}
    assert bodies == {b"done", b"after"}


def test_administration_answers_with_the_same_values(client: Client) -> None:
    with client.admin() as admin:
        made = admin.create_topic("administered", queues=3)
        assert made == admin.describe_topic("administered")
        assert "administered" in admin.topics()
        assert [state.is_up for state in admin.cluster_state()] == [True]
        (queue, *_) = admin.topic_queues("administered")
        assert list(admin.read(queue)) == []


def test_life_is_checked(cluster: SyncCluster) -> None:
    client = Client(cluster.namesrv)
    producer = client.producer("pg")
    with pytest.raises(NotRunning, match="use it with `with`"):
        producer.start()
    with client:
        pass
    client.stop()
    with pytest.raises(NotRunning):
        producer.send("plain", b"x")
    with pytest.raises(ConfigError, match="is not host:port"):
        Client("nonsense")


def test_the_loop_thread_cannot_wait_for_itself() -> None:
    thread = LoopThread()
    thread.start()

    async def nothing() -> None: ...

    async def wait_for_itself() -> None:
        thread.run(nothing())

    with pytest.raises(NotRunning, match="cannot wait for itself"):
        thread.run(wait_for_itself())
    thread.stop()
    thread.stop()


def test_ctrl_c_at_any_step_of_a_call_leaves_the_loop_at_work() -> None:
    thread = LoopThread()
    thread.start()
    started = set[int]()
    ended = set[int]()
    answers = queue.SimpleQueue[int]()

    async def work(number: int) -> int:
        started.add(number)
        try:
            await asyncio.sleep(0.01)
        finally:
            ended.add(number)
        return number

    steps = 0
    while True:
        errand = work(steps)
        if not _is_interrupted(partial(thread.run, errand), steps):
            break
        errand.close()  # it may be too early for anybody to know of it
        assert started == ended, f"something goes on behind the caller's back after step {steps}"
        threading.Thread(target=lambda: answers.put(thread.run(work(-1))), daemon=True).start()
        assert answers.get(timeout=30) == -1
        steps += 1
    assert steps > 20
    thread.stop()


def _is_interrupted(call: Callable[[], object], step: int) -> bool:
    """Whether the call came to so many steps of the interpreter, where Ctrl-C is then played."""
    left = step

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).name not in ("loop_thread.py", "threading.py", "_base.py"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


PROGRAM = """
import sys
from cometmq.sync import Client

with Client(sys.argv[1]) as client, client.consumer("ctrl-c", "interrupted") as consumer:
    try:
        print("waiting", flush=True)
        for message in consumer:
            print(message.body)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print("stopped", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_the_wait_and_the_rest_is_stopped_in_order(cluster: SyncCluster) -> None:
    cluster.create_topic("interrupted", queues=1)
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, cluster.namesrv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)
        out, errors = program.communicate(timeout=30)
    finally:
        program.kill()
        program.wait()
    assert out == "interrupted\nstopped\n", errors
    assert "Traceback" not in errors
    assert program.returncode == 0
