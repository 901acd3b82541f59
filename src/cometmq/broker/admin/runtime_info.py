"""The figures of a running broker (request 28): what mqadmin's clusterList and brokerStatus show.

All values are texts, and tools read many of them as numbers: none may be empty. Rates are three numbers with a blank
between them, for the last 10 s, minute and ten minutes. Keys are RocketMQ's; where it measures something that does not
exist here (a lock, a pool of buffers, queues in front of threads) the value says that nothing is waiting. Keys that
begin with `cometmq.` are our own:

    cometmq.mappedFiles, mappedBytes     segments of the log and files of the index
    cometmq.queueFiles, queueBytes       files of the consume queues
    cometmq.flushBehindBytes             what remainHowManyDataToFlush says, exactly
    cometmq.parkedPulls                  pulls that wait for messages
    cometmq.setRole, setEpoch, setInSync, setSeals    of a member of a set that elects its master
    cometmq.setStore                     what it sees of each node of etcd: "h:2379 ok; h:2379 refused since 17..."
    cometmq.promises                     "kept", or the conditions of /readyz that do not hold, with what was found
    cometmq.memoryBytes                  memory of the process without pages of files; not there if the system says none
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.admin.context import RuntimeContext
from cometmq.memory import own_bytes
from cometmq.names import SCHEDULE_TOPIC
from cometmq.store.log.append import PUT_TIME_CLASSES_MS, PutMetrics

VERSION: Final = "V5_5_0"
NO_BUFFER_POOL: Final = 2**31 - 1
_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

# Key in RocketMQ's spelling -> family of requests.
_QUEUES: Final = {
    "sendThreadPoolQueue": "send",
    "pullThreadPoolQueue": "pull",
    "litePullThreadPoolQueue": "lite pull",
    "queryThreadPoolQueue": "query",
    "ackThreadPoolQueue": "ack",
}


def runtime_info(context: RuntimeContext) -> dict[str, str]:
    figures = {
        **_identity(context),
        **_puts_and_gets(context),
        **_daily(context),
        **_store(context),
        **_disks(context),
        **_delays(context),
        **_waiting(context),
        **_own(context),
        **context.own_state(),
    }
    return {key: str(value) for key, value in figures.items()}


def _identity(context: RuntimeContext) -> dict[str, object]:
    return {
        "bootTimestamp": context.stats.started_ms,
        "runtime": _duration(context.stats.uptime_s()),
        "brokerActive": "true" if context.is_active() else "false",
        "brokerVersionDesc": VERSION,
        "startAcceptSendRequestTimeStamp": context.config().start_accept_send_ms,
    }


def _puts_and_gets(context: RuntimeContext) -> dict[str, object]:
    puts = context.store.log.metrics
    rates = context.stats.pace.rates()
    total = [found + missed for found, missed in zip(rates.found, rates.missed, strict=True)]
    return {
        "putMessageTimesTotal": puts.messages,
        "putMessageFailedTimes": puts.failed,
        "putMessageSizeTotal": puts.bytes,
        "putMessageAverageSize": puts.bytes / max(1, puts.messages),
        "putMessageEntireTimeMax": int(puts.longest_s * 1000),
        "putMessageDistributeTime": _distribution(puts),
        "putLatency99": f"{_percentile_ms(puts, 0.99):.2f}",
        "putLatency999": f"{_percentile_ms(puts, 0.999):.2f}",
        "getMessageEntireTimeMax": int(context.store.reading.longest_s * 1000),
        "putTps": _rates(rates.put),
        "getFoundTps": _rates(rates.found),
        "getMissTps": _rates(rates.missed),
        "getTotalTps": _rates(total),
        "getTransferredTps": _rates(rates.transferred),
    }


def _daily(context: RuntimeContext) -> dict[str, object]:
    put_now, got_now = context.stats.messages()
    (put_yesterday, got_yesterday), (put_today, got_today) = context.stats.mornings()
    return {
        "msgPutTotalYesterdayMorning": put_yesterday,
        "msgPutTotalTodayMorning": put_today,
        "msgPutTotalTodayNow": put_now,
        "msgGetTotalYesterdayMorning": got_yesterday,
        "msgGetTotalTodayMorning": got_today,
        "msgGetTotalTodayNow": got_now,
    }


def _store(context: RuntimeContext) -> dict[str, object]:
    store = context.store
    return {
        "commitLogMinOffset": store.log.min_offset,
        "commitLogMaxOffset": store.log.max_offset,
        "dispatchBehindBytes": store.dispatcher.behind_bytes,
        "dispatchMaxBuffer": 0,
        "earliestMessageTimeStamp": store.lookup.earliest_log_time(),
        "pageCacheLockTimeMills": 0,
        "remainTransientStoreBufferNumbs": NO_BUFFER_POOL,
        "remainHowManyDataToFlush": _size(store.log.max_offset - store.log.flushed_offset),
    }


def _disks(context: RuntimeContext) -> dict[str, object]:
    options, disk = context.store.options, context.store.disk
    directories = options.commitlog_dirs()
    ratios: dict[str, float] = {}
    for path in [*directories, options.path("consumequeue")]:
        try:
            ratios[path] = disk.used_ratio(path)
        except OSError:
            ratios[path] = -1.0
    least = min(ratios[path] for path in directories)
    free_bytes = disk.usable_bytes(directories[0]) if least >= 0 else 0
    total_bytes = int(free_bytes / max(0.01, 1.0 - max(0.0, least)))
    return {
        "commitLogDiskRatio": least,
        **{f"commitLogDiskRatio_{path}": ratios[path] for path in directories},
        "consumeQueueDiskRatio": ratios[options.path("consumequeue")],
        "commitLogDirCapacity": f"Total : {_size(total_bytes)}, Free : {_size(free_bytes)}.",
    }


def _delays(context: RuntimeContext) -> dict[str, object]:
    """How far each delay level is delivered and how far it goes. The same of timer messages."""
    ends = context.store.queues
    levels = {
        f"scheduleMessageOffset_{level}": f"{offset},{ends.max_offset(SCHEDULE_TOPIC, level - 1)}"
        for level, offset in sorted(context.delays.offsets.items())
    }
    return {**levels, **context.timer_metrics()}


def _waiting(context: RuntimeContext) -> dict[str, object]:
    """Requests that were accepted and have no answer yet. A parked pull waits for a message, not for the broker."""
    waiting: dict[str, object] = {}
    parked = context.parked_pulls()
    for key, name in _QUEUES.items():
        family = context.families[name]
        count = family.waiting
        if name in ("pull", "lite pull"):
            count, parked = max(0, count - parked), max(0, parked - count)
        waiting[f"{key}Size"] = count
        waiting[f"{key}Capacity"] = family.waiting_max
        waiting[f"{key}HeadWaitTimeMills"] = 0
    transactions = context.families["transaction"]
    waiting["EndTransactionQueueSize"] = transactions.waiting
    waiting["EndTransactionThreadPoolQueueCapacity"] = transactions.waiting_max
    return waiting


def _own(context: RuntimeContext) -> dict[str, object]:
    store = context.store
    segments, segment_bytes = store.segments.totals()
    queues = [queue.files for queue in store.queues.all()]
    memory = own_bytes()
    return {
        **({"cometmq.memoryBytes": memory} if memory is not None else {}),
        "cometmq.mappedFiles": segments + len(store.index.files),
        "cometmq.mappedBytes": segment_bytes + sum(file.file.size for file in store.index.files),
        "cometmq.queueFiles": sum(len(files.starts) for files in queues),
        "cometmq.queueBytes": sum(len(files.starts) * files.file_bytes for files in queues),
        "cometmq.flushBehindBytes": store.log.max_offset - store.log.flushed_offset,
        "cometmq.parkedPulls": context.parked_pulls(),
        "cometmq.wrongSignatures": context.wrong_signatures(),
        "cometmq.openHalves": sum(entry.count for entry in context.half_counts.table.values()),
        "cometmq.propertyFilters": context.property_filters.count,
        "cometmq.lightQueues": store.queues.lmq_count,
    }


# Texts


def _rates(rates: list[float]) -> str:
    return " ".join(str(rate) for rate in rates)


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count: int) -> str:
    """`0 B`, `1.5 KiB`."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    unit = 0
    while value >= 1024 and unit < len(_BYTE_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.1f} {_BYTE_UNITS[unit]}"


def _distribution(puts: PutMetrics) -> str:
    """How many puts took how long, by class of time."""
    ends = [0, *PUT_TIME_CLASSES_MS]
    names = [f"[{low}~{high}ms]" for low, high in zip(ends, PUT_TIME_CLASSES_MS, strict=False)]
    names.append(f"[{ends[-1]}ms~]")
    return " ".join(f"{name}:{count}" for name, count in zip(names, puts.times, strict=True))


def _percentile_ms(puts: PutMetrics, part: float) -> float:
    """The upper end of the class that has this part of all puts below it or in it."""
    total = sum(puts.times)
    passed = 0
    for end_ms, count in zip(PUT_TIME_CLASSES_MS, puts.times, strict=False):
        passed += count
        if passed >= total * part:
            return float(end_ms) if total else 0.0
    return puts.longest_s * 1000
