"""How many frames a second one connection loop can answer: the ceiling above every broker figure.

    python benchmarks/net_echo.py [--body 1024] [--connections 4] [--window 64] [--seconds 5] [--form json]

A child process serves an echo handler that answers an empty body; this process is a client without any protocol code,
which keeps `window` frames under way per connection and counts answer bytes. Compiled or interpreted is decided by
PYTHONPATH, as everywhere: `PYTHONPATH=build/compiled python benchmarks/net_echo.py`.
"""

import argparse
import asyncio
import multiprocessing
import resource
import selectors
import socket
import time
from multiprocessing.connection import Connection as Pipe

from cometmq.net import connection as connection_module
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.loop import run
from cometmq.net.server import Server
from cometmq.wire.command import JSON, ROCKETMQ, Command, encode, reply, request

CODE = 310
EXT = {
    "a": "ProducerGroup", "b": "BenchmarkTopic", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000",
    "h": "0", "i": "UNIQ_KEY\x017F000001F1F018B4AAC2\x02WAIT\x01true\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
ANSWER_EXT = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "3", "queueOffset": "1"}


def echo(_: Connection, received: Command) -> Command:
    return reply(received, 0, None, ANSWER_EXT)


def serve(pipe: Pipe) -> None:
    async def main() -> None:
        dispatcher = Dispatcher()
        dispatcher.add(CODE, echo, Family("echo", 10_000))
        server = Server(dispatcher)
        await server.start("127.0.0.1", 0)
        pipe.send(server.port)
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        after = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send((after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime))
        await server.stop()

    run(main())


class Peer:
    """A socket that keeps `window` frames under way."""

    def __init__(self, port: int, frame: bytes, answer_bytes: int, window: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answered = 0
        self._frame = frame
        self._answer_bytes = answer_bytes
        self._half = max(1, window // 2)
        self._received_bytes = 0
        self._sent = 0
        for _ in range(2):
            self._send_half()

    def _send_half(self) -> None:
        self.socket.sendall(self._frame * self._half)
        self._sent += self._half

    def receive(self, buffer: bytearray) -> None:
        self._received_bytes += self.socket.recv_into(buffer)
        self.answered = self._received_bytes // self._answer_bytes
        while self._sent - self.answered <= self._half:
            self._send_half()


def drive(peers: list[Peer], seconds: float) -> tuple[int, float]:
    """Frames answered, and in how many seconds."""
    selector = selectors.DefaultSelector()
    for peer in peers:
        selector.register(peer.socket, selectors.EVENT_READ, peer)
    buffer = bytearray(1 << 20)
    before = sum(peer.answered for peer in peers)
    start = now = time.perf_counter()
    while now - start < seconds:
        for key, _ in selector.select(1):
            key.data.receive(buffer)
        now = time.perf_counter()
    return sum(peer.answered for peer in peers) - before, now - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--form", choices=["json", "binary"], default="json")
    options = parser.parse_args()

    asked = request(CODE, EXT, bytes(options.body), opaque=1000, form=JSON if options.form == "json" else ROCKETMQ)
    answer_bytes = len(encode(reply(asked, 0, None, ANSWER_EXT)))
    pipe, child_pipe = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=serve, args=(child_pipe,))
    child.start()
    port: int = pipe.recv()
    peers = [Peer(port, encode(asked), answer_bytes, options.window) for _ in range(options.connections)]
    frames, seconds = drive(peers, options.seconds)
    pipe.send("usage")
    user_s, system_s = pipe.recv()
    child.join()
    kind = "compiled" if (connection_module.__file__ or "").endswith(".so") else "interpreted"
    total = sum(peer.answered for peer in peers)
    print(
        f"{kind} {options.form} body={options.body} connections={options.connections} window={options.window}: "
        f"{frames / seconds:,.0f} frames/s, server CPU {1e6 * (user_s + system_s) / total:.2f} us/frame "
        f"(user {1e6 * user_s / total:.2f}, system {1e6 * system_s / total:.2f})"
    )


if __name__ == "__main__":
    main()
