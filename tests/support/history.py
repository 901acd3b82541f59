"""A history of what was sent, acked and received, and whether it can be true.

    history = History()
    history.send("7", lane="customer")       before a send; `attempt` for every time that it goes out
    history.ack("7")                         its receipt came; otherwise nobody knows whether it is stored
    history.disturb()                        something happened after which messages may be delivered again
    history.share(True)                      from now on members share queues, and take them from each other
    history.receive("7", place)              a handler has it; `place` is where it is stored
    history.check()

    lost         acked and never received
    invented     received and never sent
    stored twice without a second attempt
    delivered twice without a disturbance, another member, or a failure of its handler in between
    out of order: within a lane, first deliveries do not come in the order of sending
"""

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

# Topic, broker, queue, offset.
Place: TypeAlias = tuple[str, str, int, int]


@dataclass(slots=True)
class Sent:
    number: int
    lane: str | None
    attempts: int = 0
    acked: bool = False
    deliveries: list["Delivery"] = field(default_factory=list)


@dataclass(slots=True)
class Delivery:
    place: Place
    number: int
    era: int
    shared: bool
    failed: bool = False


class History:
    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self.invented: list[str] = []
        self.deliveries = 0
        self.era = 0
        self._shared = False

    def send(self, body: str, lane: str | None = None) -> None:
        assert body not in self.sent, f"{body} is sent twice: the history could not tell them apart"
        self.sent[body] = Sent(len(self.sent), lane)

    def attempt(self, body: str) -> None:
        self.sent[body].attempts += 1

    def ack(self, body: str) -> None:
        self.sent[body].acked = True

    def disturb(self) -> None:
        self.era += 1

    def share(self, shared: bool) -> None:
        self.disturb()
        self._shared = shared

    def receive(self, body: str, place: Place, *, failed: bool = False) -> None:
        self.deliveries += 1
        sent = self.sent.get(body)
        if sent is None:
            self.invented.append(body)
        else:
            sent.deliveries.append(Delivery(place, self.deliveries, self.era, self._shared, failed))

    @property
    def acked(self) -> int:
        return sum(sent.acked for sent in self.sent.values())

    @property
    def missing(self) -> list[str]:
        """Acked and not received so far."""
        return [body for body, sent in self.sent.items() if sent.acked and not sent.deliveries]

    def check(self) -> None:
        faults = [f"{body}: received, never sent" for body in self.invented]
        faults += [f"{body}: acked, never received" for body in self.missing]
        for body, sent in self.sent.items():
            faults += _repeats(body, sent)
        faults += self._disorder()
        assert not faults, f"{len(faults)} faults in the history: " + "; ".join(faults[:20])

    def _disorder(self) -> list[str]:
        lanes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for body, sent in self.sent.items():  # in the order of sending
            if sent.lane is not None and sent.deliveries:
                lanes[sent.lane].append((sent.deliveries[0].number, body))
        return [
            f"{body}: received after {later}, which was sent after it to lane {lane}"
            for lane, received in lanes.items()
            for (first, body), (second, later) in itertools.pairwise(received)
            if first > second
        ]


def _repeats(body: str, sent: Sent) -> list[str]:
    faults = []
    places: dict[Place, Delivery] = {}
    for delivery in sent.deliveries:
        before = places.get(delivery.place)
        if before is not None and before.era == delivery.era and not before.failed and not before.shared:
            faults.append(f"{body}: delivered twice from {delivery.place} for no reason")
        places[delivery.place] = delivery
    # A failed handler makes a new copy of the message; a second attempt may.
    copies = len({delivery.place for delivery in sent.deliveries}) - sum(it.failed for it in sent.deliveries)
    if copies > max(1, sent.attempts):
        faults.append(f"{body}: stored {copies} times after {sent.attempts} attempts")
    return faults
