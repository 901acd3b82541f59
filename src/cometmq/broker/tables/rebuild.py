"""What a broker makes again at its start because its files lack it and its log shows that it was there. Never silently.

    topics.json             a topic that is not in it and has messages      made again from its queues
    subscriptionGroup.json  missing: groups that have offsets or topics     made again with defaults
    delayOffset.json        missing: how far each level was delivered       found again by what was delivered
    consumerOffset.json     missing: nothing knows how far groups were      said
    timercheck              missing: nothing knows what was delivered       said

A topic is left out if it was deleted: its newest message is then older than the table, because a deletion makes a new
version of it. After a crash its queues may be there again, made from the log. Without any table nobody knows, and
whatever has messages is made again. Queues that an operator took away from a topic stay away, which is said too.

What a queue does not tell is as for a topic of a first message: permission to read and write, no attributes but the
type of queue. An operator should look at it, hence a warning for each.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cometmq import names
from cometmq.broker.tables.delay_progress import DelayProgress
from cometmq.broker.tables.system_topics import PERM_READ_WRITE
from cometmq.broker.tables.tables import Tables
from cometmq.names import SCHEDULE_TOPIC, TIMER_TOPIC
from cometmq.store.queues.consume_queues import LMQ_PREFIX, AnyQueue
from cometmq.wire.bodies import SubscriptionGroupConfig, TopicConfig
from cometmq.wire.record.properties import Property, find

if TYPE_CHECKING:
    from cometmq.store.store import Store
    from cometmq.wire.record.message import StoredMessage

logger = logging.getLogger(__name__)

# Of the index, for one key: a message is delivered once, and looked at again when it was tried again.
COPIES_MAX: Final = 256


def rebuild_tables(tables: Tables, store: Store, level_max: int, table_ms: int) -> None:
    """The store is open, tables are loaded. A file is missing if it is not there, or empty, and nor is its `.bak`.

    `level_max`: how many delay levels there are. `table_ms`: when the table of topics as it was read was last changed.
    """
    if not store.log.max_offset > store.log.min_offset:
        return
    missing = tables.files.missing
    _rebuild_topics(tables, store, 0 if "topics.json" in missing else table_ms)
    if "subscriptionGroup.json" in missing:
        _rebuild_groups(tables)
    if "delayOffset.json" in missing:
        _find_delays(tables.delays, store, level_max)
    if "consumerOffset.json" in missing:
        logger.warning(
            "start without offsets file=consumerOffset.json: it is missing beside a log with messages, so groups begin "
            "where their consumers say; restore it from a backup before they do, or reset their offsets"
        )


def warn_of_timers(store: Store) -> None:
    """Before the file is made."""
    if store.disk.exists(store.options.path("config", "timercheck")):
        return
    low, high = store.queue_bounds(TIMER_TOPIC, 0)
    if high > low:
        logger.warning(
            "start without progress of timers file=timercheck: it is missing beside messages=%d, so timer messages "
            "that were delivered before may come again",
            high - low,
        )


# Topics


def _rebuild_topics(tables: Tables, store: Store, table_ms: int) -> None:
    table = tables.topics.table
    made: list[TopicConfig] = []
    for name, queues, is_batch in _filled_topics(store):
        count = max(queues) + 1
        known = table.get(name)
        if known is not None:
            if known.read_queue_nums < count:
                logger.warning(
                    "found messages that nobody can read topic=%s queue=%d readQueueNums=%d: raise it to read them",
                    name, count - 1, known.read_queue_nums,
                )  # fmt: skip
            continue
        newest_ms = max(store.lookup.queue_store_time(name, it, queue.max_offset - 1) for it, queue in queues.items())
        if newest_ms < table_ms:
            logger.info("leave out queues of deleted topic=%s newest_ms=%d", name, newest_ms)
            continue
        made.append(rebuilt_topic(name, count, is_batch))
        logger.warning(
            "made topic again topic=%s queues=%d messages=%d: it has messages and is not in topics.json; check its "
            "queues, permission and attributes",
            name, count, sum(queue.max_offset - max(0, queue.min_offset) for queue in queues.values()),
        )  # fmt: skip
    if made:
        tables.topics.update(made)


def rebuilt_topic(name: str, queues: int, is_batch: bool) -> TopicConfig:
    attributes = {"queue.type": "BatchCQ"} if is_batch else {}
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=PERM_READ_WRITE,
        attributes=attributes,
    )


def _filled_topics(store: Store) -> list[tuple[str, dict[int, AnyQueue], bool]]:
    """Topics with messages: name, queues that have some, and whether batches are one record each."""
    found: list[tuple[str, dict[int, AnyQueue], bool]] = []
    for name, queues in store.queues.topics.items():
        if not name.startswith(LMQ_PREFIX):
            found.append((name, {number: it for number, it in queues.items() if _has_messages(it)}, False))
    for name, batch_queues in store.queues.batch_topics.items():
        found.append((name, {number: it for number, it in batch_queues.items() if _has_messages(it)}, True))
    return [it for it in found if it[1]]


def _has_messages(queue: AnyQueue) -> bool:
    return queue.max_offset > max(0, queue.min_offset)


# Groups


def _rebuild_groups(tables: Tables) -> None:
    """Those that have offsets, and those that have messages to try again or dead letters."""
    found = set(tables.offsets.groups())
    for topic in tables.topics.table:
        for prefix in (names.RETRY_PREFIX, names.DLQ_PREFIX):
            # A retry topic of POP names group and topic; which is which its offsets tell.
            if topic.startswith(prefix) and not any(topic.startswith(f"{prefix}{group}_") for group in found):
                found.add(topic.removeprefix(prefix).partition("+")[0])
    lost = sorted(it for it in found if it not in tables.groups.table and names.group_fault(it) is None)
    lost = [it for it in lost if not it.startswith(LMQ_PREFIX)]
    if not lost:
        return
    tables.groups.update([SubscriptionGroupConfig(group_name=name) for name in lost])
    logger.warning(
        "made groups again count=%d first=%s: subscriptionGroup.json is missing beside a log with messages; settings "
        "of groups are the defaults, and who was barred from a topic is not any more",
        len(lost), lost[:10],
    )  # fmt: skip


# Delay levels


def _find_delays(delays: DelayProgress, store: Store, level_max: int) -> None:
    """Each level is delivered in order, so there is one place in its queue before which all is delivered."""
    progress: dict[int, int] = {}
    for level in range(1, level_max + 1):
        low, high = store.queue_bounds(SCHEDULE_TOPIC, level - 1)
        if high > low:
            progress[level] = _first_kept(store, level, low, high)
    if not progress:
        return
    delays.resume(progress)
    logger.warning(
        "found progress of delays again offsets=%s: delayOffset.json is missing beside delayed messages; each is where "
        "the index of the log has no delivered copy any more",
        progress,
    )


def _first_kept(store: Store, level: int, low: int, high: int) -> int:
    while low < high:
        middle = (low + high) // 2
        entries = store.queue_entries(SCHEDULE_TOPIC, level - 1, middle, 1)
        message = store.message_at(entries[0][0], entries[0][1]) if entries else None
        if message is None or _is_delivered(store, message):
            low = middle + 1
        else:
            high = middle
    return low


def _is_delivered(store: Store, kept: StoredMessage) -> bool:
    """Whether the log has a copy in the real topic that was made from this message: with its key, and the mark of where
    it was to go."""
    text = kept.properties.decode("utf-8", "replace")
    topic, queue, key = (find(text, it) for it in (Property.REAL_TOPIC, Property.REAL_QID, Property.UNIQ_KEY))
    if topic is None or key is None:
        return False
    for place in store.index.query(topic, key, COPIES_MAX, kept.store_timestamp_ms, 2**62):
        copy = store.message_at(place) if place > kept.physical_offset else None
        if copy is None or copy.topic != topic:
            continue
        own = copy.properties.decode("utf-8", "replace")
        marks = (find(own, Property.REAL_TOPIC), find(own, Property.REAL_QID), find(own, Property.UNIQ_KEY))
        if marks == (topic, queue, key) and copy.reconsume_times == kept.reconsume_times:
            return True
    return False
