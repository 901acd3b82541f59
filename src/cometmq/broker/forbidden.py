"""Consuming that a rule of the operator bars: code 16, and a number that tells the client which rule it is."""

from typing import Final

from cometmq.errors import RequestError
from cometmq.wire.codes import Response


class Forbidden(RequestError):
    """`rule` is one of the numbers below."""

    BROKER: Final = 1
    GROUP: Final = 2
    TOPIC: Final = 3
    BROADCAST: Final = 4
    GROUP_TOPIC: Final = 5

    def __init__(self, remark: str, rule: int) -> None:
        super().__init__(Response.NO_PERMISSION, remark)
        self.rule = rule
