"""What a handler asks when it has found out what a request is about: the guard of the ports knew only what it names."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cometmq.auth.resources import Need
from cometmq.net.connection import Connection
from cometmq.wire.command import Command


@dataclass(frozen=True, slots=True)
class Rights:
    """`are_asked_for`: whether anybody may be refused. `require` raises RequestError."""

    are_asked_for: bool
    require: Callable[[Connection, Command, Iterable[Need]], None]
