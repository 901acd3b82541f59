"""Fences: what a try that was given up has sent, and has not been handled, is refused when it arrives at last.

A sender that must not send twice looks for what is there before it sends again. What a network, or the buffers of a
connection that broke, still hold of the try before is not there yet and would come after the look. So each try raises
the fence of its name first, and writes the epoch that it is given into its messages:

    RAISE_FENCE fence=NAME                     -> epoch, higher than any before: the time, or one more than the last
    message with CMQ_FENCE=NAME:EPOCH          refused if the fence of that name is higher; stored as CMQ_FENCED

A fence belongs to the user that raised it, where users sign: nobody else's messages are refused by it. It is kept in
memory: a broker that ends takes all its connections with it, and with them what they held. Names are dropped,
the oldest first, when there are more than `FENCES_MAX`.
"""

import re
from typing import Final

from cometmq.errors import RequestError
from cometmq.wire.codes import Response
from cometmq.wire.record.batch import encode_batch, split_batch
from cometmq.wire.record.properties import find, with_property, without

FENCES_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 64
PROPERTY: Final = "CMQ_FENCE"
PASSED: Final = "CMQ_FENCED"
_VALUE: Final = re.compile(r"([^\x01\x02]{1,64}):([0-9]{1,18})", re.ASCII)


class Fences:
    def __init__(self) -> None:
        self.table: dict[str, int] = {}

    def raised(self, name: str, now_ms: int, user: str = "") -> int:
        """The epoch of a new try."""
        if not 0 < len(name) <= NAME_CHARS_MAX or "\x01" in name or "\x02" in name:
            raise RequestError(
                Response.INVALID_PARAMETER, f"the name of a fence has 1 to {NAME_CHARS_MAX} characters, not {len(name)}"
            )
        name = _owned(name, user)
        epoch = max(now_ms, self.table.pop(name, 0) + 1)
        while len(self.table) >= FENCES_MAX:
            del self.table[next(iter(self.table))]
        self.table[name] = epoch
        return epoch

    def passed(self, properties: str, user: str = "") -> str:
        """What is stored of a message that may pass; RequestError for one that may not.

        Under another name: a copy of the message, sent by somebody else at another time, is nobody's late try.
        """
        value = find(properties, PROPERTY)
        found = _VALUE.fullmatch(value) if value is not None else None
        if found is None or value is None:
            return properties
        self._check(_owned(found[1], user), int(found[2]))
        return with_property(without(properties, PROPERTY), PASSED, value)

    def passed_batch(self, body: bytes, user: str = "") -> bytes:
        """All members or none, as a batch is stored."""
        members = split_batch(body)
        return encode_batch(
            [(flag, inner, _bytes(self.passed(_text(text), user)))
             for flag, inner, text in members]
        )  # fmt: skip

    def _check(self, name: str, epoch: int) -> None:
        raised = self.table.get(name, 0)
        if epoch < raised:
            raise RequestError(
                Response.NO_PERMISSION,
                f"the try that sent this was given up: its fence is {epoch}, a later try has raised it to {raised}",
            )


def _owned(name: str, user: str) -> str:
    """No name has the mark between the two."""
    return f"{user}\x01{name}" if user else name


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
