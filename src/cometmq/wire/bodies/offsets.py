# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Tables of offsets and statistics by queue. Their maps have message queues as keys."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field

from cometmq.errors import WireError
from cometmq.wire.bodies.base import I32, I64, Body, convert, keyed_by
from cometmq.wire.bodies.clients import SubscriptionData
from cometmq.wire.bodies.common import DataVersion, MessageQueue
from cometmq.wire.fastjson.writer import dumps


def _with_queue_keys(tree: dict[Any, Any], *members: str) -> dict[Any, Any]:
    for member in members:
        if member in tree:
            tree[member] = keyed_by(MessageQueue, tree[member])
    return tree


class TopicOffset(Body):
    last_update_timestamp: I64 = 0
    max_offset: I64 = 0
    min_offset: I64 = 0


class TopicStats(Body):
    SEVERAL_FORMS: ClassVar[bool] = True

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        return _with_queue_keys(tree, "offsetTable")


class QueueProgress(Body):
    broker_offset: I64 = 0
    consumer_offset: I64 = 0
    last_timestamp: I64 = 0
    pull_offset: I64 = 0


class ConsumeStats(Body):
    SEVERAL_FORMS: ClassVar[bool] = True

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, QueueProgress] = {}

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        return _with_queue_keys(tree, "offsetTable")


class BrokerConsumeStats(Body):
    """One map of group to statistics per entry of the list."""

    SEVERAL_FORMS: ClassVar[bool] = True

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    total_diff: I64 = 0
    total_inflight_diff: I64 = 0

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        by_group = convert(tree.get("consumeStatsList", []), list[dict[str, list[dict[Any, Any]]]])
        tree["consumeStatsList"] = [
            {group: [ConsumeStats.from_tree(one) for one in stats] for group, stats in entry.items()}
            for entry in by_group
        ]
        return tree


class ResetOffsets(Body):
    """The new offset of every queue. C++ consumers get and send an array instead of a map with object keys."""

    SEVERAL_FORMS: ClassVar[bool] = True

    offset_table: dict[MessageQueue, I64] = {}

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        table = tree.get("offsetTable")
        if isinstance(table, list):
            rows = convert(table, list[_QueueOffset])
            tree["offsetTable"] = {MessageQueue(row.broker_name, row.queue_id, row.topic): row.offset for row in rows}
            return tree
        return _with_queue_keys(tree, "offsetTable")

    def encode_for_cpp(self) -> bytes:
        rows = [
            _QueueOffset(queue.broker_name, offset, queue.queue_id, queue.topic)
            for queue, offset in self.offset_table.items()
        ]
        return dumps({"offsetTable": rows})


class _QueueOffset(Body):
    broker_name: str = ""
    offset: I64 = 0
    queue_id: I32 = 0
    topic: str = ""


class ConsumerStatus(Body):
    """A client fills `message_queue_table`; a broker that asked several fills `consumer_table` by client id."""

    SEVERAL_FORMS: ClassVar[bool] = True

    consumer_table: dict[str, dict[MessageQueue, I64]] = {}
    message_queue_table: dict[MessageQueue, I64] = {}

    @classmethod
    def _prepare(cls, tree: dict[Any, Any]) -> dict[Any, Any]:
        consumers = tree.get("consumerTable", {})
        if not isinstance(consumers, dict):
            raise WireError("ConsumerStatus: consumerTable is not an object")
        tree["consumerTable"] = {client: keyed_by(MessageQueue, table) for client, table in consumers.items()}
        return _with_queue_keys(tree, "messageQueueTable")


class QueueTimeSpan(Body):
    """Times of the oldest, the newest and the last consumed message; the texts are `yyyy-MM-dd#HH:mm:ss:SSS`."""

    consume_time_stamp: I64 = 0
    consume_time_stamp_str: str | None = None
    delay_time: I64 = 0
    max_time_stamp: I64 = 0
    max_time_stamp_str: str | None = None
    message_queue: MessageQueue | None = None
    min_time_stamp: I64 = 0
    min_time_stamp_str: str | None = None


class ConsumeTimeSpans(Body):
    consume_time_span_set: list[QueueTimeSpan] = []


class CorrectionOffsets(Body):
    correction_offsets: dict[I32, I64] = {}


class ConsumeQueueEntry(Body):
    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: I64 = 0
    physic_size: I32 = 0
    tags_code: I64 = 0


class ConsumeQueuePage(Body):
    filter_data: str | None = None
    max_queue_index: I64 = 0
    min_queue_index: I64 = 0
    queue_data: list[ConsumeQueueEntry] = []
    subscription_data: SubscriptionData | None = None


class ConsumerOffsetTable(Body):
    """Offsets by `topic@group` and queue id: what a slave copies, and the file consumerOffset.json.

    Groups of light queues, which have no queue id, are apart.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    offset_table: dict[str, dict[I32, I64]] = {}
    pull_offset_table: dict[str, dict[I32, I64]] | None = None
    lmq_offset_table: dict[str, I64] | None = None


class DelayOffsetTable(Body):
    """Offsets by delay level: what a slave copies, and the file delayOffset.json."""

    data_version: DataVersion = field(default_factory=DataVersion)
    offset_table: dict[I32, I64] = {}


class TopicCount(Body):
    """How many messages of a topic there are, and when that last changed."""

    count: I64 = 0
    time_stamp: I64 = 0


class TimerCounts(Body):
    """Timer messages that wait, by topic: the file timermetrics."""

    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, TopicCount] = {}


class TransactionCounts(Body):
    """Undecided transactions by topic: the file transactionMetrics."""

    data_version: DataVersion = field(default_factory=DataVersion)
    transaction_count: dict[str, TopicCount] = {}
