"""What the sink remembers between tries, kept by the brokers as group offsets. See `sink`."""

from __future__ import annotations

import re
from typing import Final

from cometmq.spark.offsets import Positions, Queue, Range
from cometmq.spark.remote import READER_GROUP, Remote
from cometmq.wire.message import decode_records
from cometmq.wire.properties import decode

MARK: Final = "CMQ_TX"


class Ledger:
    def __init__(self, cluster: Remote, query: str, topic: str) -> None:
        self._cluster = cluster
        self._query = re.sub(r"[^A-Za-z0-9_-]", "_", query)
        self._topic = topic
        self._queues = cluster.queues([topic])

    # Which batch comes next

    def next_batch(self) -> int:
        place = self._place()
        return self._cluster.committed(f"__spark_tx_{self._query}", [place]).get(place, 0)

    def close_batch(self, batch: int) -> None:
        self._cluster.commit(f"__spark_tx_{self._query}", {self._place(): batch + 1})

    def _place(self) -> Queue:
        return self._queues[0]

    # What an earlier try has sent

    def look(self, partition: int, prefix: str, attempt: int) -> set[int]:
        """Sequences of this partition's present batch that are in the target queues already."""
        group = f"__spark_floor_{self._query}_{partition}"
        floors = self._cluster.committed(group, self._queues)
        ends = self._cluster.maximums(self._queues)
        unknown = {queue: ends[queue] for queue in self._queues if queue not in floors}
        if unknown:
            # Nothing of this partition can lie below: it has not sent anything to these queues yet.
            self._cluster.commit(group, unknown)
        there: set[int] = set()
        for queue, floor in floors.items():
            if floor < ends[queue]:
                there |= self._cluster.run(self._scan(Range(queue, floor, ends[queue]), prefix))
        return there

    def raise_floor(self, partition: int, ends: Positions) -> None:
        if ends:
            self._cluster.commit(f"__spark_floor_{self._query}_{partition}", ends)

    async def _scan(self, one: Range, prefix: str) -> set[int]:
        found: set[int] = set()
        position = one.first
        while position < one.last:
            pulled = await self._cluster.pull(one.queue, position, 4096, 1 << 22, READER_GROUP, ("TAG", "*"))
            if pulled.moved:
                position = max(position + 1, pulled.bounds.first)
                continue
            if pulled.body:
                for message in decode_records(pulled.body, check_crc=False):
                    mark = decode(message.properties).get(MARK, "")
                    if mark.startswith(prefix):
                        found.add(int(mark[len(prefix) :]))
            if pulled.next_offset <= position:
                break
            position = pulled.next_offset
        return found
