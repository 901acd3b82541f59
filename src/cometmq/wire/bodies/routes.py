# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Where topics and brokers are: what the name server answers."""

from __future__ import annotations

from typing import ClassVar, Final, Self

from msgspec import field

from cometmq import names
from cometmq.errors import WireError
from cometmq.wire.bodies.base import I32, I64, Body
from cometmq.wire.bodies.topics import QueueMapping
from cometmq.wire.fastjson.writer import dumps

ANSWER_BYTES_MAX: Final = 4 << 20
# Name servers before 4.9.4 write broker ids bare, which is read fifty times slower.
ANSWER_OTHER_FORMS_BYTES_MAX: Final = 256 << 10
BROKERS_MAX: Final = 10_000
QUEUES_MAX: Final = 65_536
ROUTE_QUEUES_MAX: Final = 262_144
DIGITS_MAX: Final = 6


def _check_name(kind: str, name: str) -> None:
    fault = names.server_name_fault(kind, name)
    if fault is not None:
        raise WireError(f"the route is unusable: {fault}")


class QueueData(Body):
    """How many queues of a topic one broker has."""

    STANDARD_FORM: ClassVar[bool] = True

    broker_name: str = ""
    perm: I32 = 0
    read_queue_nums: I32 = 0
    topic_sys_flag: I32 = 0
    write_queue_nums: I32 = 0


class BrokerData(Body):
    """The replicas of one broker name by broker id; id 0 is the master."""

    broker_name: str = ""
    broker_addrs: dict[I64, str] = {}
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRoute(Body):
    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, QueueMapping] | None = None

    @classmethod
    def decode_answer(cls, data: bytes) -> Self:
        """What a name server answered; WireError for names that are none and queues that nobody can have."""
        if len(data) > ANSWER_BYTES_MAX:
            raise WireError(f"the route has {len(data)} bytes, at most {ANSWER_BYTES_MAX} are allowed")
        if data.count(b"{") > 4 * BROKERS_MAX:
            raise WireError(f"the route has {data.count(b'{')} objects, at most {4 * BROKERS_MAX} are allowed")
        route = cls._decode(data, ANSWER_OTHER_FORMS_BYTES_MAX)
        if len(route.broker_datas) > BROKERS_MAX or len(route.queue_datas) > BROKERS_MAX:
            raise WireError(
                f"the route has {len(route.broker_datas)} brokers and {len(route.queue_datas)} of queues, at most "
                f"{BROKERS_MAX} are allowed"
            )
        for broker in route.broker_datas:
            _check_name("broker", broker.broker_name)
            _check_name("cluster", broker.cluster or "-")
            for address in broker.broker_addrs.values():
                if len(address) > names.SERVER_NAME_CHARS_MAX or not address.isprintable():
                    raise WireError(f"the route has {address[:80]!r} for an address of broker {broker.broker_name}")
        total = 0
        for queues in route.queue_datas:
            _check_name("broker", queues.broker_name)
            for count in (queues.read_queue_nums, queues.write_queue_nums):
                if not 0 <= count <= QUEUES_MAX:
                    raise WireError(
                        f"the route has {count} queues on broker {queues.broker_name}, allowed are 0 to {QUEUES_MAX}"
                    )
                total += count
        for part in (route.order_topic_conf or "").split(";"):
            broker_name, _, text = part.strip().partition(":")
            if broker_name and text.isdecimal():
                _check_name("broker", broker_name)
                total += int(text) if len(text) <= DIGITS_MAX else ROUTE_QUEUES_MAX + 1
        if total > ROUTE_QUEUES_MAX:
            raise WireError(f"the route has over {ROUTE_QUEUES_MAX} queues on all brokers together")
        return route

    def encode(self, *, standard: bool = False) -> bytes:
        """`standard` for callers of version 401 on, or that ask for it; others get broker ids as bare numbers."""
        return dumps(self, standard=standard)


class ClusterInfo(Body):
    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMembers(Body):
    broker_addrs: dict[I64, str] = {}
    broker_name: str | None = None
    cluster: str | None = None


class BrokerMemberGroup(Body):
    broker_member_group: BrokerMembers = field(default_factory=BrokerMembers)
