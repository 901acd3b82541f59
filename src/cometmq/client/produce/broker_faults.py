"""Brokers that were slow or failed, and until when a producer should leave them alone. Off unless switched on.

    last call took at least   0.05  0.1  0.55  1.8  3    5    15      seconds
    not available for         0     0    2     5    6    10   30      seconds

A call that failed counts as one of 10 s. A later end of unavailability replaces an earlier one, never the reverse.
A broker is *reachable* unless a call failed; without a detector only a later success makes it so again. Brokers that
nothing is known of are both available and reachable.

Do not combine it with ordering: a key's queue may be on a broker that is left alone.
"""

from typing import Final

ISOLATED_S: Final = 10.0
_STEPS: Final = (
    (15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0), (0.1, 0.0), (0.05, 0.0),
)  # fmt: skip


def unavailable_for_s(latency_s: float) -> float:
    for least_s, pause_s in _STEPS:
        if latency_s >= least_s:
            return pause_s
    return 0.0


class Faults:
    """What one producer knows of its brokers, by name. Times are readings of the caller's monotonic clock."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Fault] = {}

    def note(
        self, broker: str, latency_s: float, now_s: float, *, failed: bool = False, reachable: bool = True
    ) -> None:
        fault = self._brokers.setdefault(broker, _Fault())
        pause_s = unavailable_for_s(ISOLATED_S if failed else latency_s)
        fault.available_at_s = max(fault.available_at_s, now_s + pause_s) if pause_s else fault.available_at_s
        fault.is_reachable = reachable

    def is_available(self, broker: str, now_s: float) -> bool:
        fault = self._brokers.get(broker)
        return fault is None or now_s >= fault.available_at_s

    def is_reachable(self, broker: str) -> bool:
        fault = self._brokers.get(broker)
        return fault is None or fault.is_reachable

    def unreachable(self) -> list[str]:
        return [broker for broker, fault in self._brokers.items() if not fault.is_reachable]

    def set_reachable(self, broker: str) -> None:
        if broker in self._brokers:
            self._brokers[broker].is_reachable = True

    def forget(self, broker: str) -> None:
        self._brokers.pop(broker, None)


class _Fault:
    __slots__ = ("available_at_s", "is_reachable")

    def __init__(self) -> None:
        self.available_at_s = 0.0
        self.is_reachable = True
