"""Servers that lie, for a program that uses the Python client: a fake name server and, at the same port, a fake broker.

    answer(code, request) -> Command: what the liar says;  None: nothing, ever;  bytes: written as they are

The victim is a process of its own (victim.py). Its three numbers: the longest turn of its loop, peak memory, and how an
application task in it was served meanwhile. A client may take longer turns than a server (`TURN_MS`): it has asked.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cometmq.wire.codes import Request
from cometmq.wire.command import Command, encode, reply
from cometmq.wire.compression import compress
from cometmq.wire.frame import FrameSplitter
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.sysflag import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from tests.attack.broker_attacks import colliding_keys
from tests.attack.corpus import OUTCOMES, PATIENCE_S, ROOT, WORST_S, Outcome
from tests.support.length import SOAK

TURN_MS = 400.0
GROWTH_MIB = 400

Answer = Command | bytes | None
Lie = Callable[["Liar", Command], Answer]


@dataclass(frozen=True, slots=True)
class ClientAttack:
    name: str
    lie: Lie
    growth_mib: int


CLIENT_ATTACKS: list[ClientAttack] = []


def lie(growth_mib: int = GROWTH_MIB) -> Callable[[Lie], Lie]:
    def enter(function: Lie) -> Lie:
        CLIENT_ATTACKS.append(ClientAttack(getattr(function, "__name__", "lie"), function, growth_mib))
        return function

    return enter


def size(whole: int) -> int:
    return whole if SOAK else max(1, whole // 8)


class Liar:
    """One listening socket, a thread for each connection."""

    def __init__(self, tell: Lie) -> None:
        self._tell = tell
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.asked = 0
        self.clients: set[str] = set()
        self.by_code: dict[int, int] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        splitter = FrameSplitter()
        with contextlib.suppress(OSError), link:
            while data := link.recv(1 << 16):
                for request in splitter.feed(data):
                    self.asked += 1
                    self.by_code[request.code] = self.by_code.get(request.code, 0) + 1
                    answer = self._tell(self, request)
                    if isinstance(answer, Command):
                        answer.opaque = request.opaque
                        link.sendall(encode(answer))
                    elif answer is not None:
                        link.sendall(answer)

    def route(self, request: Command, queues: int = 4) -> Command:
        """An honest route, to this liar as a broker."""
        body = {
            "brokerDatas": [{"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": self.address}}],
            "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": queues, "writeQueueNums": queues}],
        }
        return reply(request, body=json.dumps(body).encode())


def honest(liar: Liar, request: Command) -> Command:
    """What a broker without messages says, so that the client comes as far as the lie."""
    if request.code == Request.GET_ROUTEINFO_BY_TOPIC:
        return liar.route(request)
    if request.code == Request.HEART_BEAT:
        liar.clients.add(json.loads(request.body)["clientID"])
    if request.code == Request.GET_CONSUMER_LIST_BY_GROUP:
        return reply(request, body=json.dumps({"consumerIdList": sorted(liar.clients)[-1:]}).encode())
    return reply(request, ext={"offset": "0", "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"})


PULLS = (Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE)


@lie()
def a_server_that_never_answers(liar: Liar, request: Command) -> Answer:
    return None


@lie()
def a_server_that_answers_with_noise(liar: Liar, request: Command) -> Answer:
    return os.urandom(4096)


@lie()
def every_answer_is_a_large_body(liar: Liar, request: Command) -> Answer:
    units = (b"[],", b"{},", b'"x",', b"1,", b'"a":1,')
    unit = units[liar.asked % len(units)]
    left, right = (b"{", b'"z":1}') if b":" in unit else (b"[", b"1]")
    names = (b"brokerDatas", b"topicList", b"consumerIdList", b"brokerAddrTable")
    name = names[liar.asked % len(names)]
    return reply(request, body=b'{"' + name + b'":' + left + unit * (size(12 << 20) // len(unit)) + right + b"}")


@lie()
def every_answer_has_colliding_keys(liar: Liar, request: Command) -> Answer:
    return reply(request, body=b'{"a":{' + colliding_keys(size(80_000)) + b"}}")


@lie()
def a_route_with_billions_of_queues(liar: Liar, request: Command) -> Answer:
    if request.code != Request.GET_ROUTEINFO_BY_TOPIC:
        return honest(liar, request)
    if liar.asked % 2:
        return liar.route(request, 2**31 - 1)
    return reply(request, body=b'{"orderTopicConf":"b:999999999;c:999999999"}')


@lie()
def a_route_to_everybody_else(liar: Liar, request: Command) -> Answer:
    if request.code != Request.GET_ROUTEINFO_BY_TOPIC:
        return honest(liar, request)
    brokers = [
        {"brokerName": f"b{number}", "brokerAddrs": {"0": f"127.0.0.1:{1 + number % 1000}"}}
        for number in range(size(8_000))
    ]
    queues = [{"brokerName": f"b{number}", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
              for number in range(size(8_000))]  # fmt: skip
    return reply(request, body=json.dumps({"brokerDatas": brokers, "queueDatas": queues}).encode())


@lie()
def a_route_with_names_that_are_paths(liar: Liar, request: Command) -> Answer:
    if request.code != Request.GET_ROUTEINFO_BY_TOPIC:
        return honest(liar, request)
    body = liar.route(request).body.replace(b'"b"', b'"../../b\\n"')
    return reply(request, body=body)


@lie()
def offsets_that_lead_nowhere(liar: Liar, request: Command) -> Answer:
    if request.code not in PULLS:
        return honest(liar, request)
    number = (2**63 - 1, -(2**63), 0, 5)[liar.asked % 4]
    code = (0, 19, 20, 21)[liar.asked // 4 % 4]
    fields = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
    return reply(request, code, ext=dict.fromkeys(fields, str(number)))


@lie(growth_mib=600)
def messages_that_are_bombs(liar: Liar, request: Command) -> Answer:
    if request.code not in PULLS:
        return honest(liar, request)
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "8", "minOffset": "0", "maxOffset": "8"}
    return reply(request, ext=fields, body=bombs())


@functools.cache
def bombs() -> bytes:
    """Below and above what a client takes in one message, in each compression."""
    within, beyond = bytes(60 << 20), bytes(size(1 << 30))
    bodies = [
        (compress(plain, kind), COMPRESSED | kind)
        for kind in (COMPRESSION_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD)
        for plain in (within, beyond)
    ]
    return b"".join(record(body, flag, number) for number, (body, flag) in enumerate(bodies))


def record(body: bytes, sys_flag: int, offset: int) -> bytes:
    host = (bytes((127, 0, 0, 1)), 1)
    return StoredMessage(
        0, 1, zlib.crc32(body) & 0x7FFFFFFF, 0, 0, offset, offset, sys_flag, 1, host, 1, host, 0, 0, body, "Topic", b""
    ).encode()


def play(attack: ClientAttack, home: Path) -> Outcome:
    if attack.lie is messages_that_are_bombs:
        bombs()  # made before anybody waits for them
    liar = Liar(attack.lie)
    with (home / "stderr").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.victim", liar.address],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready :0\n", (home / "stderr").read_text()
        before_kib = _peak_kib(process.pid)
        peak_kib = before_kib
        deadline_s = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline_s:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, AssertionError):
                peak_kib = max(peak_kib, _peak_kib(process.pid))
            time.sleep(0.02)
        text = process.stdout.readline()
        assert text, f"the victim came to no end: {(home / 'stderr').read_text()[-2000:]}"
        told = json.loads(text)
        exit_code = process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
        liar.close()
    outcome = Outcome(
        attack.name, told["cpu_s"] * 1000, told["wall_s"] * 1000, told["where"], (peak_kib - before_kib) / 1024,
        told["served"], 0, "", told["worst_s"], 0.0, exit_code,
    )  # fmt: skip
    OUTCOMES.append(outcome)
    print(f"asked {liar.by_code}")
    return outcome


def check(attack: ClientAttack, outcome: Outcome) -> None:
    faults = []
    if outcome.turn_ms > TURN_MS:
        where = " < ".join(reversed(outcome.where)) or "unknown"
        faults.append(f"a turn of the client's loop took {outcome.turn_ms:.0f} ms, at most {TURN_MS:.0f}: {where}")
    if outcome.growth_mib > attack.growth_mib:
        faults.append(f"memory grew by {outcome.growth_mib:.0f} MiB, at most {attack.growth_mib}")
    if outcome.worst_s > WORST_S:
        faults.append(f"the application waited {outcome.worst_s:.1f} s, at most {WORST_S}")
    if outcome.exit_code:
        faults.append(f"the victim ended with code {outcome.exit_code}")
    assert not faults, f"{outcome.line()}\n" + "\n".join(faults)


def _peak_kib(pid: int) -> int:
    found = re.search(r"^VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])
