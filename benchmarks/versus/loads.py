"""What `make bench` does to a broker: each path by its name, with the goal that CometMQ set itself for it.

A program is RocketMQ's own (`org.apache.rocketmq.example.benchmark`), named by its class, one of ours, named by its
module below `benchmarks/versus`, or `grpc`: RocketMQ's 5.x Go client (tests/compat/grpc/go/load). A load is one of
these against one broker; several may run together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.versus.access import CLOSED, USER

QUEUES: Final = 16


@dataclass(frozen=True, slots=True)
class Goal:
    """At least this throughput, at most this much processor time per message, both ours / RocketMQ's."""

    per_s: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Load:
    says: str
    programs: tuple[tuple[str, ...], ...]
    settings: tuple[tuple[str, object], ...] = ()
    # Messages that the topic holds before the program starts to read them.
    fill: int = 0
    # What is read counts, not what is sent.
    reads: bool = False
    slave: bool = False
    # Shorter windows for a backlog, which ends.
    window_s: float = 0.0
    # Sent at a fixed rate: windows agree by their median latency, and another load has to warm the broker.
    paced: bool = False
    # By gRPC: RocketMQ's broker has its proxy in its process, ours its own front.
    grpc: bool = False
    makes: tuple[str, ...] = ("java", "comet")


def producer(threads: int, size: int) -> tuple[str, ...]:
    return ("Producer", "-w", str(threads), "-s", str(size))


# Signed with the keys of a user; the same program otherwise.
SIGNED: Final = (*producer(64, 1024), "-a", "true", "-ak", USER.access_key, "-sk", USER.secret_key)
# {group} is another one in each round, so that each reads the topic from its start.
CONSUMER: Final = ("Consumer", "-g", "{group}", "-p", "false", "-w", "20")
GRPC_SEND: Final = ("grpc", "send", "64", "1024")
GRPC_RECEIVE: Final = ("grpc", "receive", "64", "{group}")
SYNC: Final = (("flushDiskType", "SYNC_FLUSH"),)
ALL: Final = ("java", "comet", "comet-interpreted")
LOADS: Final = {
    "send64": Load("send, 64 threads, 1 KiB", (producer(64, 1024),), makes=ALL),
    "batch": Load("send batches of 32 x 1 KiB", (("BatchProducer", "-w", "16", "-b", "32", "-s", "1024"),)),
    "consume": Load("consume a filled topic", (CONSUMER,), fill=4_000_000, reads=True, window_s=3.0),
    "live": Load("consume while 64 threads send", (CONSUMER, producer(64, 1024)), reads=True),
    "latency": Load("2,000 sends a second", (("paced", "2000", "1024"),), paced=True),
    "transactions": Load("transactions, 32 threads", (("TransactionProducer", "-w", "32", "-s", "1024"),)),
    "sync64": Load("send, 64 threads, synchronous flush", (producer(64, 1024),), SYNC),
    "auth64": Load("send, 64 threads, 1 KiB, access control", (SIGNED,), CLOSED),
    "grpc64": Load("send by gRPC, 64 under way, 1 KiB", (GRPC_SEND,), grpc=True),
    "grpc-receive": Load("receive and acknowledge by gRPC", (GRPC_RECEIVE,), fill=2_000_000, reads=True, grpc=True),
    "send1": Load("send, 1 thread, 1 KiB", (producer(1, 1024),)),
    "send16": Load("send, 16 threads, 1 KiB", (producer(16, 1024),)),
    "send64-128b": Load("send, 64 threads, 128 B", (producer(64, 128),)),
    "send64-16k": Load("send, 64 threads, 16 KiB", (producer(64, 16_384),)),
    "slave64": Load("send, 64 threads, one slave waited for", (producer(64, 1024),), slave=True),
    "own64": Load("send, 64 in flight, our client", (("own", "64", "1024"),)),
    "count2": Load("send, 64 threads, two brokers against one", (producer(64, 1024),), makes=("java", "comet-2")),
}
WARMER: Final = (producer(64, 1024),)
GOALS: Final = {
    ("send64", "comet"): Goal(1.5, 0.33),
    ("batch", "comet"): Goal(1.2, 0.5),
    ("consume", "comet"): Goal(2.0, 0.3),
    ("live", "comet"): Goal(1.5, 0.35),
    ("transactions", "comet"): Goal(1.4, 0.5),
    ("sync64", "comet"): Goal(1.6, 0.35),
    ("auth64", "comet"): Goal(1.4, 0.5),
    ("grpc64", "comet"): Goal(1.5, 0.5),
    ("grpc-receive", "comet"): Goal(1.0, 0.5),
}
# What is asked for with a goal; the others are for the curious and take as long again.
MAIN: Final = (
    "send64", "batch", "consume", "live", "latency", "transactions", "sync64", "auth64", "grpc64", "grpc-receive",
)  # fmt: skip
LATENCY_MAX: Final = {"p50_us": 0.4, "p99_us": 0.2}
MEMORY_MAX: Final = 0.1
# Our broker with access control by without.
ACCESS_CPU_MAX: Final = 1.25
READY_TIMES_SOONER: Final = 5.0
