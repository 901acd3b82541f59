"""Hooks around sending: what an extension is told before and after each message, with figures for billing.

    before    group, topic, size, properties, owner; a RequestError raised here refuses the message
    after     what became of it: response code, and where it is if it was stored

Every send has one `before` and one `after`, with the same context: also one that was refused, and one whose client
had gone. An error in a hook is logged and harms nobody, except the RequestError in `before`.

    billing             stored                                refused
    size                bytes of the record or records        bytes of the request's body
    billed messages     size / `commercialSizePerMsg`, rounded up, in both cases
    times               billed messages x `commercialBaseCount`       billed messages
    owner and accounts  ext fields of the request, as they came

Without a hook nothing of this is computed; an empty `SendHooks` is false.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from cometmq.broker.config import BrokerConfig
from cometmq.errors import RequestError
from cometmq.store.results import PutResult
from cometmq.wire.command import Command
from cometmq.wire.headers import SendMessage

logger = logging.getLogger(__name__)

SEND_SUCCESS: Final = "SEND_SUCCESS"
SEND_FAILURE: Final = "SEND_FAILURE"


@dataclass(slots=True)
class SendContext:
    """The lower part is known only after the send; ids and offsets only of a message that was stored."""

    group: str
    topic: str
    body_bytes: int
    properties: str
    owner: str | None
    auth_type: str | None
    account_parent: str | None
    account_self: str | None

    code: int = -1
    remark: str | None = None
    state: str = SEND_FAILURE
    queue_id: int = -1
    queue_offset: int = -1
    message_id: str = ""
    size_bytes: int = 0
    messages: int = 0
    times: int = 0


class SendHook(Protocol):
    def before(self, context: SendContext) -> None: ...

    def after(self, context: SendContext) -> None: ...


class SendHooks:
    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._hooks: list[SendHook] = []
        self._open: dict[Command, SendContext] = {}

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: SendHook) -> None:
        self._hooks.append(hook)

    def before(self, header: SendMessage, request: Command) -> None:
        context = self._open[request] = _context(header, request)
        for hook in self._hooks:
            try:
                hook.before(context)
            except RequestError:
                raise
            except Exception:
                logger.exception("fail hook before send topic=%s", context.topic)

    def stored(self, request: Command, code: int, queue_id: int, message_id: str, result: PutResult) -> None:
        """Codes 0, 10, 11 and 12."""
        context = self._open.pop(request, None)
        if context is None:
            return  # its hook was added while it was under way
        config = self._config()
        context.code = code
        context.state = SEND_SUCCESS
        context.queue_id = queue_id
        context.queue_offset = result.queue_offset
        context.message_id = message_id
        context.size_bytes = result.record_bytes
        context.messages = result.count
        context.times = _billed(context.size_bytes, config) * config.commercial_base_count
        self._after(context)

    def refused(self, request: Command, code: int, remark: str | None) -> None:
        context = self._open.pop(request, None)
        if context is None:
            return
        context.code = code
        context.remark = remark
        context.size_bytes = context.body_bytes
        context.messages = 1
        context.times = _billed(context.size_bytes, self._config())
        self._after(context)

    def _after(self, context: SendContext) -> None:
        for hook in self._hooks:
            try:
                hook.after(context)
            except Exception:
                logger.exception("fail hook after send topic=%s", context.topic)


def _context(header: SendMessage, request: Command) -> SendContext:
    ext = request.ext
    return SendContext(
        group=header.producer_group,
        topic=header.topic,
        body_bytes=len(request.body),
        properties=header.properties,
        owner=ext.get("Owner"),
        auth_type=ext.get("AUTH_TYPE"),
        account_parent=ext.get("OWNER_PARENT"),
        account_self=ext.get("OWNER_SELF"),
    )


def _billed(size_bytes: int, config: BrokerConfig) -> int:
    return -(-size_bytes // config.commercial_bytes_per_message)
