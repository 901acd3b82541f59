"""Running a coroutine as a test: fresh event loop, time limit, and nothing that goes wrong unseen."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(
    main: Coroutine[Any, Any, T],
    timeout_s: float = 60,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> T:
    """Run `main` to its end. An exception in a callback or a forgotten task fails the test too.

    Plain asyncio unless `loop_factory=uvloop.new_event_loop` is given.
    """
    unseen: list[dict[str, Any]] = []

    async def limited() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unseen.append(context))
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await main
        except TimeoutError:
            if limit.expired():
                raise AssertionError(f"the test did not finish within {timeout_s} s") from None
            raise

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        result = runner.run(limited())
    if unseen:
        cause = unseen[0].get("exception")
        raise AssertionError(f"{len(unseen)} errors in callbacks or tasks: {unseen}") from cause
    return result
