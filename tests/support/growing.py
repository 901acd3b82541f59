"""A process that does nothing but use a store, and tells how large it is meanwhile: python -m tests.support.growing ...

    messages DIRECTORY COUNT         so many small messages, expired as they come
    queues DIRECTORY COUNT           one message into each of so many queues; then opened again
    run DIRECTORY SECONDS            threads and timers, topics that come and go, readers, expiry

One JSON object a line: the sizes below, and what it had done by then. A process of its own, because the memory of a
test run says nothing about one store.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from cometmq.clock import SystemClock
from cometmq.store.background import Background
from cometmq.store.disk import OsDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutStatus
from cometmq.store.store import Store

EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
OPTIONS: dict[str, Any] = {
    "segment_bytes": 1 << 20,
    "queue_file_bytes": 20_000,
    "index_slots": 1000,
    "index_entries": 20_000,
    # Whatever is not the newest may go at once.
    "file_reserved_hours": 0,
    "delete_when": EVERY_HOUR,
    "lmq_enabled": True,
    "multi_dispatch_enabled": True,
}


def sample(directory: str, **done: int) -> None:
    """Print the sizes of this process and of its directory."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    maps = Path("/proc/self/maps").read_text().splitlines()
    sizes = {
        "anonymous_kib": int(status["RssAnon"].split()[0]),
        "resident_kib": int(status["VmRSS"].split()[0]),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "maps": sum(directory in line for line in maps),
        "queue_maps": sum(f"{directory}/consumequeue" in line for line in maps),
        "threads": len(os.listdir("/proc/self/task")),
        "files": sum(len(names) for _, _, names in os.walk(directory)),
    }
    print(json.dumps({**sizes, **done}), flush=True)


def open_store(directory: str) -> Store:
    return Store(StoreOptions(root_dir=directory, **OPTIONS), OsDisk(), SystemClock())


def put(store: Store, topic: str, queue_id: int, number: int, light: str = "") -> int:
    properties = f"KEYS\x01key{number}\x02TAGS\x01tag{number % 20}\x02"
    if light:
        properties += f"INNER_MULTI_DISPATCH\x01{light}\x02"
    return store.put(AppendRequest(topic, queue_id, b"x" * 100, properties)).status


def expire(store: Store) -> None:
    store.retention.round()
    while store.retention.follow():
        pass


def grow_by_messages(directory: str, count: int) -> None:
    store = open_store(directory)
    for number in range(count):
        assert put(store, f"Topic{number % 50}", number % 4, number) == PutStatus.OK
        if number % 1000 == 999:
            store.flush_now()
            store.write_queues()
            store.get(f"Topic{number % 50}", number % 4, store.queue_bounds(f"Topic{number % 50}", number % 4)[0], 32)
            expire(store)
        if (number + 1) % (count // 8) == 0:
            sample(directory, messages=number + 1)
    store.close()


def grow_by_queues(directory: str, count: int) -> None:
    store = open_store(directory)
    sample(directory, queues=0)
    for number in range(count):
        assert put(store, f"Topic{number // 4}", number % 4, number) == PutStatus.OK
    store.flush_queues_now()
    sample(directory, queues=sum(1 for _ in store.queues.all()))
    for number in range(0, count, 7):
        found = store.get(f"Topic{number // 4}", number % 4, 0, 1)
        assert found is not None
        assert found.count == 1
    store.close()
    del store
    again = open_store(directory)
    sample(directory, queues=sum(1 for _ in again.queues.all()))


async def run_long(directory: str, seconds: float) -> None:
    store = open_store(directory)
    background = Background(store, asyncio.get_running_loop().call_soon_threadsafe)
    background.start()
    chance = random.Random(1)
    topics: list[str] = []
    number = made = refused = 0
    began_s = next_sample_s = time.monotonic()
    while (now_s := time.monotonic()) - began_s < seconds:
        if len(topics) < 40:
            made += 1
            topics.append(f"Topic{made}")
        elif chance.random() < 0.3:
            store.delete_topic(topics.pop(chance.randrange(len(topics))))
            store.delete_topic(f"%LMQ%{made - 60}")
        for _ in range(100):
            number += 1
            light = f"%LMQ%{made}" if number % 10 == 0 else ""
            # The next segment may not be ready: nothing else may be wrong.
            refused += put(store, chance.choice(topics), chance.randrange(4), number, light) != PutStatus.OK
        topic = chance.choice(topics)
        store.get(topic, 0, store.queue_bounds(topic, 0)[0], 32)
        if number % 5000 == 0:
            expire(store)
        if now_s >= next_sample_s:
            next_sample_s += seconds / 20
            sample(directory, messages=number - refused, topics=made, tasks=len(asyncio.all_tasks()))
        await asyncio.sleep(0.002)
    background.stop()
    store.close()


def main(what: str, directory: str, size: str) -> None:
    if what == "run":
        asyncio.run(run_long(directory, float(size)))
    else:
        {"messages": grow_by_messages, "queues": grow_by_queues}[what](directory, int(size))


if __name__ == "__main__":
    main(*sys.argv[1:])
