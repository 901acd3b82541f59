"""Lines of stdin or of a file for a coroutine, without holding up its loop and without keeping a program from ending.

The reading thread is a daemon: one that waits for a terminal would otherwise make Ctrl-C wait, too.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import BinaryIO, Final

WAITING_MAX: Final = 1000


async def lines(source: BinaryIO) -> AsyncIterator[bytes]:
    """Without their ends; empty ones too. OSError of the reading thread is raised here."""
    loop = asyncio.get_running_loop()
    found: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
    room = threading.Semaphore(WAITING_MAX)

    def hand_over(one: bytes | OSError | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(found.put_nowait, one)

    def read() -> None:
        try:
            for line in source:
                hand_over(line.rstrip(b"\r\n"))
            hand_over(None)
        except OSError as error:
            hand_over(error)
        except RuntimeError:
            return  # the loop has ended: nobody wants more

    threading.Thread(target=read, daemon=True, name="feed").start()
    while True:
        one = await found.get()
        room.release()
        if one is None:
            return
        if isinstance(one, OSError):
            raise one
        yield one
