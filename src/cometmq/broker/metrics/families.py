"""Every family that a broker shows: its name, kind, labels and meaning. docs/metrics.md is written from this table.

Names that begin with `rocketmq_` are RocketMQ's, as its own exporter writes them (units are part of a name); ours begin
with `cometmq_`. Labels besides cluster, node_type, node_id and otel_scope_name are listed in order.
"""

from dataclasses import dataclass
from typing import Final

from cometmq.wire.exposition import COUNTER, GAUGE, HISTOGRAM

STATS: Final = "enableStatsMetrics"
MESSAGES: Final = "enableRequestMetrics"
CONNECTIONS: Final = "enableConnectionMetrics"
LAG: Final = "enableLagAndDlqMetrics"
TRANSACTIONS: Final = "enableTransactionMetrics"
REQUESTS: Final = "enableRemotingMetrics"
STORE: Final = "enableMessageStoreMetrics"
POP: Final = "enablePopMetrics"
QUEUE_LAG: Final = "cometmqQueueLagMetrics"
OWN: Final = ""


@dataclass(frozen=True, slots=True)
class Row:
    """`group`: the setting that leaves it out, or none. `name` without `_total`."""

    name: str
    kind: str
    group: str
    labels: tuple[str, ...]
    help: str
    unit: str = ""


def _of_topic(name: str, kind: str, group: str, text: str, unit: str = "") -> Row:
    return Row(name, kind, group, ("topic",), text, unit)


_IN: Final = ("is_system", "message_type", "topic")
_OUT: Final = ("consumer_group", "is_retry", "is_system", "topic")
_LAG: Final = ("consumer_group", "is_retry", "is_system", "topic")
_STORE: Final = ("storage_medium", "storage_type")

ROWS: Final = (
    Row("rocketmq_processor_watermark", GAUGE, STATS, ("processor",), "Requests that wait for an answer, by family."),
    Row("rocketmq_broker_permission", GAUGE, STATS, (), "6 read and write, 4 read, 2 write."),
    Row("rocketmq_topic_number", GAUGE, STATS, (), "Topics, the broker's own included."),
    Row("rocketmq_consumer_group_number", GAUGE, STATS, (), "Consumer groups, the broker's own included."),
    Row("rocketmq_messages_in", COUNTER, MESSAGES, _IN, "Messages of sends that were stored."),
    Row("rocketmq_throughput_in", COUNTER, MESSAGES, _IN, "Bytes of their records in the log."),
    Row("rocketmq_message_size", HISTOGRAM, MESSAGES, _IN, "Bytes of a record; one observation a send."),
    Row("rocketmq_messages_out", COUNTER, MESSAGES, _OUT, "Messages found by pulls, pops and peeks."),
    Row("rocketmq_throughput_out", COUNTER, MESSAGES, _OUT, "Bytes of their records."),
    Row(
        "rocketmq_topic_create_execution_time_milliseconds",
        HISTOGRAM,
        MESSAGES,
        ("invocation_status", "is_system"),
        "Time of requests that create or change topics.",
        "milliseconds",
    ),
    Row(
        "rocketmq_consumer_group_create_execution_time_milliseconds",
        HISTOGRAM,
        MESSAGES,
        ("invocation_status",),
        "Time of requests that create or change groups.",
        "milliseconds",
    ),
    Row(
        "rocketmq_producer_connections",
        GAUGE,
        CONNECTIONS,
        ("language", "protocol_type", "version"),
        "Producers: one for each client and group.",
    ),
    Row(
        "rocketmq_consumer_connections",
        GAUGE,
        CONNECTIONS,
        ("consume_mode", "consumer_group", "is_system", "language", "protocol_type", "version"),
        "Members of consumer groups.",
    ),
    Row("rocketmq_consumer_lag_messages", GAUGE, LAG, _LAG, "Messages between committed and end.", "messages"),
    Row(
        "rocketmq_consumer_lag_latency_milliseconds",
        GAUGE,
        LAG,
        _LAG,
        "Age of the oldest message that is not committed; 0 if there is none.",
        "milliseconds",
    ),
    Row("rocketmq_consumer_inflight_messages", GAUGE, LAG, _LAG, "Messages pulled and not committed.", "messages"),
    Row(
        "rocketmq_consumer_queueing_latency_milliseconds",
        GAUGE,
        LAG,
        _LAG,
        "Age of the oldest message that was not pulled; 0 if there is none.",
        "milliseconds",
    ),
    Row("rocketmq_consumer_ready_messages", GAUGE, LAG, _LAG, "Messages between pulled and end.", "messages"),
    Row(
        "rocketmq_send_to_dlq_messages",
        COUNTER,
        LAG,
        ("consumer_group", "is_system", "topic"),
        "Messages that a group gave up.",
    ),
    _of_topic("rocketmq_commit_messages", COUNTER, TRANSACTIONS, "Transactions that clients committed."),
    _of_topic("rocketmq_rollback_messages", COUNTER, TRANSACTIONS, "Transactions that clients rolled back."),
    _of_topic(
        "rocketmq_finish_message_latency_milliseconds",
        HISTOGRAM,
        TRANSACTIONS,
        "From born to committed: in seconds, whatever RocketMQ's name says.",
        "milliseconds",
    ),
    _of_topic("rocketmq_half_messages", GAUGE, TRANSACTIONS, "Transactions without an end.", "messages"),
    Row(
        "rocketmq_rpc_latency_milliseconds",
        HISTOGRAM,
        REQUESTS,
        ("is_long_polling", "protocol_type", "request_code", "response_code", "result"),
        "From a request's arrival to its answer.",
        "milliseconds",
    ),
    Row("rocketmq_storage_size_bytes", GAUGE, STORE, _STORE, "Used bytes of the store's file system.", "bytes"),
    Row("rocketmq_storage_flush_behind_bytes", GAUGE, STORE, _STORE, "Written and not flushed.", "bytes"),
    Row("rocketmq_storage_dispatch_behind_bytes", GAUGE, STORE, _STORE, "Written and in no queue yet.", "bytes"),
    Row(
        "rocketmq_storage_message_reserve_time_milliseconds",
        GAUGE,
        STORE,
        _STORE,
        "Age of the oldest message; not there while the store is empty.",
        "milliseconds",
    ),
    Row("rocketmq_timer_enqueue_lag", GAUGE, STORE, _STORE, "Messages that the wheel is behind its topic."),
    Row(
        "rocketmq_timer_enqueue_latency_milliseconds",
        GAUGE,
        STORE,
        _STORE,
        "How far the wheel is behind its topic.",
        "milliseconds",
    ),
    Row("rocketmq_timer_dequeue_lag", GAUGE, STORE, _STORE, "Messages on the wheel."),
    Row(
        "rocketmq_timer_dequeue_latency_milliseconds",
        GAUGE,
        STORE,
        _STORE,
        "How far delivery is behind the clock.",
        "milliseconds",
    ),
    Row("rocketmq_timer_enqueue", COUNTER, STORE, (*_STORE, "topic"), "Messages put on the wheel."),
    Row("rocketmq_timer_dequeue", COUNTER, STORE, (*_STORE, "topic"), "Messages delivered by the wheel."),
    Row("rocketmq_timing_messages", GAUGE, STORE, (*_STORE, "topic"), "Messages that wait for their time.", "messages"),
    Row(
        "rocketmq_timer_message_snapshot",
        GAUGE,
        STORE,
        (*_STORE, "timer_bound_s"),
        "Messages due after the bound before this one, up to this one.",
    ),
    Row(
        "rocketmq_delay_message_latency_seconds",
        HISTOGRAM,
        STORE,
        (*_STORE, "topic"),
        "From born to due of what was put on the wheel.",
        "seconds",
    ),
    Row("rocketmq_pop_offset_buffer_size", GAUGE, POP, (), "Popped messages that nobody has acknowledged yet."),
    Row("rocketmq_pop_checkpoint_buffer_size", GAUGE, POP, (), "Queues of groups that have such messages."),
    Row("cometmq_build", "info", OWN, ("compiled", "python", "version"), "What runs here."),
    Row("cometmq_process_resident_bytes", GAUGE, OWN, (), "Resident memory, pages of files included.", "bytes"),
    Row("cometmq_process_cpu_seconds", COUNTER, OWN, (), "Processor time of the process.", "seconds"),
    Row("cometmq_open_files", GAUGE, OWN, (), "Open file descriptors."),
    Row("cometmq_connections", GAUGE, OWN, (), "Open connections of both ports."),
    Row("cometmq_parked_pulls", GAUGE, OWN, (), "Pulls that wait for a message."),
    Row("cometmq_inflight_bytes", GAUGE, OWN, (), "Memory that waiting requests hold.", "bytes"),
    Row("cometmq_loop_lag_seconds", HISTOGRAM, OWN, (), "How late the event loop was, 20 times a second.", "seconds"),
    Row("cometmq_flush_seconds", HISTOGRAM, OWN, (), "Time of one flush of the log.", "seconds"),
    Row("cometmq_flush_errors", COUNTER, OWN, (), "Failed flushes: the first one is final."),
    Row("cometmq_store_read_only", GAUGE, OWN, (), "1 if the store takes no messages."),
    Row("cometmq_replica_behind_bytes", GAUGE, OWN, ("replica",), "Bytes that a replica lacks.", "bytes"),
    Row("cometmq_replicas_in_sync", GAUGE, OWN, (), "Replicas that keep up; of a replica 0."),
    Row("cometmq_commitlog_bytes", GAUGE, OWN, (), "From the first to the last byte of the log.", "bytes"),
    Row("cometmq_disk_free_bytes", GAUGE, OWN, (), "Free on the store's file system.", "bytes"),
    Row("cometmq_client_refused", COUNTER, OWN, ("reason",), "Requests refused: busy, or by access control."),
    Row("cometmq_ready", GAUGE, OWN, ("check",), "1 if the condition of /readyz holds."),
    Row(
        "cometmq_consumer_lag_messages",
        GAUGE,
        QUEUE_LAG,
        ("consumer_group", "queue_id", "topic"),
        "Lag by queue, also of groups that are not connected or never committed.",
        "messages",
    ),
    Row("cometmq_scrape_seconds", GAUGE, OWN, (), "How long the scrape before this one took.", "seconds"),
)

BY_NAME: Final = {row.name: row for row in ROWS}
# Without `timerWheelEnable` these are not there.
TIMER_PREFIXES: Final = ("rocketmq_timer_", "rocketmq_timing_", "rocketmq_delay_message_")
