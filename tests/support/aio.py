"""Running a coroutine as a test: fresh event loop, time limit, and nothing that goes wrong unseen."""

import asyncio
import socket
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


async def settle(turns: int = 200) -> None:
    """Let everything arrive that is on its way between parts of this process; then a test can say that nothing came.

    Each turn goes through the kernel and, now and then, through a thread: bytes that lie in sockets are read, callbacks
    run, what threads were given is done, and so on for a chain of as many steps. No clock is asked.
    """
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=here)
    _, echo = await asyncio.open_connection(sock=there)
    for turn in range(turns):
        echo.write(b".")
        await reader.readexactly(1)
        if turn % 20 == 0:
            await asyncio.to_thread(int)
    for each in (writer, echo):
        each.close()
        await each.wait_closed()
