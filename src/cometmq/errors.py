"""Every exception that CometMQ raises on purpose.

    CometError
    ├── WireError                 the peer sent bytes that mean nothing; its connection is closed
    ├── StoreError                the disk or a file on it
    ├── RequestError              one request is refused; becomes a response with `code` and `remark`
    ├── CallError                 a call to a peer failed
    │   ├── ConnectFailed         no connection in time; also a ConnectionError
    │   ├── SendFailed            the connection did not carry the request
    │   │   └── ConnectionLost    ... or broke between the request and its answer
    │   ├── CallTimeout           no answer in time; the peer may have acted on it
    │   │   └── SendTimeout       a message got no answer in time; also a TimeoutError
    │   │       └── OutOfTime     ... its time was over before another attempt could start
    │   └── TooManyCalls          the bound on calls in flight was reached before the request was written
    └── what users of the client meet besides CallError
        ├── ConfigError           an argument or setting; also a ValueError
        │   └── MessageRefused    a message that no broker would take
        ├── NotRunning            not started yet, or stopped
        ├── NoNameServer          no name server address is known
        ├── NoRoute               no name server knows the topic
        ├── BrokerUnknown         the route names a broker without a master to write to
        ├── NotFound              what was asked for is not there: a group, message, broker; also a LookupError
        ├── BrokerError           the broker's answer is a refusal, with its `code`, `remark` and `broker`
        │   └── AccessDenied      ... because of who asks: code 16, with `user`, `resource` and `actions`
        ├── Backpressure          a bound of the client is reached, and waiting is over or impossible
        ├── RequestTimeout        a request got no reply in time; also a TimeoutError
        ├── CannotReply           a message does not say where its reply goes
        └── CodecError            a value cannot be made bytes, or bytes a value

Errors that users of the client meet have a `code`: the broker's own, or one of RocketMQ's 10001 to 10007.
"""

from typing import ClassVar


class CometError(Exception):
    """The root: catching it catches nothing that is a bug of ours."""


class WireError(CometError):
    """Bytes from a peer that break the protocol or one of its limits."""


class StoreError(CometError):
    """The store cannot do what was asked; the message names the file and the cause."""


class RequestError(CometError):
    """A request that is answered with an error code instead of a result. `delay_s` is how long the answer waits."""

    def __init__(self, code: int, remark: str, delay_s: float = 0.0) -> None:
        super().__init__(f"{remark} (code {code})")
        self.code = code
        self.remark = remark
        self.delay_s = delay_s


class CallError(CometError):
    """A call to a peer did not succeed."""

    code: ClassVar[int] = 10001


class ConnectFailed(CallError, ConnectionError):
    """The peer could not be reached in time."""


class SendFailed(CallError):
    """The request was not written; nothing happened at the peer (but see `ConnectionLost`)."""


class ConnectionLost(SendFailed):
    """The connection closed after the request was written; whether the peer acted is unknown."""


class CallTimeout(CallError):
    """No answer came in time; whether the peer acted is unknown."""

    code: ClassVar[int] = 10002


class SendTimeout(CallTimeout, TimeoutError):
    """No broker answered in time; whether the message is stored is unknown."""


class OutOfTime(SendTimeout):
    """The time of a send was used up before another attempt could start."""


class TooManyCalls(CallError):
    """The limit on calls in flight left no room for this one."""


class ConfigError(CometError, ValueError):
    """An argument or setting that cannot be."""


class MessageRefused(ConfigError):
    """A message that no broker would take: nothing was sent."""

    code: ClassVar[int] = 13


class NotRunning(CometError):
    """What was asked needs a started client, producer or consumer."""


class NoNameServer(CometError):
    """Nobody said where the name servers are."""

    code: ClassVar[int] = 10004


class NoRoute(CometError):
    """No broker is known for a topic."""

    code: ClassVar[int] = 10005


class BrokerUnknown(CometError):
    """A route names a broker whose address is not known."""

    code: ClassVar[int] = 10003


class NotFound(CometError, LookupError):
    """A group, message, broker or setting that nobody has."""


class BrokerError(CometError):
    """A broker or name server answered with another code than success."""

    def __init__(self, code: int, remark: str, broker: str, context: str = "", advice: str = "") -> None:
        super().__init__(f"{context}{broker} answered code {code}: {remark}{advice}")
        self.code = code
        self.remark = remark
        self.broker = broker

    def within(self, context: str) -> "BrokerError":
        """The same refusal, with what it ended."""
        return BrokerError(self.code, self.remark, self.broker, context)


class AccessDenied(BrokerError):
    """Who asks may not do this, or did not prove who it is. What the server did not say is empty.

    `resource` is what was asked for (`Topic:orders`), `actions` is what would do on it: any one of them.
    """

    def __init__(
        self,
        remark: str,
        broker: str,
        *,
        user: str = "",
        resource: str = "",
        actions: tuple[str, ...] = (),
        advice: str = "",
        context: str = "",
    ) -> None:
        super().__init__(16, remark, broker, context, f"; {advice}" if advice else "")
        self.user = user
        self.resource = resource
        self.actions = actions
        self.advice = advice

    def within(self, context: str) -> "AccessDenied":
        return AccessDenied(
            self.remark,
            self.broker,
            user=self.user,
            resource=self.resource,
            actions=self.actions,
            advice=self.advice,
            context=context,
        )


class Backpressure(CometError):
    """More is under way than the client's bounds allow."""


class RequestTimeout(CometError, TimeoutError):
    """The request was stored, but no reply came in time."""

    code: ClassVar[int] = 10006


class CannotReply(CometError):
    """A message was not sent as a request, or lost what a reply needs."""

    code: ClassVar[int] = 10007


class CodecError(CometError, ValueError):
    """A codec cannot encode the value or decode the body."""
