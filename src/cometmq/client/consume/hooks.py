"""What an application can hang into consuming: told before and after every call of a handler.

Both are called on the event loop and must be quick; what they raise is logged. Nothing is allocated while there are
none.
"""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from cometmq.client.consume.outcomes import LABELS, Verdict
from cometmq.client.messages import Message
from cometmq.wire.bodies import MessageQueue

logger = logging.getLogger(__name__)


class ConsumeContext:
    """One call. Afterwards `label` says how it ended: success, timeout, exception, null or failed. `state` belongs to
    the hooks."""

    __slots__ = ("error", "group", "label", "messages", "queue", "state", "success", "verdict")

    def __init__(self, group: str, queue: MessageQueue, messages: Sequence[Message[Any]]) -> None:
        self.group = group
        self.queue = queue
        self.messages = messages
        self.success = False
        self.label: str | None = None
        self.verdict: Verdict | None = None
        self.error: BaseException | None = None
        self.state: dict[object, Any] = {}


class ConsumeHook(Protocol):
    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


class ConsumeHooks:
    """All hooks of one consumer, in the order in which they were added."""

    def __init__(self) -> None:
        self._hooks: list[ConsumeHook] = []

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: ConsumeHook) -> None:
        self._hooks.append(hook)

    def begin(self, group: str, queue: MessageQueue, messages: Sequence[Message[Any]]) -> ConsumeContext:
        context = ConsumeContext(group, queue, messages)
        for hook in self._hooks:
            try:
                hook.before_consume(context)
            except Exception:
                logger.exception("fail hook before consuming group=%s", group)
        return context

    def end(self, context: ConsumeContext, verdict: Verdict, success: bool) -> None:
        context.label = LABELS[verdict.label]
        context.verdict = verdict
        context.error = verdict.error
        context.success = success
        for hook in self._hooks:
            try:
                hook.after_consume(context)
            except Exception:
                logger.exception("fail hook after consuming group=%s", context.group)
