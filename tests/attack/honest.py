"""An honest client beside an attack, as a process of its own: it does the same small thing over and over.

    python -m tests.attack.honest broker PORT        send a message, pull it, say a heartbeat
    python -m tests.attack.honest nameserver PORT    ask for a route, refresh a registration
    stdin   `begin` counts from now on; `report` prints one line of JSON; end of file ends it

It comes from `ADDRESS`, the attackers from another one, and connects anew every `ROUNDS_A_LINK` rounds: an attack that
only keeps newcomers out is seen too. Everything is counted: rounds, refusals (with the first of them), and the worst
time of one request.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

from cometmq.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, encode, request
from cometmq.wire.frame import FrameSplitter
from tests.nameserver.support import registration
from tests.support.brokers import pull_request, send_request

ADDRESS = "127.0.0.2"
PAUSE_S = 0.003
PATIENCE_S = 60.0
ROUNDS_A_LINK = 20
TOPIC = "HonestTopic"
GROUP = "honest"


class Honest:
    def __init__(self, kind: str, port: int) -> None:
        self.port = port
        self.round = self.serve_broker if kind == "broker" else self.serve_nameserver
        self.lock = threading.Lock()
        self.link: socket.socket | None = None
        self.splitter = FrameSplitter()
        self.offset = 0
        self.reset()

    def reset(self) -> None:
        self.served = 0
        self.refused = 0
        self.worst_s = 0.0
        self.asked_s = 0.0
        self.first_refusal = ""

    def run(self) -> None:
        rounds = 0
        while True:
            try:
                if rounds % ROUNDS_A_LINK == 0:
                    self.connect()
                self.round()
                rounds += 1
            except OSError as error:
                self.note(f"{type(error).__name__}: {error}")
                rounds = 0
                time.sleep(0.05)
            time.sleep(PAUSE_S)

    def connect(self) -> None:
        if self.link is not None:
            self.link.close()
        began_s = time.monotonic()
        self.link = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S, (ADDRESS, 0))
        self.splitter = FrameSplitter()
        self.took(time.monotonic() - began_s)

    def note(self, refusal: str) -> None:
        with self.lock:
            self.refused += 1
            self.first_refusal = self.first_refusal or refusal[:300]

    def took(self, seconds: float) -> None:
        with self.lock:
            self.worst_s = max(self.worst_s, seconds)

    def call(self, command: Command) -> Command:
        assert self.link is not None
        self.asked_s = began_s = time.monotonic()
        self.link.sendall(encode(command))
        answers: list[Command] = []
        while not answers:
            data = self.link.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            answers = [answer for answer in self.splitter.feed(data) if answer.is_response]
        self.asked_s = 0.0
        self.took(time.monotonic() - began_s)
        return answers[0]

    def expect(self, command: Command, *codes: int) -> Command:
        answer = self.call(command)
        if answer.code in codes:
            with self.lock:
                self.served += 1
        else:
            self.note(f"request {command.code}: code {answer.code} {answer.remark}")
        return answer

    def serve_broker(self) -> None:
        sent = self.expect(send_request(TOPIC, b"honest"), 0)
        offset = int(sent.ext.get("queueOffset", -1))
        if offset >= 0:
            self.expect(pull_request(TOPIC, 0, offset, group=GROUP, suspend_ms=15_000), 0)
        subscription = SubscriptionData(topic=TOPIC, sub_string="*", sub_version=1)
        consumer = ConsumerData(GROUP, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", [subscription])
        body = HeartbeatData(client_id="honest-client", consumer_data_set=[consumer]).encode()
        self.expect(request(Request.HEART_BEAT, {}, body), 0)

    def serve_nameserver(self) -> None:
        self.expect(registration(TOPIC, f"{TOPIC}2", broker_name="honest-broker", broker_addr="10.9.9.9:10911"), 0)
        self.expect(request(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}), 0)

    def report(self) -> str:
        with self.lock:
            pending_s = time.monotonic() - self.asked_s if self.asked_s else 0.0
            return json.dumps(
                {
                    "served": self.served,
                    "refused": self.refused,
                    "worst_s": max(self.worst_s, pending_s),
                    "first_refusal": self.first_refusal,
                }
            )


def main() -> None:
    honest = Honest(sys.argv[1], int(sys.argv[2]))
    threading.Thread(target=honest.run, daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "begin":
            with honest.lock:
                honest.reset()
            print("{}", flush=True)
        else:
            print(honest.report(), flush=True)


if __name__ == "__main__":
    main()
