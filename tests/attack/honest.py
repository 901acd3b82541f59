"""An honest client beside an attack, as a process of its own: it does the same small thing over and over.

    python -m tests.attack.honest broker PORT        send a message, pull it, say a heartbeat
    python -m tests.attack.honest nameserver PORT    ask for a route, refresh a registration
    python -m tests.attack.honest grpc PORT          send a message, receive it, acknowledge it
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
from typing import TypeVar

from google.protobuf.message import Message

from cometmq.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, encode, request
from cometmq.wire.frame import FrameSplitter
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2 import frames as h2
from tests.nameserver.support import registration
from tests.support import grpc
from tests.support.brokers import pull_request, send_request
from tests.support.http2 import GREETING, Frames, call, call_headers, frame, header_block, prefixed

ADDRESS = "127.0.0.2"
PAUSE_S = 0.003
PATIENCE_S = 60.0
ROUNDS_A_LINK = 20
TOPIC = "HonestTopic"
GROUP = "honest"

M = TypeVar("M", bound=Message)


class Honest:
    def __init__(self, kind: str, port: int) -> None:
        self.port = port
        rounds = {"broker": self.serve_broker, "nameserver": self.serve_nameserver, "grpc": self.serve_grpc}
        self.round = rounds[kind]
        self.is_grpc = kind == "grpc"
        self.frames = Frames()
        self.stream_id = 1
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
        if self.is_grpc:
            self.settle()
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

    # By gRPC

    def settle(self) -> None:
        """Become a consumer; the telemetry stream stays open."""
        assert self.link is not None
        self.frames, self.stream_id = Frames(), 1
        wide = frame(h2.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big"))
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = GROUP
        command = prefixed(pb.TelemetryCommand(settings=settings).SerializeToString())
        headers = header_block(call_headers("Telemetry"))
        opening = frame(h2.HEADERS, h2.END_HEADERS, 1, headers) + frame(h2.DATA, 0, 1, command)
        self.link.sendall(GREETING + wide + opening)
        while not self.frames.messages(1):
            self.read()

    def read(self) -> None:
        assert self.link is not None
        data = self.link.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self.frames.feed(data)

    def ask(self, rpc: str, asked: Message, answer: type[M], done: int = pb.OK) -> list[M]:
        assert self.link is not None
        self.stream_id += 2
        self.asked_s = began_s = time.monotonic()
        self.link.sendall(call(self.stream_id, rpc, asked.SerializeToString()))
        while self.frames.trailers(self.stream_id) is None:
            self.read()
        self.asked_s = 0.0
        self.took(time.monotonic() - began_s)
        found = [answer.FromString(it) for it in self.frames.messages(self.stream_id)]
        status = getattr(found[0], "status", None) if found else None
        if status is not None and status.code == done:
            with self.lock:
                self.served += 1
        else:
            self.note(f"{rpc}: {status}")
        return found

    def serve_grpc(self) -> None:
        self.ask("SendMessage", grpc.send_request(TOPIC, b"honest"), pb.SendMessageResponse)
        received = grpc.receive_request(TOPIC, GROUP)
        for row in self.ask("ReceiveMessage", received, pb.ReceiveMessageResponse):
            if row.HasField("message"):
                system = row.message.system_properties
                entry = pb.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle)
                names = {"group": pb.Resource(name=GROUP), "topic": pb.Resource(name=TOPIC)}
                self.ask("AckMessage", pb.AckMessageRequest(entries=[entry], **names), pb.AckMessageResponse)

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
