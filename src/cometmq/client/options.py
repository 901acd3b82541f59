"""Every default of clients, producers and consumers, by name. Durations are seconds, sizes bytes.

RocketMQ's names for them are in `docs/rosetta.md`. The fields of `ProducerOptions` are keyword arguments of
`Client.producer()`, those of `ConsumerOptions` of `Client.consumer()` and `Client.push_consumer()`, those of
`ClientOptions` of `Client()`.
"""

import enum
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, TypedDict

from cometmq.client.consume.allocation import Average, Strategy
from cometmq.errors import ConfigError
from cometmq.names import AUTO_CREATE_TOPIC
from cometmq.net.dispatch import Hook
from cometmq.net.tls import ClientTls

MIB: Final = 1 << 20

COMPRESSIONS: Final = ("zlib", "lz4", "zstd")

# A producer tries again after these answers: topic missing, unavailable, system error, busy, no permission, no buyer
# id, not in this unit, going away.
RETRY_CODES: Final = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """`namesrv` is `host:port;host:port`; without it COMETMQ_NAMESRV and NAMESRV_ADDR are asked, then
    `namesrv_endpoint`, an HTTP address whose answer is such a list.

    Requests are signed with `access_key` and `secret_key`; without them COMETMQ_ACCESS_KEY and COMETMQ_SECRET_KEY are
    asked, whose values may be `@FILE`. An empty access key signs nothing. Without `tls` COMETMQ_TLS,
    COMETMQ_TLS_CA and their kin are asked.

    `instance_name` DEFAULT is replaced by one that only this object has. Two clients with the same explicit name on
    one host count as one member of every group.
    """

    namesrv: str | None = None
    namesrv_endpoint: str | None = None
    client_ip: str | None = None
    instance_name: str = "DEFAULT"
    unit_name: str | None = None
    unit_mode: bool = False
    namespace: str | None = None
    namespace_v2: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: ClientTls | None = None
    hooks: Sequence[Hook] = ()
    call_timeout: float = 3.0
    connect_timeout: float = 3.0
    route_refresh: float = 30.0
    heartbeat_interval: float = 30.0
    idle_timeout: float = 120.0
    close_on_timeout: bool = True
    calls_max: int = 65_535
    oneway_max: int = 65_535
    vip_channel: bool = False
    binary_headers: bool = False

    def __post_init__(self) -> None:
        for name in ("call_timeout", "connect_timeout", "route_refresh", "heartbeat_interval", "idle_timeout"):
            _need_positive(name, getattr(self, name))
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key and secret_key belong together: give both or neither")
        if self.namespace and self.namespace_v2:
            raise ConfigError("namespace wraps names and namespace_v2 marks requests: give one of them")


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """What a producer does unless a call says otherwise.

    timeout                     a whole send, with all its attempts and whatever it waits for
    attempt_timeout             one attempt while another is still possible; None: whatever is left of `timeout`
    retries, retries_soon       further attempts of send(), and of send_soon() and send_many()
    retry_codes                 answers after which send() tries another broker
    retry_unconfirmed           try another broker also when a message is stored but not confirmed
    allow_auto_create           send to topics that do not exist, so that a broker makes them from `template_topic`
    max_in_flight, max_in_flight_bytes
                                messages on their way; who comes then waits, within its own timeout
    batch_delay, batch_bytes, buffer_bytes
                                send_soon(): how long a batch waits, how large it grows, how much may wait in all
    """

    timeout: float = 3.0
    attempt_timeout: float | None = None
    retries: int = 2
    retries_soon: int = 2
    retry_codes: frozenset[int] = RETRY_CODES
    retry_unconfirmed: bool = False
    compress_over: int = 4096
    compression: str = "zlib"
    compression_level: int = 5
    max_message_bytes: int = 4 * MIB
    template_topic: str = AUTO_CREATE_TOPIC
    template_topic_queues: int = 4
    allow_auto_create: bool = False
    max_in_flight: int = 1024
    max_in_flight_bytes: int = 100 * MIB
    batch_delay: float = 0.01
    batch_bytes: int = 32_768
    buffer_bytes: int = 32 * MIB
    latency_faults: bool = False
    probe_faulty: bool = False
    topics: tuple[str, ...] = ()
    trace: bool = False
    trace_topic: str | None = None

    def __post_init__(self) -> None:
        _need_positive("timeout", self.timeout)
        for name in ("retries", "retries_soon", "compress_over"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, the least is 0")
        for name in ("max_in_flight", "max_in_flight_bytes", "buffer_bytes", "max_message_bytes"):
            _need_positive(name, getattr(self, name))
        _need_range("batch_delay", self.batch_delay, 0.001, 30)
        _need_range("batch_bytes", self.batch_bytes, 1, 2 * MIB)
        _need_range("compression_level", self.compression_level, 0, 9)
        _need_range("template_topic_queues", self.template_topic_queues, 1, 65_535)
        if self.compression not in COMPRESSIONS:
            raise ConfigError(f"compression is {self.compression!r}, known are {', '.join(COMPRESSIONS)}")


# What becomes of a message that cannot be read.
BAD_RECORDS: Final = ("skip", "block")


class StartFrom(enum.Enum):
    """Where a group begins in a queue of which no offset is stored. A datetime in its place: at that time."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a consumer does.

    start                       where a new group begins; a stored offset always wins
    broadcast                   every member gets every message; offsets are in a file below `offsets_dir`, and what
                                a handler fails on is logged and skipped
    allocation                  how members share the queues; the same in all members
    concurrency                 handlers that run at a time, of all topics together
    executor                    where plain functions run; None: threads of the consumer's own, as many as `concurrency`
    max_retries                 how often a message is tried again before it is a dead letter; None: 16, and without
                                end in ordered topics
    consume_timeout             a message that is longer in its handler is given to others, too
    suspend                     how long an ordered queue rests after a failure
    drain_timeout               how long stop() waits for handlers that run
    prefetch, prefetch_bytes, prefetch_span
                                most of a queue that is held here: messages, bytes of bodies, distance of offsets
    prefetch_topic, prefetch_topic_bytes
                                the same for all queues together, divided among them; None: no such bound
    pull_batch, pull_batch_bytes, pull_interval
                                one pull: how much, and the rest after it
    poll_hold, poll_timeout     how long a broker holds a pull that finds nothing, and when the client gives it up
    post_subscription           say the subscription in every pull, not only in heartbeats
    error_delay                 the rest after a pull that failed
    bad_records, bad_record_tries
                                a message that cannot be read, say by its CRC, is tried so often; then it is "skip"ped,
                                with an ERROR in the log and its bytes in ~/.cometmq/bad-records, or "block"s its queue
    keep_cause                  why a message failed travels with it to its next try and to the dead letters
    commit_interval             how often offsets are stored
    rebalance_interval, rebalance_retry
                                how often the shares are looked at: when all is well, and when it is not
    first_pull_delay            a new queue rests so long: its last owner stores its offset meanwhile
    lock_interval, lock_expiry, lock_timeout
                                ordered queues: when locks are renewed, when one counts as lost, how long asking takes
    """

    start: StartFrom | datetime = StartFrom.LAST
    broadcast: bool = False
    offsets_dir: Path | None = None
    allocation: Strategy = field(default_factory=Average)
    concurrency: int = 20
    executor: Executor | None = None
    max_retries: int | None = None
    consume_timeout: float = 900.0
    suspend: float = 1.0
    drain_timeout: float = 30.0
    prefetch: int = 1000
    prefetch_bytes: int = 100 * MIB
    prefetch_span: int = 2000
    prefetch_topic: int | None = None
    prefetch_topic_bytes: int | None = None
    pull_batch: int = 32
    pull_batch_bytes: int = 262_144
    pull_interval: float = 0.0
    poll_hold: float = 15.0
    poll_timeout: float = 30.0
    post_subscription: bool = False
    error_delay: float = 1.0
    bad_records: str = "skip"
    bad_record_tries: int = 5
    keep_cause: bool = True
    commit_interval: float = 5.0
    rebalance_interval: float = 20.0
    rebalance_retry: float = 1.0
    first_pull_delay: float = 0.5
    lock_interval: float = 20.0
    lock_expiry: float = 30.0
    lock_timeout: float = 1.0
    trace: bool = False
    trace_topic: str | None = None

    def __post_init__(self) -> None:
        for name, least, most in _CONSUMER_RANGES:
            value = getattr(self, name)
            if value is not None:
                _need_range(name, value, least, most)
        for name in ("consume_timeout", "commit_interval", "rebalance_interval", "poll_timeout", "lock_timeout"):
            _need_positive(name, getattr(self, name))
        need_choice("bad_records", self.bad_records, BAD_RECORDS)
        if self.poll_hold >= self.poll_timeout:
            raise ConfigError(f"poll_timeout is {self.poll_timeout}: it must be more than poll_hold, {self.poll_hold}")
        if self.lock_interval >= self.lock_expiry:
            raise ConfigError(
                f"lock_expiry is {self.lock_expiry}: it must be more than lock_interval, {self.lock_interval}"
            )


# name, least, most
_CONSUMER_RANGES: Final = (
    ("concurrency", 1, 100_000),
    ("max_retries", 0, 2**31 - 1),
    ("suspend", 0.01, 30),
    ("drain_timeout", 0, 86_400),
    ("prefetch", 1, 65_535),
    ("prefetch_bytes", MIB, 1024 * MIB),
    ("prefetch_span", 1, 65_535),
    ("prefetch_topic", 1, 6_553_500),
    ("prefetch_topic_bytes", MIB, 102_400 * MIB),
    ("pull_batch", 1, 1024),
    ("pull_batch_bytes", 1, 1 << 30),
    ("pull_interval", 0, 65.535),
    ("poll_hold", 0, 600),
    ("error_delay", 0.001, 60),
    ("bad_record_tries", 1, 1_000_000),
    ("rebalance_retry", 0, 20),
    ("first_pull_delay", 0, 60),
    # A broker gives a lock to others after 60 s without renewal.
    ("lock_expiry", 0.01, 59),
)


class ConsumerKeywords(TypedDict, total=False):
    """`ConsumerOptions` as keyword arguments; compared by a test."""

    start: StartFrom | datetime
    broadcast: bool
    offsets_dir: Path | None
    allocation: Strategy
    concurrency: int
    executor: Executor | None
    max_retries: int | None
    consume_timeout: float
    suspend: float
    drain_timeout: float
    prefetch: int
    prefetch_bytes: int
    prefetch_span: int
    prefetch_topic: int | None
    prefetch_topic_bytes: int | None
    pull_batch: int
    pull_batch_bytes: int
    pull_interval: float
    poll_hold: float
    poll_timeout: float
    post_subscription: bool
    error_delay: float
    bad_records: str
    bad_record_tries: int
    keep_cause: bool
    commit_interval: float
    rebalance_interval: float
    rebalance_retry: float
    first_pull_delay: float
    lock_interval: float
    lock_expiry: float
    lock_timeout: float
    trace: bool
    trace_topic: str | None


class ProducerKeywords(TypedDict, total=False):
    """`ProducerOptions` as keyword arguments; the two are compared by a test."""

    timeout: float
    attempt_timeout: float | None
    retries: int
    retries_soon: int
    retry_codes: frozenset[int]
    retry_unconfirmed: bool
    compress_over: int
    compression: str
    compression_level: int
    max_message_bytes: int
    template_topic: str
    template_topic_queues: int
    allow_auto_create: bool
    max_in_flight: int
    max_in_flight_bytes: int
    batch_delay: float
    batch_bytes: int
    buffer_bytes: int
    latency_faults: bool
    probe_faulty: bool
    topics: tuple[str, ...]
    trace: bool
    trace_topic: str | None


class ClientKeywords(TypedDict, total=False):
    """`ClientOptions` as keyword arguments, but for the first one; compared by a test."""

    namesrv_endpoint: str | None
    client_ip: str | None
    instance_name: str
    unit_name: str | None
    unit_mode: bool
    namespace: str | None
    namespace_v2: str | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    tls: ClientTls | None
    hooks: Sequence[Hook]
    call_timeout: float
    connect_timeout: float
    route_refresh: float
    heartbeat_interval: float
    idle_timeout: float
    close_on_timeout: bool
    calls_max: int
    oneway_max: int
    vip_channel: bool
    binary_headers: bool


def need_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}, known are {', '.join(choices)}")


def _need_positive(name: str, value: float) -> None:
    if value <= 0:
        raise ConfigError(f"{name} is {value}: it must be more than 0")


def _need_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}, allowed are {least} to {most}")


