"""What this machine can do at all, beside which the figures of brokers are read.

echo        frames of a send answered a second by the same loop with nothing behind it, and its processor time
memcpy      GiB a second that one core copies
fdatasync   a second, each after 1 KiB was written into a file whose blocks are there
loopback    MiB a second from one process to another over 127.0.0.1
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from typing import Final

from benchmarks.versus.sides import OVERLAY, ROOT

FILE_BYTES: Final = 8 << 20
COPY_BYTES: Final = 64 << 20
CHUNK: Final = bytes(1024)
CONNECT_S: Final = 30.0
SEND: Final = """
import socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    chunk, end_s = bytes(256 << 10), time.perf_counter() + float(sys.argv[2])
    while time.perf_counter() < end_s:
        connection.sendall(chunk)
"""


def measure(seconds: float = 2.0) -> dict[str, float]:
    echo_per_s, echo_us = echo(seconds)
    return {
        "echo_per_s": echo_per_s,
        "echo_us": echo_us,
        "memcpy_gib_s": memcpy(seconds / 4),
        "fdatasync_per_s": fdatasync(seconds),
        "loopback_mib_s": loopback(seconds),
    }


def echo(seconds: float) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.net_echo", "--seconds", str(seconds), "--form", "binary"]
    environment = {**os.environ, "PYTHONPATH": f"{OVERLAY}{os.pathsep}{ROOT / 'src'}"}
    said = subprocess.run(command, check=True, env=environment, cwd=ROOT, capture_output=True, text=True).stdout
    found = re.search(r"([\d,]+) frames/s, server CPU ([\d.]+) us", said)
    assert found is not None, said
    return float(found[1].replace(",", "")), float(found[2])


def memcpy(seconds: float) -> float:
    source, target = bytes(COPY_BYTES), bytearray(COPY_BYTES)
    target[:] = source
    began_s, count = time.perf_counter(), 0
    while time.perf_counter() - began_s < seconds:
        target[:] = source
        count += 1
    return count * COPY_BYTES / (1 << 30) / (time.perf_counter() - began_s)


def fdatasync(seconds: float) -> float:
    with tempfile.NamedTemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        os.fsync(file.fileno())
        began_s, count = time.perf_counter(), 0
        while time.perf_counter() - began_s < seconds:
            os.pwrite(file.fileno(), CHUNK, count * 1024 % FILE_BYTES)
            os.fdatasync(file.fileno())
            count += 1
        return count / (time.perf_counter() - began_s)


def loopback(seconds: float) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = subprocess.Popen([sys.executable, "-c", SEND, str(server.getsockname()[1]), str(seconds)])
        server.settimeout(CONNECT_S)
        connection, _ = server.accept()
        with connection:
            buffer = bytearray(1 << 20)
            began_s, total = time.perf_counter(), 0
            while count := connection.recv_into(buffer):
                total += count
            took_s = time.perf_counter() - began_s
        sender.wait()
    return total / (1 << 20) / took_s
