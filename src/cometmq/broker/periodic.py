"""What is done again and again by the clock, each under a name."""

from collections.abc import Callable

from cometmq.clock import Clock, Timer


class Periods:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[str, Timer] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._timers

    def every(self, name: str, interval_s: Callable[[], float], act: Callable[[], object], first_s: float) -> None:
        """The interval is asked for each time: settings may change."""

        def tick() -> None:
            self._timers[name] = self._clock.call_later(interval_s(), tick)
            act()

        self._timers[name] = self._clock.call_later(first_s, tick)

    def cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class Rounds:
    """What one room does by the clock for the whole replica group, while this broker is the one that does it.

    open      as the store and the tables are now; StoreError or OSError if they cannot be read
    start     by the clock from now on, until `pause`
    resume    a message that was refused because it was on its way to another broker has got there: try again
    finish    no more work is begun; what is under way ends as long as `is_writing`
    close     after that; the store is still open
    """

    def __init__(self, clock: Clock) -> None:
        self._periods = Periods(clock)

    def open(self) -> None: ...

    def start(self) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        self._periods.stop()

    def resume(self) -> None: ...

    def finish(self) -> None: ...

    @property
    def is_writing(self) -> bool:
        return False

    def close(self) -> None: ...
