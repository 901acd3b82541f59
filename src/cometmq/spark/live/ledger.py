"""What the sink must know when it tries again, kept as messages of a topic of its own in the target cluster.

    topic cometmq_spark_ledger, one queue at each broker; tag: the query
    {"query": "...", "next": 7, "floors": {...}}

`next` is the batch to come: what is below was committed and is not sent again. `floors` are offsets of the queues of
the target below which nothing of that batch can lie: the ends when the batch before was committed, or when the query
began. A note goes to every broker that is there, and the one with the highest `next` counts; so a broker that is away
takes nothing with it, and one that is killed has what it answered for. Offsets of groups would not do: brokers save
those every few seconds.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any, Final, NamedTuple

from cometmq.client.admin import Admin
from cometmq.client.produce.producer import Producer
from cometmq.errors import CometError, NoRoute
from cometmq.spark.live.exactly_once import PAUSE_S, OffsetsById, marked, records, since
from cometmq.spark.live.offsets import Positions, Queue, Range, from_dict, to_dict
from cometmq.spark.live.remote import Remote
from cometmq.spark.live.topics import LEDGER_TOPIC
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.record.properties import Property

MARK: Final = "CMQ_TX"
# How long a broker that does not answer is waited for when another has the note.
PATIENCE_S: Final = 5.0
_STRETCH: Final = 1024


class Note(NamedTuple):
    next_batch: int
    floors: Positions


class Ledger:
    def __init__(self, cluster: Remote, producer: Producer[bytes], query: str, topic: str) -> None:
        self._cluster = cluster
        self._producer = producer
        self._query = query
        self._tag = re.sub(r"[^A-Za-z0-9_-]", "_", query)
        self._topic = topic

    def read(self) -> Note | None:
        """None for a query that has not begun."""
        found = [note for queue in self._places() for note in self._newest(queue)]
        if not found:
            return None
        latest = max(note.next_batch for note in found)
        notes = [note.floors for note in found if note.next_batch == latest]
        # Tasks that begin a query together note it one by one: the lowest is below all that they send.
        common = set(notes[0]).intersection(*notes)
        return Note(latest, {queue: min(floors[queue] for floors in notes) for queue in common})

    def begin(self) -> Note:
        """What was noted, or that the query begins now, which is noted before anything is sent."""
        return self.read() or self.close(-1)

    def close(self, batch: int) -> Note:
        """The batch is done: what comes next lies behind the present ends."""
        before = self.read() if batch >= 0 else None
        queues = self._cluster.queues([self._topic])
        floors = (before.floors if before is not None else {}) | self._cluster.maximums(queues)
        note = Note(batch + 1, floors)
        self._write({"query": self._query, "next": note.next_batch, "floors": to_dict(floors)})
        return note

    def look(self, note: Note, prefix: str) -> OffsetsById:
        """What earlier tries of the present batch have sent, by what follows the prefix in the mark."""
        queues = self._cluster.queues([self._topic])
        return marked(self._cluster, since(self._cluster, queues, note.floors), MARK, prefix)

    # The topic

    def _newest(self, place: Queue) -> list[Note]:
        """The last commit of the query, or all its beginnings. Read from the end."""
        bounds = self._cluster.bounds([place])[place]
        found: list[Note] = []
        last = bounds.last
        while last > bounds.first:
            first = max(bounds.first, last - _STRETCH)
            for message in self._cluster.run(records(self._cluster, Range(place, first, last), self._tag)):
                stated = json.loads(message.body)
                if stated["query"] == self._query:
                    found.append(Note(int(stated["next"]), from_dict(stated["floors"])))
            if any(note.next_batch for note in found):
                break
            last = first
        return found

    def _places(self) -> list[Queue]:
        try:
            return self._cluster.queues([LEDGER_TOPIC])
        except NoRoute:
            self._cluster.run(Admin(self._cluster.instance).create_topic(LEDGER_TOPIC, queues=1))
        give_up_s = time.monotonic() + self._cluster.connection.retry_s
        while True:
            try:
                return self._cluster.queues([LEDGER_TOPIC])
            except NoRoute:
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(0.1)

    def _write(self, stated: dict[str, Any]) -> None:
        """To all brokers; those that do not take it for a while are passed over, if one did."""
        body = json.dumps(stated).encode()
        begun_s = time.monotonic()
        stored: set[Queue] = set()
        while True:
            failed: CometError | None = None
            for place in [place for place in self._places() if place not in stored]:
                queue = MessageQueue(place.broker, place.number, LEDGER_TOPIC)
                sending = self._producer.send_record(LEDGER_TOPIC, body, {Property.TAGS: self._tag}, queue=queue)
                try:
                    self._cluster.run(sending)
                    stored.add(place)
                except CometError as error:
                    failed = error
            if failed is None:
                return
            waited_s = time.monotonic() - begun_s
            if waited_s > PATIENCE_S and stored:
                return
            if waited_s > self._cluster.connection.retry_s:
                raise failed
            time.sleep(PAUSE_S)
