# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""What a broker or a consumer reports about its own running."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field

from cometmq.wire.bodies.base import I32, I64, Body, EnumName, enum_name, keyed_by
from cometmq.wire.bodies.clients import SubscriptionData
from cometmq.wire.bodies.common import MessageQueue

CONSUME_RESULTS = (
    "CR_SUCCESS",
    "CR_LATER",
    "CR_ROLLBACK",
    "CR_COMMIT",
    "CR_THROW_EXCEPTION",
    "CR_RETURN_NULL",
)


class ProcessQueueInfo(Body):
    cached_msg_count: I32 = 0
    cached_msg_max_offset: I64 = 0
    cached_msg_min_offset: I64 = 0
    cached_msg_size_mib: I32 = field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: I64 = 0
    dropped: bool = field(default=False, name="droped")
    last_consume_timestamp: I64 = 0
    last_lock_timestamp: I64 = 0
    last_pull_timestamp: I64 = 0
    locked: bool = False
    transaction_msg_count: I32 = 0
    transaction_msg_max_offset: I64 = 0
    transaction_msg_min_offset: I64 = 0
    try_unlock_times: I64 = 0


class PopProcessQueueInfo(Body):
    dropped: bool = field(default=False, name="droped")
    last_pop_timestamp: I64 = 0
    wait_ack_count: I32 = 0


class ConsumeStatus(Body):
    consume_failed_msgs: I64 = 0
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(Body):
    SEVERAL_FORMS: ClassVar[bool] = True

    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = {}
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    properties: dict[str, str] = {}
    status_table: dict[str, ConsumeStatus] = {}
    subscription_set: list[SubscriptionData] = []
    user_consumer_info: dict[str, str] = {}

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        for member in ("mqPopTable", "mqTable"):
            if member in tree:
                tree[member] = keyed_by(MessageQueue, tree[member])
        return tree


class ConsumeMessageDirectlyResult(Body):
    auto_commit: bool = True
    consume_result: EnumName = None
    order: bool = False
    remark: str | None = None
    spent_time_ms: I64 = field(default=0, name="spentTimeMills")

    def __post_init__(self) -> None:
        self.consume_result = enum_name(self.consume_result, CONSUME_RESULTS)


class BrokerStatsItem(Body):
    """`avgpt` is the average per call."""

    avgpt: float = 0.0
    sum: I64 = 0
    tps: float = 0.0


class BrokerStatsData(Body):
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class HaClientInfo(Body):
    """A slave's side of replication."""

    last_read_timestamp: I64 = 0
    last_write_timestamp: I64 = 0
    master_addr: str | None = None
    master_flush_offset: I64 = 0
    max_offset: I64 = 0
    transferred_byte_in_second: I64 = 0


class HaConnectionInfo(Body):
    """One slave as its master sees it."""

    addr: str | None = None
    diff: I64 = 0
    in_sync: bool = False
    slave_ack_offset: I64 = 0
    transfer_from_where: I64 = 0
    transferred_byte_in_second: I64 = 0


class HaStatus(Body):
    ha_client_runtime_info: HaClientInfo = field(default_factory=HaClientInfo)
    ha_connection_info: list[HaConnectionInfo] = []
    in_sync_slave_nums: I32 = 0
    master: bool = False
    master_commit_log_max_offset: I64 = 0
