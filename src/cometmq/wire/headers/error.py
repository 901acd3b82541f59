"""The refusal of a request whose ext fields cannot be read.

In a module of its own because `parse.py` is compiled, and a compiled class cannot extend an interpreted one.
"""

from cometmq.errors import RequestError
from cometmq.wire.codes import Response


class HeaderError(RequestError):
    """A request without a field it must have, or with a value that is not of the field's type."""

    def __init__(self, header: str, field: str, problem: str, code: int = Response.SYSTEM_ERROR) -> None:
        super().__init__(code, f"{header}: ext field {field} {problem}")
        self.field = field
