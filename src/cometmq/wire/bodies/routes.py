# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Where topics and brokers are: what the name server answers."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from cometmq.wire.bodies.base import I32, I64, Body
from cometmq.wire.bodies.topics import QueueMapping
from cometmq.wire.json_writer import dumps


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
