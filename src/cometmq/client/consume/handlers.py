"""From a function to what a consumer calls: arguments by annotation, outcome by result.

    async def handle(order: Order)                        the body, decoded as JSON of that type
    async def handle(order: Order, message: Message)      ... and the message
    async def handle(text: str)                           bytes and str are the body as it is
    async def handle(message: Message[Order])             the message alone; its `value` is decoded
    async def handle(message)                             the message, its value by the consumer's codec
    def handle(...)                                       a plain function runs in a thread
    async def handle(orders: list[Order])                 with batch=: several at once; also list[Message[Order]]

What a handler returns for a message that was sent with `request` is its reply.
"""

import asyncio
import contextvars
import functools
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeAlias

from cometmq.client.codecs import Codec, bytes_codec, text_codec, typed_codec
from cometmq.client.consume.outcomes import EXCEPTION, Outcome, Verdict, judge, judge_error
from cometmq.client.messages import Message
from cometmq.errors import ConfigError
from cometmq.wire.record.properties import Property

logger = logging.getLogger(__name__)

Function: TypeAlias = Callable[..., Any]
Reply: TypeAlias = Callable[[Message[Any], object], Awaitable[None]]


class Refused(Exception):
    """The executor takes nothing at present."""


class Handler:
    """One function for the messages of one topic. `batch` is how many it gets at once, None: one, not in a list."""

    def __init__(
        self,
        function: Function,
        *,
        batch: int | None = None,
        ordered: bool = False,
        auto_commit: bool = True,
        codec: Codec[Any] | None = None,
        default_codec: Codec[Any] = bytes_codec,
    ) -> None:
        self.function = function
        self.name = getattr(function, "__qualname__", repr(function))
        self.batch = batch
        self.ordered = ordered
        self.auto_commit = auto_commit
        self.is_async = _is_async(function)
        parameters, hints = _signature(function, self.name)
        first = hints.get(parameters[0], Message)
        if batch is not None:
            first = _element(first, self.name)
        self._wants_message, payload = _payload(first)
        self._wants_both = len(parameters) > 1 and batch is None
        self.codec: Codec[Any] = codec or (_codec(payload, self.name) if payload is not None else default_codec)
        self.needs_outcome = hints.get("return") is Outcome

    @property
    def batch_size(self) -> int:
        return 1 if self.batch is None else self.batch

    async def handle(
        self, messages: Sequence[Message[Any]], executor: Callable[[], Executor], reply: Reply
    ) -> Verdict:
        """Call the function. Raises Refused if no thread would take it, and CancelledError if we are cancelled."""
        try:
            result = await self._call(self._arguments(messages), executor)
            if not isinstance(result, Outcome) and result is not None and self.batch is None:
                await self._reply(messages[0], result, reply)
            return judge(result, self.needs_outcome)
        except Refused:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return Verdict(EXCEPTION, Outcome.LATER, error=error)  # something inside the handler was cancelled
        except Exception as error:
            return judge_error(error)

    def _arguments(self, messages: Sequence[Message[Any]]) -> tuple[Any, ...]:
        if self.batch is not None:
            return (list(messages) if self._wants_message else [message.value for message in messages],)
        message = messages[0]
        first = message if self._wants_message else message.value
        return (first, message) if self._wants_both else (first,)

    async def _call(self, arguments: tuple[Any, ...], executor: Callable[[], Executor]) -> object:
        if self.is_async:
            return await self.function(*arguments)
        work = functools.partial(contextvars.copy_context().run, self.function, *arguments)
        try:
            future = asyncio.get_running_loop().run_in_executor(executor(), work)
        except RuntimeError as error:
            raise Refused(str(error)) from error
        result = await future
        return await result if inspect.isawaitable(result) else result

    async def _reply(self, message: Message[Any], value: object, reply: Reply) -> None:
        if Property.REPLY_TO_CLIENT not in message.properties:
            return
        try:
            await reply(message, value)
        except Exception as error:  # the work is done; who asked sees a timeout
            logger.warning("fail reply message=%s cause=%s", message.id, error)


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _signature(function: Function, name: str) -> tuple[list[str], dict[str, Any]]:
    """The names of its positional parameters, one or two, and what is annotated."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [it for it in inspect.signature(function).parameters.values() if it.kind in kinds]
    needed = sum(it.default is inspect.Parameter.empty for it in parameters)
    if not parameters or needed > 2:
        raise ConfigError(f"handler {name} takes {needed} arguments: it gets the payload and, if it likes, the message")
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = typing.get_type_hints(target)
    except NameError as error:
        raise ConfigError(
            f"annotations of handler {name} cannot be read: {error}; define those types in a module"
        ) from None
    return [it.name for it in parameters if it.default is inspect.Parameter.empty or it is parameters[0]], hints


def _element(kind: Any, name: str) -> Any:
    """Of what a batch is a list."""
    if kind is Message:  # not annotated
        return Message
    if kind is not list and typing.get_origin(kind) is not list:
        raise ConfigError(f"handler {name} gets batches: its first argument is a list, not {kind}")
    arguments = typing.get_args(kind)
    return arguments[0] if arguments else Message


def _payload(kind: Any) -> tuple[bool, Any]:
    """Whether the message itself is wanted, and the type of its value, None if the handler does not say."""
    if kind is Message:
        return True, None
    if typing.get_origin(kind) is Message:
        (inner,) = typing.get_args(kind)
        return True, None if isinstance(inner, typing.TypeVar) else inner
    return False, kind


def _codec(kind: Any, name: str) -> Codec[Any]:
    if kind is bytes:
        return bytes_codec
    if kind is str:
        return text_codec
    try:
        return typed_codec(kind)
    except TypeError as error:
        raise ConfigError(
            f"handler {name} wants {kind}, which JSON cannot be read as ({error}): give it a codec"
        ) from None
