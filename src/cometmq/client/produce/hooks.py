"""What an application can hang into sending.

    check(context)                 before a message leaves; raising aborts the send with that exception
    hook.before_send(context)      after the checks; what it raises is logged
    hook.after_send(context)       when the outcome is known, success or not; what it raises is logged

All are called on the event loop, once for every attempt, and must be quick. Nothing is allocated while there are none.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from cometmq.client.messages import Message, SendReceipt
from cometmq.client.produce.outgoing import Outgoing
from cometmq.client.produce.targets import Lane
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.record import properties as wire_properties

logger = logging.getLogger(__name__)


class SendContext:
    """One attempt. After it `receipt` or `error` is set; neither for a one-way message. `state` is the hooks' own."""

    __slots__ = ("address", "error", "group", "message", "outgoing", "queue", "receipt", "state")

    def __init__(
        self, group: str, message: Message[Any], outgoing: Outgoing, queue: MessageQueue, address: str
    ) -> None:
        self.group = group
        self.message = message
        self.outgoing = outgoing
        self.queue = queue
        self.address = address
        self.receipt: SendReceipt | None = None
        self.error: BaseException | None = None
        self.state: dict[object, Any] = {}


class SendHook(Protocol):
    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


SendCheck: TypeAlias = Callable[[SendContext], object]


class SendHooks:
    """All checks and hooks of one producer, in the order in which they were added."""

    def __init__(self) -> None:
        self._checks: list[SendCheck] = []
        self._hooks: list[SendHook] = []

    def __bool__(self) -> bool:
        return bool(self._hooks or self._checks)

    def add_check(self, check: SendCheck) -> None:
        self._checks.append(check)

    def add_hook(self, hook: SendHook) -> None:
        self._hooks.append(hook)

    def begin(self, group: str, outgoing: Outgoing, lane: Lane, address: str) -> SendContext:
        properties = wire_properties.decode_text(outgoing.properties)
        message: Message[Any] = Message(
            outgoing.shown_topic, outgoing.body, outgoing.body, properties, outgoing.id, born_ms=outgoing.born_ms
        )
        context = SendContext(group, message, outgoing, lane.queue, address)
        for check in self._checks:
            check(context)
        for hook in self._hooks:
            self._call(hook.before_send, context)
        return context

    def end(self, context: SendContext, receipt: SendReceipt | None, error: BaseException | None) -> None:
        context.receipt = receipt
        context.error = error
        for hook in self._hooks:
            self._call(hook.after_send, context)

    def _call(self, hook: Callable[[SendContext], None], context: SendContext) -> None:
        try:
            hook(context)
        except Exception:
            logger.exception("fail send hook topic=%s", context.message.topic)
