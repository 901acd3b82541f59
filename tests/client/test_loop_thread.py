"""Work that a thread starts on the loop of another: its result comes back, and it can be cancelled from here."""

import asyncio
import threading

import pytest

from cometmq.client.loop_thread import LoopThread
from cometmq.errors import NotRunning


def test_submitted_work_runs_on_the_loop_and_gives_its_result() -> None:
    loop = LoopThread()
    loop.start()
    try:

        async def thread_name() -> str:
            return threading.current_thread().name

        assert loop.submit(thread_name()).result(10) == "cometmq"
    finally:
        loop.stop()


def test_cancelling_the_future_cancels_the_work() -> None:
    loop = LoopThread()
    loop.start()
    began, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    try:
        future = loop.submit(wait())
        assert began.wait(10)
        assert future.cancel()
        assert ended.wait(10)
    finally:
        loop.stop()


def test_nothing_is_submitted_to_a_loop_that_does_not_run() -> None:
    async def nothing() -> None:
        return None

    with pytest.raises(NotRunning):
        LoopThread().submit(nothing())
