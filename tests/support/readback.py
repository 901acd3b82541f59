"""Reading a store back and comparing it with what was put into it; for messages of tests/support/kinds.py."""

from __future__ import annotations

from collections.abc import Iterable

from cometmq.clock import SystemClock
from cometmq.store.disk import OsDisk
from cometmq.store.options import StoreOptions
from cometmq.store.results import GetResult, GetStatus
from cometmq.store.store import Store
from cometmq.wire.record.message import StoredMessage, decode_record, decode_records
from cometmq.wire.record.properties import decode
from tests.support import kinds

EVER = (0, 1 << 60)

# (topic, queue id, queue offset) of each message to its key: each member of an inner batch has its own.
Found = dict[tuple[str, int, int], str]


def open_directory(directory: str, **options: object) -> Store:
    """Without background work; `close()` it."""
    settings = StoreOptions(root_dir=directory, **options)  # type: ignore[arg-type]
    return Store(settings, OsDisk(), SystemClock(), is_batch_topic=kinds.is_batch_topic)


def read_queue(store: Store, topic: str, queue_id: int) -> list[tuple[int, StoredMessage]]:
    """(queue offset, message) of every record of a queue, as a consumer reads it from the first on."""
    offset, end = store.queue_bounds(topic, queue_id)
    messages: list[tuple[int, StoredMessage]] = []
    while offset < end:
        result = _get(store, topic, queue_id, offset)
        assert result.status == GetStatus.FOUND, f"{topic}-{queue_id} at {offset} of {end}: status {result.status}"
        assert result.next_offset > offset
        records = [record for piece in result.slices for record in decode_records(piece)]
        messages += zip(result.queue_offsets, records, strict=True)
        offset = result.next_offset
    return messages


def _get(store: Store, topic: str, queue_id: int, offset: int) -> GetResult:
    result = store.get(topic, queue_id, offset, 32)
    assert result is not None, "the store is closed or not readable"
    if result.cold:
        store.reading.load(result)
        result = store.get(topic, queue_id, offset, 32, loaded_units=result.cold_units)
        assert result is not None
    return result


def read_all(store: Store, *, others: bool = False) -> Found:
    """Every message of every queue, each compared with its plan; offsets run from the queue's first without gap.

    With `others` there may be messages that were not made from a number; of these only the offsets are checked.
    """
    found: Found = {}
    for queue in list(store.queues.all()):
        place = f"{queue.topic}-{queue.queue_id}"
        expected, end = store.queue_bounds(queue.topic, queue.queue_id)
        for offset, message in read_queue(store, queue.topic, queue.queue_id):
            assert offset == expected, f"{place}: {offset} where {expected} should be"
            if others and kinds.serial_of(message) < 0:
                keys = [kinds.key_of(message)] * int(decode(message.properties).get("INNER_NUM", 1))
            else:
                keys = _keys_checked(queue.topic, offset, message)
            found.update({(queue.topic, queue.queue_id, offset + at): key for at, key in enumerate(keys)})
            expected = offset + len(keys)
        assert expected == end, f"{place}: ends at {expected}, not at {end}"
        assert store.log.counters.next_offset(queue.topic, queue.queue_id) == end, f"{place}: wrong counter"
    if not others:
        _assert_once(found)
    return found


def _keys_checked(topic: str, offset: int, message: StoredMessage) -> list[str]:
    """The keys of the messages in a record, which must be as planned and know their number."""
    plan = kinds.plan(kinds.serial_of(message))
    assert not plan.difference(message), f"{topic} at {offset}: {kinds.key_of(message)} {plan.difference(message)}"
    properties = decode(message.properties)
    number = message.queue_offset
    if topic in plan.light:
        names = properties["INNER_MULTI_DISPATCH"].split(",")
        number = int(properties["INNER_MULTI_QUEUE_OFFSET"].split(",")[names.index(topic)])
    elif plan.kind == "inner":
        number = int(properties["INNER_BASE"])
        assert kinds.inner_members(message) == [body for _, body in plan.members]
    assert number == offset, f"{topic} at {offset}: the record says {number}"
    return [key for key, _ in plan.members] if plan.kind == "inner" else [kinds.key_of(message)]


def _assert_once(found: Found) -> None:
    seen: set[tuple[str, str]] = set()
    for (topic, queue_id, offset), key in found.items():
        assert (topic, key) not in seen, f"{key} is twice in {topic}, again at {queue_id}-{offset}"
        seen.add((topic, key))


def by_key(store: Store, topic: str, key: str) -> Iterable[int]:
    """Physical offsets."""
    return [decode_record(record).physical_offset for record in store.lookup.query(topic, key, 64, *EVER).records]
