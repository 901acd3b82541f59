"""What brokers say of themselves to a name server, how much of it is accepted, and what is kept of it."""

from dataclasses import dataclass, field
from typing import Final

from cometmq import names
from cometmq.errors import RequestError
from cometmq.wire.bodies import DataVersion, QueueMapping, TopicConfig
from cometmq.wire.codes import Response

TIMEOUT_MS: Final = 120_000

# What peers can make this process keep.
BROKERS_MAX: Final = 5_000
BROKERS_A_LINK_MAX: Final = 64
ADDRESSES_MAX: Final = 16
TOPICS_A_BROKER_MAX: Final = 65_536
QUEUES_MAX: Final = 65_536
FILTER_SERVERS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Queues:
    """A topic's queues on one broker."""

    read: int
    write: int
    permission: int
    flags: int


@dataclass(slots=True)
class Broker:
    """One broker name: a master and its replicas."""

    name: str
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone: str | None = None
    acting_master: bool = False
    filter_servers: dict[str, list[str]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)

    @property
    def id_min(self) -> int:
        return min(self.addresses)


@dataclass(slots=True)
class Presence:
    """One broker address that is alive."""

    broker_name: str
    broker_id: int
    link: object
    seen_ms: int
    timeout_ms: int
    data_version: DataVersion
    ha_address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says about itself. `acting_master` None marks a broker from before 5.0."""

    cluster: str
    name: str
    address: str
    broker_id: int
    ha_address: str
    link: object
    data_version: DataVersion
    topics: dict[str, TopicConfig]
    mappings: dict[str, QueueMapping] = field(default_factory=dict)
    filter_servers: list[str] = field(default_factory=list)
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """To be told to the brokers at `targets`: the smallest broker id of their group is another one now."""

    targets: list[str]
    id_min: int
    address_min: str
    offline_address: str | None
    ha_address: str | None


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to a registration; the master's addresses only for a replica whose master is alive."""

    ha_address: str | None = None
    master_address: str | None = None
    notice: Notice | None = None


def check(new: Registration) -> None:
    """RequestError for names and numbers that no server may keep, and no client may be given."""
    for kind, name in (("broker", new.name), ("cluster", new.cluster), ("zone", new.zone or "-")):
        fault = names.server_name_fault(kind, name)
        if fault is not None:
            raise RequestError(Response.INVALID_PARAMETER, fault)
    for address in (new.address, new.ha_address, *new.filter_servers):
        if len(address) > names.SERVER_NAME_CHARS_MAX or not address.isprintable():
            raise RequestError(
                Response.INVALID_PARAMETER,
                f"the address {address[:80]!r} of broker {new.name} has control characters or more than "
                f"{names.SERVER_NAME_CHARS_MAX}",
            )
    if len(new.filter_servers) > FILTER_SERVERS_MAX:
        raise too_many(f"broker {new.name} has {len(new.filter_servers)} filter servers", FILTER_SERVERS_MAX)
    if len(new.topics) > TOPICS_A_BROKER_MAX:
        raise too_many(f"broker {new.name} has {len(new.topics)} topics", TOPICS_A_BROKER_MAX)


def check_topic(topic: str, read_queues: int, write_queues: int) -> None:
    """The same for one topic of a registration."""
    fault = names.server_name_fault("topic", topic)
    if fault is not None:
        raise RequestError(Response.INVALID_PARAMETER, fault)
    if not (0 <= read_queues <= QUEUES_MAX and 0 <= write_queues <= QUEUES_MAX):
        raise RequestError(
            Response.INVALID_PARAMETER,
            f"topic {topic} has {read_queues} read and {write_queues} write queues, allowed are 0 to {QUEUES_MAX}",
        )


def too_many(what: str, most: int) -> RequestError:
    return RequestError(Response.SYSTEM_ERROR, f"{what}, at most {most} are allowed")


def presence(new: Registration, now_ms: int) -> Presence:
    return Presence(
        broker_name=new.name,
        broker_id=new.broker_id,
        link=new.link,
        seen_ms=now_ms,
        timeout_ms=TIMEOUT_MS if new.timeout_ms is None else new.timeout_ms,
        data_version=new.data_version,
        ha_address=new.ha_address,
    )
