"""Where the first parts of transactions are, by topic and transaction id: an EndTransaction names nothing else.

    send of a half     note(place)
    question           note(place)       of its newest copy
    EndTransaction     take              once: a second one is refused

What is not known any more (a restart, too many) is asked for by the broker, which notes it again. RocketMQ's proxy
forgets after 30 seconds; here the bound is a number.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cometmq.wire.headers import CheckTransactionState

HALVES_MAX: Final = 100_000


class Place(NamedTuple):
    broker: str
    queue_offset: int
    physical_offset: int
    is_asked: bool


class Halves:
    def __init__(self) -> None:
        self._places: dict[tuple[str, str], Place] = {}

    def put(self, topic: str, transaction_id: str, place: Place) -> None:
        key = (topic, transaction_id)
        self._places.pop(key, None)
        if len(self._places) >= HALVES_MAX:
            del self._places[next(iter(self._places))]
        self._places[key] = place

    def note(self, topic: str, transaction_id: str, header: CheckTransactionState) -> None:
        place = Place(header.broker_name or "", header.tran_state_table_offset, header.commit_log_offset, True)
        self.put(topic, transaction_id, place)

    def take(self, topic: str, transaction_id: str) -> Place | None:
        return self._places.pop((topic, transaction_id), None)
