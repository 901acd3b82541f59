"""The collectors of a broker: state it has anyway, as points. What is about consumers' lag is in lag.py."""

import os
import time
from collections.abc import Iterator
from typing import Final

from cometmq import names
from cometmq.broker.admission import LAG_BOUNDS_S
from cometmq.broker.metrics.context import MetricsContext
from cometmq.broker.metrics.snapshot import Point, placed
from cometmq.broker.stats.sends import DELAY, FIFO, usual_kind
from cometmq.build_info import build_info
from cometmq.memory import resident_bytes
from cometmq.net.latency_rows import latency_rows
from cometmq.store.log.flush import FLUSH_BOUNDS_S
from cometmq.wire.codes import LANGUAGE_NAMES, Version
from cometmq.wire.exposition import Placed

# Labels of one store, in order: storage_medium, storage_type.
DISK: Final = ("disk", "local")
SNAPSHOT_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
SYSTEM_GROUP: Final = "CID_RMQ_SYS_"

# RocketMQ's name of a thread pool -> our family of requests.
PROCESSORS: Final = {
    "send": "send",
    "async_put": "",
    "pull": "pull",
    "ack": "ack",
    "query_message": "query",
    "client_manager": "client",
    "heartbeat": "heartbeat",
    "lite_pull": "lite pull",
    "transaction": "transaction",
    "consumer_manager": "consumer",
    "admin": "admin",
    "reply": "reply",
}
_VERSIONS: Final = {value: name.lower() for name, value in vars(Version).items() if name.isupper()}
_MODES: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
RETRIES: Final = (names.RETRY_PREFIX, names.DLQ_PREFIX)


def truth(value: bool) -> str:
    return "true" if value else "false"


def is_system_group(group: str) -> bool:
    return group.upper().startswith(SYSTEM_GROUP)


def state(context: MetricsContext) -> Iterator[Point | None]:
    parked = context.parked_pulls()
    for processor, family in PROCESSORS.items():
        waiting = context.families[family].waiting if family else 0
        if family in ("pull", "lite pull"):  # a parked pull waits for a message, not for the broker
            waiting, parked = max(0, waiting - parked), max(0, parked - waiting)
        yield "rocketmq_processor_watermark", (processor,), waiting
    yield "rocketmq_broker_permission", (), context.config().broker_permission
    yield "rocketmq_topic_number", (), len(context.tables.topics.table)
    yield "rocketmq_consumer_group_number", (), len(context.tables.groups.table)


def messages(context: MetricsContext) -> Iterator[Point | None]:
    for topic, puts in list(context.stats.puts().items()):
        if topic.startswith(RETRIES):
            continue
        puts.refresh()
        inner = puts.inner
        usual = puts.rare.usual(puts.times - inner.times, puts.count - inner.count, puts.bytes - inner.bytes)
        for kind, sends in ((usual_kind(topic), usual), (FIFO, puts.rare.fifo), (DELAY, puts.rare.delayed)):
            if sends.times > 0:
                labels = (truth(puts.is_system), kind, topic)
                yield "rocketmq_messages_in", labels, sends.count
                yield "rocketmq_throughput_in", labels, sends.bytes
                yield "rocketmq_message_size", labels, placed(sends.sizes)
    yield from _out(context)
    for (succeeded, is_system), spread in context.stats.ends.topic_changes.items():
        status = "success" if succeeded else "failure"
        yield "rocketmq_topic_create_execution_time_milliseconds", (status, truth(is_system)), placed(spread)
    for succeeded, spread in context.stats.ends.group_changes.items():
        status = "success" if succeeded else "failure"
        yield "rocketmq_consumer_group_create_execution_time_milliseconds", (status,), placed(spread)


def _out(context: MetricsContext) -> Iterator[Point | None]:
    for topic, groups in list(context.stats.gets().items()):
        yield None
        for group, gets in list(groups.items()):
            gets.refresh()
            if not gets.count:
                continue
            is_retry: str | None = None
            origin = topic
            if gets.is_popped:
                retry = f"{names.RETRY_PREFIX}{group}"
                popped_again = topic.startswith(retry) and topic[len(retry) : len(retry) + 1] in ("_", "+")
                is_retry = truth(popped_again)
                origin = topic[len(retry) + 1 :] if popped_again else topic
            if origin.startswith(RETRIES):
                continue
            is_system = truth(gets.is_system or is_system_group(group))
            yield "rocketmq_messages_out", (group, is_retry, is_system, origin), gets.count
            yield "rocketmq_throughput_out", (group, is_retry, is_system, origin), gets.bytes


def connections(context: MetricsContext) -> Iterator[Point | None]:
    counts: dict[tuple[str, str], int] = {}
    for members in list(context.tables.producers.table.values()):
        for member in list(members.values()):
            key = (_language(member.language), _version(member.version))
            counts[key] = counts.get(key, 0) + 1
        yield None
    for (language, version), count in counts.items():
        yield "rocketmq_producer_connections", (language, "remoting", version), count
    for group in list(context.tables.consumers.table.values()):
        counts = {}
        for member in list(group.members.values()):
            key = (_language(member.language), _version(member.version))
            counts[key] = counts.get(key, 0) + 1
        mode = _MODES.get(group.consume_type or "", "push")
        for (language, version), count in counts.items():
            labels = (mode, group.name, truth(is_system_group(group.name)), language, "remoting", version)
            yield "rocketmq_consumer_connections", labels, count
        yield None


def _language(code: int) -> str:
    return LANGUAGE_NAMES.get(code, str(code)).lower()


def _version(code: int) -> str:
    return _VERSIONS.get(code, str(code))


def transactions(context: MetricsContext) -> Iterator[Point | None]:
    ends = context.stats.ends
    for topic, count in list(ends.commits.items()):
        yield "rocketmq_commit_messages", (topic,), count
    for topic, count in list(ends.rollbacks.items()):
        yield "rocketmq_rollback_messages", (topic,), count
    for topic, spread in list(ends.finish_s.items()):
        yield "rocketmq_finish_message_latency_milliseconds", (topic,), placed(spread)
    for topic, entry in list(context.tables.half_counts.table.items()):
        yield "rocketmq_half_messages", (topic,), entry.count


def requests(context: MetricsContext) -> Iterator[Point | None]:
    meters = [endpoint.meter for endpoint in context.endpoints if endpoint.meter is not None]
    for labels, bounds, counts, total in latency_rows(meters):
        yield "rocketmq_rpc_latency_milliseconds", tuple(labels.values()), Placed(bounds, counts, total)


def store(context: MetricsContext) -> Iterator[Point | None]:
    store = context.store
    root = store.options.root_dir
    try:
        space = os.statvfs(root)
        yield "rocketmq_storage_size_bytes", DISK, (space.f_blocks - space.f_bfree) * space.f_frsize
        yield "cometmq_disk_free_bytes", (), space.f_bavail * space.f_frsize
    except OSError:
        yield None  # a disk that does not answer has no size
    yield "rocketmq_storage_flush_behind_bytes", DISK, store.log.max_offset - store.log.flushed_offset
    yield "rocketmq_storage_dispatch_behind_bytes", DISK, store.dispatcher.behind_bytes
    earliest_ms = store.lookup.earliest_log_time()
    if earliest_ms >= 0:
        yield "rocketmq_storage_message_reserve_time_milliseconds", DISK, context.clock.now_ms() - earliest_ms
    if context.config().timer_wheel_enabled:
        yield from _timers(context)


def _timers(context: MetricsContext) -> Iterator[Point | None]:
    timers = context.timers
    yield "rocketmq_timer_enqueue_lag", DISK, max(0, timers.queue_behind())
    files = timers.files()
    behind_ms = 0
    if files is not None and timers.queue_behind() > 0:
        entries = context.store.queue_entries(names.TIMER_TOPIC, 0, files.queue_offset, 1)
        stored_ms = context.store.lookup.store_time_at(entries[0][0]) if entries else -1
        behind_ms = max(0, context.clock.now_ms() - stored_ms) if stored_ms >= 0 else 0
    yield "rocketmq_timer_enqueue_latency_milliseconds", DISK, behind_ms
    yield "rocketmq_timer_dequeue_lag", DISK, files.pending if files is not None else 0
    late_ms = timers.read_behind_ms() if files is not None and files.pending else 0
    yield "rocketmq_timer_dequeue_latency_milliseconds", DISK, max(0, late_ms)
    for topic, count in list(timers.tally.timers_in.items()):
        yield "rocketmq_timer_enqueue", (*DISK, topic), count
    for topic, count in list(timers.tally.timers_out.items()):
        yield "rocketmq_timer_dequeue", (*DISK, topic), count
    for topic, spread in list(timers.tally.delay_s.items()):
        yield "rocketmq_delay_message_latency_seconds", (*DISK, topic), placed(spread)
    for topic, entry in list(context.tables.timer_counts.table.items()):
        yield "rocketmq_timing_messages", (*DISK, topic), entry.count
    found = [0] * len(SNAPSHOT_S)
    if files is not None and files.pending:
        now_ms = context.clock.now_ms()
        for slot in files.wheel.filled(files.read_ms // files.precision_ms):
            due_s = max(0, slot.step * files.precision_ms - now_ms) / 1000
            index = next((index for index, bound in enumerate(SNAPSHOT_S) if due_s <= bound), -1)
            if index >= 0:
                found[index] += slot.messages
            yield None
    for bound, count in zip(SNAPSHOT_S, found, strict=True):
        yield "rocketmq_timer_message_snapshot", (*DISK, str(bound)), count


def pop(context: MetricsContext) -> Iterator[Point | None]:
    messages_in_hand, queues = context.in_hand()
    yield "rocketmq_pop_offset_buffer_size", (), messages_in_hand
    yield "rocketmq_pop_checkpoint_buffer_size", (), queues


def own(context: MetricsContext) -> Iterator[Point | None]:
    build = build_info()
    yield "cometmq_build", (truth(build.compiled), build.python, build.version), 1
    resident = resident_bytes()
    if resident is not None:
        yield "cometmq_process_resident_bytes", (), resident
    yield "cometmq_process_cpu_seconds", (), time.process_time()
    try:
        yield "cometmq_open_files", (), len(os.listdir("/proc/self/fd"))
    except OSError:
        yield None
    yield "cometmq_connections", (), sum(len(endpoint.connections) for endpoint in context.endpoints)
    yield "cometmq_parked_pulls", (), context.parked_pulls()
    yield "cometmq_inflight_bytes", (), sum(endpoint.inflight_bytes for endpoint in context.endpoints)
    watch, flusher = context.watch, context.store.flusher
    yield "cometmq_loop_lag_seconds", (), Placed(LAG_BOUNDS_S, tuple(watch.lags), watch.lag_sum_s)
    yield "cometmq_flush_seconds", (), Placed(FLUSH_BOUNDS_S, tuple(flusher.times), flusher.sum_s)
    yield "cometmq_flush_errors", (), 0 if flusher.failure is None else 1
    yield "cometmq_store_read_only", (), 0 if context.store.flags.writable else 1
    segments = context.store.log
    yield "cometmq_commitlog_bytes", (), segments.max_offset - segments.min_offset
    refused = sum(family.refused for family in context.families.values())
    yield "cometmq_client_refused", ("busy",), refused
    yield "cometmq_client_refused", ("signature",), context.wrong_signatures()
    status = context.ha_status()
    for link in status.ha_connection_info:
        yield "cometmq_replica_behind_bytes", (link.addr,), link.diff
    yield "cometmq_replicas_in_sync", (), status.in_sync_slave_nums
    for check in context.checks():
        yield "cometmq_ready", (check.name,), 1 if check.ok else 0
