"""How a handler says what became of its messages.

    return                    done (a value answers a request)
    raise Retry(after=60)     again later; without `after` the broker decides: 10 s, 30 s, 1 min, ... 2 h
    raise Reject("bad data")  never again: to the dead letters of the group
    raise anything else       like Retry()

    return Outcome.X          the same said as RocketMQ's listeners do; a handler that is annotated to return an Outcome
                              and returns None has said nothing, and its messages come again

In a batch, `done` says how many of its first messages are handled and stay so.
"""

import enum
from bisect import bisect_left
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from cometmq.errors import ConfigError

# Delay levels 1 to 18 in seconds, as brokers have them unless they are told otherwise (messageDelayLevel).
DELAY_LEVELS_S: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
BROKER_DECIDES: Final = 0
DEAD_LETTER: Final = -1

# How a handler ended, in RocketMQ's numbers: hooks and traces show them.
SUCCESS: Final = 0
TIMEOUT: Final = 1
EXCEPTION: Final = 2
NO_RESULT: Final = 3
FAILED: Final = 4
LABELS: Final = ("success", "timeout", "exception", "null", "failed")


class Outcome(enum.Enum):
    """LATER: again after a while; in an ordered topic the queue rests so long. COMMIT and ROLLBACK are for ordered
    handlers without auto_commit: finish, or put back, everything since the last COMMIT."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


class Retry(Exception):
    """Deliver it again. `after` seconds are rounded to the nearest of the broker's delay levels; in an ordered topic
    the queue rests so long, 10 ms to 30 s."""

    def __init__(self, after: float | timedelta | None = None, *, done: int = 0) -> None:
        seconds: object = after.total_seconds() if isinstance(after, timedelta) else after
        # Said to the handler, where it counts as its failure: later nobody could do anything with it.
        if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
            raise ConfigError(f"a retry after {after!r}: give seconds or a timedelta, 0 or more")
        self.after: float | None = seconds
        self.done = done
        super().__init__(f"again after {self.after} s" if self.after is not None else "again later")


class Reject(Exception):
    """Deliver it never again: it becomes a dead letter of the group."""

    def __init__(self, reason: str = "", *, done: int = 0) -> None:
        self.reason = reason
        self.done = done
        super().__init__(reason or "rejected")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a consumer does with messages after their handler: `label` is how it ended, `done` how many of them are
    finished whatever `outcome` says of the rest."""

    label: int
    outcome: Outcome
    done: int = 0
    delay_level: int = BROKER_DECIDES
    suspend_s: float | None = None
    error: BaseException | None = None


OK: Final = Verdict(SUCCESS, Outcome.SUCCESS)
NOTHING_SAID: Final = Verdict(NO_RESULT, Outcome.LATER)


def judge(result: object, needs_outcome: bool) -> Verdict:
    """What a handler means that returned."""
    if isinstance(result, Outcome):
        fine = result in (Outcome.SUCCESS, Outcome.COMMIT)
        return OK if result is Outcome.SUCCESS else Verdict(SUCCESS if fine else FAILED, result)
    return NOTHING_SAID if needs_outcome and result is None else OK


def judge_error(error: Exception) -> Verdict:
    """What a handler means that raised."""
    if isinstance(error, Retry):
        level = nearest_level(error.after) if error.after is not None else BROKER_DECIDES
        return Verdict(FAILED, Outcome.LATER, max(0, error.done), level, error.after, error)
    if isinstance(error, Reject):
        return Verdict(FAILED, Outcome.LATER, max(0, error.done), DEAD_LETTER, None, error)
    return Verdict(EXCEPTION, Outcome.LATER, error=error)


def nearest_level(after_s: float) -> int:
    """The delay level whose time is nearest; of two equally near the longer one."""
    above = bisect_left(DELAY_LEVELS_S, after_s)
    if above == 0:
        return 1
    if above == len(DELAY_LEVELS_S):
        return above
    is_below_nearer = after_s - DELAY_LEVELS_S[above - 1] < DELAY_LEVELS_S[above] - after_s
    return above if is_below_nearer else above + 1
