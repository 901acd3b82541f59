"""Every exception that CometMQ raises on purpose.

    CometError
    ├── WireError                 the peer sent bytes that mean nothing; its connection is closed
    ├── StoreError                the disk or a file on it
    ├── RequestError              one request is refused; becomes a response with `code` and `remark`
    └── CallError                 a call to a peer failed
        ├── ConnectFailed         no connection in time
        ├── SendFailed            the connection did not carry the request
        │   └── ConnectionLost    ... or broke between the request and its answer
        ├── CallTimeout           no answer in time; the peer may have acted on it
        └── TooManyCalls          the bound on calls in flight was reached before the request was written
"""


class CometError(Exception):
    """The root: catching it catches nothing that is a bug of ours."""


class WireError(CometError):
    """Bytes from a peer that break the protocol or one of its limits."""


class StoreError(CometError):
    """The store cannot do what was asked; the message names the file and the cause."""


class RequestError(CometError):
    """A request that is answered with an error code instead of a result."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark


class CallError(CometError):
    """A call to a peer did not succeed."""


class ConnectFailed(CallError):
    """The peer could not be reached in time."""


class SendFailed(CallError):
    """The request was not written; nothing happened at the peer (but see `ConnectionLost`)."""


class ConnectionLost(SendFailed):
    """The connection closed after the request was written; whether the peer acted is unknown."""


class CallTimeout(CallError):
    """No answer came in time; whether the peer acted is unknown."""


class TooManyCalls(CallError):
    """The limit on calls in flight left no room for this one."""
