"""An event loop in a thread of its own: how code without asyncio uses what is written with it.

    caller's thread          loop thread
    run(coroutine)  ──────>  a task            the caller waits; Ctrl-C there cancels the task and is raised
    stop()          ──────>  the loop ends     what still runs is cancelled first

The thread is a daemon: a program that forgets to stop it can still end.

The caller waits for a bare lock. A future of `concurrent.futures` has a Condition, which both threads take: Ctrl-C just
when the caller has taken it, and before `with` knows, leaves it taken, and the loop would wait for it for ever.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

from cometmq.errors import NotRunning
from cometmq.net.loop import loop_factory

CANCEL_LIMIT_S: Final = 5.0

T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str = "cometmq") -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        if self._loop is not None:
            return
        started = threading.Event()
        loop = loop_factory()()
        loop.call_soon(started.set)
        thread = threading.Thread(target=_serve, args=(loop,), name=self._name, daemon=True)
        thread.start()
        started.wait()
        self._loop, self._thread = loop, thread

    def stop(self) -> None:
        """Cancel what still runs, end the loop and the thread. Idempotent."""
        loop, self._loop = self._loop, None
        thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait for it here. NotRunning before `start` and after `stop`."""
        loop = self._loop
        if loop is None:
            work.close()
            raise NotRunning("the client is not started, or was stopped: use it with `with`")
        if threading.current_thread() is self._thread:
            work.close()
            raise NotRunning("this is the client's own thread, which cannot wait for itself: use the async client here")
        errand = _Errand(work)
        try:
            loop.call_soon_threadsafe(errand.begin)
            errand.is_over.acquire()
        except BaseException:
            # Ctrl-C or the like in this thread: nothing shall go on behind the caller's back.
            if loop.is_closed():
                work.close()
            else:
                loop.call_soon_threadsafe(errand.cancel)
                errand.is_over.acquire(timeout=CANCEL_LIMIT_S)
            raise
        return errand.outcome()

    def submit(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Start it there; cancelling the future cancels it. NotRunning before `start` and after `stop`."""
        if self._loop is None:
            work.close()
            raise NotRunning("the client is not started, or was stopped")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function there: for what may only be touched on its loop. Here, while that does not run."""
        if self._loop is None:
            return function()

        async def calling() -> T:
            return function()

        return self.run(calling())

    def promise(self, function: "Callable[[], asyncio.Future[T]]") -> "concurrent.futures.Future[T]":
        """Call a function there that gives a future; what it raises is raised here, the future is for this thread."""

        async def calling() -> tuple[asyncio.Future[T], concurrent.futures.Future[T]]:
            inner = function()
            outer: concurrent.futures.Future[T] = concurrent.futures.Future()
            outer.set_running_or_notify_cancel()
            inner.add_done_callback(lambda done: _pass_on(done, outer))
            return inner, outer

        return self.run(calling())[1]

    @contextlib.contextmanager
    def enter(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """An async context manager as a plain one."""
        entered = self.run(manager.__aenter__())
        try:
            yield entered
        except BaseException as error:
            if not self.run(_exit(manager, error)):
                raise
        else:
            self.run(_exit(manager, None))

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """What an async iterator gives, one at a time, as it is asked for."""

        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(source)
            except StopAsyncIteration:
                return False, None

        try:
            while True:
                more, item = self.run(following())
                if not more:
                    return
                yield item  # type: ignore[misc]  # None only at the end
        finally:
            # Left early: what the source has open is closed now, not when the garbage is collected.
            if isinstance(source, AsyncGenerator) and self.is_running:
                self.run(source.aclose())


class _Errand(Generic[T]):
    """A coroutine on its way to the loop and back."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.is_over = threading.Lock()
        self.is_over.acquire()
        self._work = work
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """By who waits no more, whether it has begun or is over."""
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()
        if self._task is None or self._task.done():
            self._end()

    def _end(self, _: object = None) -> None:
        if self.is_over.locked():
            self.is_over.release()

    def outcome(self) -> T:
        """To be called when it is over."""
        if self._task is None or self._task.cancelled():
            raise concurrent.futures.CancelledError
        return self._task.result()


async def _exit(manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    kind, trace = (type(error), error.__traceback__) if error is not None else (None, None)
    return bool(await manager.__aexit__(kind, error, trace))


def _pass_on(done: "asyncio.Future[T]", outer: "concurrent.futures.Future[T]") -> None:
    error = asyncio.CancelledError() if done.cancelled() else done.exception()
    if error is not None:
        outer.set_exception(error)
    else:
        outer.set_result(done.result())


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_cancel_others())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
