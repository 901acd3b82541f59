"""A member of a consumer group in a process of its own, so that a test can kill it.

    python -m tests.compat.harness.member NAMESRV TOPIC GROUP concurrent|ordered

It writes one JSON object a line: {"queue", "offset", "body", "at"} for each message that it handles, `at` in
microseconds since 1970. A line on its input is answered with {"owned": [queue ids]}; the end of the input ends it in
good order, and its last line is {"left": true}.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cometmq.client.client import Client
from cometmq.client.messages import Message
from cometmq.client.options import StartFrom
from tests.compat.harness.build import REPO
from tests.compat.harness.processes import Child, ChildFailed
from tests.compat.harness.servers import python_path

ANSWER_TIMEOUT_S = 60.0


class PythonMember(Child):
    """What a test has in hand: `rows` so far, `owned()` queues, `leave()`, and `kill()` of every child."""

    def __init__(self, directory: Path, name: str, namesrv: str, topic: str, group: str, kind: str) -> None:
        super().__init__(name, directory)
        self.env = {"PYTHONPATH": f"{python_path()}:{REPO}", "HOME": str(self.home)}
        self.rows: list[dict[str, Any]] = []
        self._arguments = [namesrv, topic, group, kind]
        self._owned: list[list[int]] = []
        self._left = False
        self._changed = threading.Condition()
        self._listener = threading.Thread()

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "tests.compat.harness.member", *self._arguments]

    def join(self) -> PythonMember:
        self.launch(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process is not None
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()
        return self

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        super()._forget(process)
        self._listener.join()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                self._hear(json.loads(line) if line.endswith(b"\n") else {})  # a killed one may stop within a line

    def _hear(self, said: dict[str, Any]) -> None:
        with self._changed:
            if "owned" in said:
                self._owned.append(said["owned"])
            elif "left" in said:
                self._left = True
            elif said:
                self.rows.append(said)
            self._changed.notify_all()

    def owned(self) -> list[int]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        with self._changed:
            count = len(self._owned)
            process.stdin.write(b"\n")
            process.stdin.flush()
            if not self._changed.wait_for(lambda: len(self._owned) > count, ANSWER_TIMEOUT_S):
                raise ChildFailed(f"{self.name} does not answer\n{self.log_tail()}")
            return self._owned[-1]

    def leave(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        with self._changed:
            if not self._changed.wait_for(lambda: self._left, ANSWER_TIMEOUT_S):
                raise ChildFailed(f"{self.name} does not leave\n{self.log_tail()}")


async def main(namesrv: str, topic: str, group: str, kind: str) -> None:
    def say(said: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()

    async with Client(namesrv, heartbeat_interval=2.0, call_timeout=10.0) as client:
        consumer = client.push_consumer(group, start=StartFrom.FIRST, lock_interval=1.0, rebalance_retry=0.2)

        @consumer.on(topic, ordered=kind == "ordered")
        async def handle(message: Message[bytes]) -> None:
            queue = message.queue
            assert queue is not None
            at = time.time_ns() // 1000
            say({"queue": queue.queue_id, "offset": message.offset, "body": message.body.decode(), "at": at})

        async with consumer:
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
            while await reader.readline():
                say({"owned": [queue.queue_id for queue in consumer.queues if queue.topic == topic]})
            transport.close()
    say({"left": True})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
