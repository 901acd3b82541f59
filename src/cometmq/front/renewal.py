"""Handles that are renewed for a push consumer while it works on a message.

delivered            remembered by message id and queue offset
10 s before its end  put off by 1, 3, 5, 10, 30, 60 minutes, by how often it was; the client keeps its first handle
after 3 hours        the message gets the delay of a failed one, and is forgotten
client gone          all are visible again in a second, for another member
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from cometmq.errors import CometError
from cometmq.front import handles
from cometmq.front.handles import Handle
from cometmq.front.refusals import Refused
from cometmq.front.requests import change_command, renewed
from cometmq.wire.codes import Response
from cometmq.wire.command import Command

STEPS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
AHEAD_MS: Final = 10_000
LONGEST_MS: Final = 3 * 3_600_000
AFTER_LONGEST_MS: Final = 10_000
TRIES_MAX: Final = 3
GIVEN_BACK_MS: Final = 1_000
# A client works on as many messages as its caches hold, a few thousand.
HANDLES_A_CLIENT_MAX: Final = 20_000

Key = tuple[str, str, int, int, int]
Ask = Callable[[Command, Callable[[Command], object]], object]


class Renewed:
    __slots__ = ("failures", "group", "handle", "is_asked", "since_ms", "times", "topic")

    def __init__(self, handle: Handle, group: str, topic: str) -> None:
        self.handle = handle
        self.group = group
        self.topic = topic
        self.since_ms = handle.popped_ms
        self.times = 0
        self.failures = 0
        self.is_asked = False


class Renewals:
    """Of one client. `ask` asks the broker."""

    def __init__(self, ask: Ask) -> None:
        self.table: dict[Key, Renewed] = {}
        self._ask = ask

    def add(self, message_id: str, handle: Handle, group: str, topic: str) -> None:
        if len(self.table) >= HANDLES_A_CLIENT_MAX:
            del self.table[next(iter(self.table))]  # it is not renewed, and comes again when its time is over
        self.table[_key(message_id, handle)] = Renewed(handle, group, topic)

    def newest(self, message_id: str, text: str, *, forget: bool) -> Handle | None:
        """None: it is not renewed here."""
        if not self.table:
            return None
        try:
            key = _key(message_id, handles.parse(text))
        except Refused:
            return None
        found = self.table.pop(key, None) if forget else self.table.get(key)
        return found.handle if found is not None else None

    def turn(self, now_ms: int) -> None:
        for key, one in list(self.table.items()):
            if one.is_asked or one.handle.due_ms - now_ms > AHEAD_MS:
                continue
            if now_ms - one.since_ms >= LONGEST_MS:
                del self.table[key]
                self._ask(change_command(one.handle, one.group, one.topic, AFTER_LONGEST_MS), _done)
                continue
            one.is_asked = True
            step_ms = STEPS_MS[min(one.times, len(STEPS_MS) - 1)]
            command = change_command(one.handle, one.group, one.topic, step_ms)
            self._ask(command, partial(self._answered, key, one))

    def _answered(self, key: Key, one: Renewed, response: Command) -> None:
        one.is_asked = False
        if response.code == Response.SUCCESS:
            try:
                one.handle = renewed(one.handle, response)
            except CometError:
                self.table.pop(key, None)
                return
            one.times += 1
            one.failures = 0
            return
        one.failures += 1
        if one.failures > TRIES_MAX:
            self.table.pop(key, None)

    def give_back(self) -> None:
        for one in self.table.values():
            self._ask(change_command(one.handle, one.group, one.topic, GIVEN_BACK_MS), _done)
        self.table.clear()


def _key(message_id: str, handle: Handle) -> Key:
    """The places of a message; a renewed handle has them, too."""
    return (message_id, handle.broker, handle.flag, handle.queue_id, handle.offset)


def _done(response: Command) -> None:
    """What fails comes again when its time is over."""
