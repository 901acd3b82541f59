"""Sends at a fixed rate and says how long each answer took: python -m benchmarks.versus.paced ADDRESS TOPIC RATE BYTES

The next send is due by the clock, whatever the broker does: a broker that stops for a moment makes all the sends of
that moment slow, and they all count. Eight connections in turn; bytes are written by hand, so that no client adds its
own time. Time runs from the write to the read of the answer. Prints a line of JSON every second:

    {"sent": 2000, "p50_us": 120, "p99_us": 310, "max_us": 900, "late_us": 60, "failed": 0}

`late_us` is by how much the median send left after it was due: what the driver itself adds to nobody's figure.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time

CONNECTIONS = 8
QUEUES = 16


def frame(topic: str, number: int, size: int) -> bytes:
    ext = {
        "a": "bench_paced", "b": topic, "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02", "j": "0",
        "k": "false", "m": "false",
    }  # fmt: skip
    header = {"code": 310, "language": "JAVA", "version": 513, "opaque": number, "flag": 0, "extFields": ext}
    text = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text) + size, len(text)) + text + bytes(size)


class Lane:
    """One connection and the moments of its sends; answers come in order of the sends or carry their number."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent_at: dict[int, float] = {}
        self._received = b""

    def send(self, number: int, data: bytes) -> None:
        self._sent_at[number] = time.perf_counter()
        self.socket.sendall(data)

    def receive(self) -> tuple[list[float], int]:
        """Times in us of the answers that came, and how many of them were not SEND_OK."""
        self._received += self.socket.recv(1 << 16)
        now_s, took, failed = time.perf_counter(), [], 0
        while len(self._received) >= 4 + (length := int.from_bytes(self._received[:4], "big")) and length:
            text_end = 8 + int.from_bytes(self._received[5:8], "big")
            header = json.loads(self._received[8:text_end])
            took.append((now_s - self._sent_at.pop(header["opaque"])) * 1e6)
            failed += header["code"] != 0
            self._received = self._received[4 + length :]
        return took, failed


def run(address: str, topic: str, rate: int, size: int) -> None:
    lanes = [Lane(address) for _ in range(CONNECTIONS)]
    by_socket = {lane.socket: lane for lane in lanes}
    number, due_s = 0, time.perf_counter()
    took: list[float] = []
    late: list[float] = []
    failed, report_s = 0, due_s + 1.0
    while True:
        now_s = time.perf_counter()
        while due_s <= now_s:
            data = frame(topic, number, size)
            late.append((time.perf_counter() - due_s) * 1e6)
            lanes[number % CONNECTIONS].send(number, data)
            number, due_s = number + 1, due_s + 1 / rate
        if now_s >= report_s:
            print(json.dumps(summary(took, late, failed)), flush=True)
            took, late, failed, report_s = [], [], 0, report_s + 1.0
        readable, _, _ = select.select(list(by_socket), [], [], max(0.0, due_s - time.perf_counter()))
        for ready in readable:
            more, wrong = by_socket[ready].receive()
            took += more
            failed += wrong


def summary(took: list[float], late: list[float], failed: int) -> dict[str, float]:
    took.sort()
    late.sort()
    return {
        "sent": len(took),
        "p50_us": share(took, 0.5),
        "p99_us": share(took, 0.99),
        "max_us": share(took, 1.0),
        "late_us": share(late, 0.5),
        "failed": failed,
    }


def share(ordered: list[float], part: float) -> float:
    """The smallest value that at least this part of them does not exceed."""
    if not ordered:
        return 0.0
    return round(ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))], 1)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
