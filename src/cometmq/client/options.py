"""Every default of client and producer, by name. Durations are seconds, sizes bytes.

RocketMQ's names for them are in `docs/rosetta.md`. The fields of `ProducerOptions` are keyword arguments of
`Client.producer()`, those of `ClientOptions` of `Client()`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypedDict

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
        if (self.access_key is None) != (self.secret_key is None):
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


def _need_positive(name: str, value: float) -> None:
    if value <= 0:
        raise ConfigError(f"{name} is {value}: it must be more than 0")


def _need_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}, allowed are {least} to {most}")


