"""How a call is refused: nearly always with status 0 of gRPC, and a code of the protocol in the answer itself.

Refused         a code of the protocol and a text
code_of(...)    the same for the answer of a remoting handler
"""

from __future__ import annotations

from typing import Final, cast

from cometmq.errors import CometError, RequestError
from cometmq.wire.codes import Response
from cometmq.wire.grpc import messages_pb2 as pb

# Of an answer that a proxy makes up itself, because its broker has not answered in time, or nobody has that name.
NO_ANSWER: Final = -1
NO_SUCH_BROKER: Final = -2

CODES: Final[dict[int, int]] = {
    NO_ANSWER: pb.PROXY_TIMEOUT,
    NO_SUCH_BROKER: pb.BAD_REQUEST,
    Response.SUCCESS: pb.OK,
    Response.SYSTEM_BUSY: pb.TOO_MANY_REQUESTS,
    Response.REQUEST_CODE_NOT_SUPPORTED: pb.NOT_IMPLEMENTED,
    Response.TOPIC_NOT_EXIST: pb.TOPIC_NOT_FOUND,
    Response.SUBSCRIPTION_GROUP_NOT_EXIST: pb.CONSUMER_GROUP_NOT_FOUND,
    Response.LMQ_QUOTA_EXCEEDED: pb.LITE_TOPIC_QUOTA_EXCEEDED,
    Response.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT,
    Response.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
    Response.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    Response.POLLING_FULL: pb.TOO_MANY_REQUESTS,
    Response.POLLING_TIMEOUT: pb.MESSAGE_NOT_FOUND,
    Response.PULL_NOT_FOUND: pb.MESSAGE_NOT_FOUND,
    # RocketMQ answers 50001 here, which its clients try again without end.
    Response.SUBSCRIPTION_PARSE_FAILED: pb.ILLEGAL_FILTER_EXPRESSION,
}
TEXT_CHARS_MAX: Final = 500


class Refused(CometError):
    """`delay_s`: how long its answer waits, for one who tries passwords."""

    def __init__(self, code: int, text: str = "", delay_s: float = 0.0) -> None:
        super().__init__(text or name_of(code))
        self.code = code
        self.delay_s = delay_s


class Unsettled(Exception):
    """The client's settings have not come yet: the call waits for them, for a while."""


def name_of(code: int) -> str:
    try:
        return pb.Code.Name(cast("pb.Code", code))
    except ValueError:
        return str(code)


def code_of(response_code: int) -> int:
    return CODES.get(response_code, pb.INTERNAL_SERVER_ERROR)


def refused(error: CometError) -> Refused:
    """Of whatever a handler has raised."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, RequestError):
        return Refused(code_of(error.code), error.remark)
    return Refused(pb.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


def status(code: int, text: str = "") -> pb.Status:
    return pb.Status(code=cast("pb.Code", code), message=(text or name_of(code))[:TEXT_CHARS_MAX])
