"""Lines of stdin or of a file for a coroutine, without holding up its loop and without keeping a program from ending.

The reading thread is a daemon: one that waits for a terminal would otherwise make Ctrl-C wait, too. It reads the
descriptor itself, because a buffered reader that a thread is in cannot be taken down with the interpreter.
"""

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO, Final

WAITING_MAX: Final = 1000
BLOCK_BYTES: Final = 65_536


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
            for line in _split(source):
                hand_over(line.rstrip(b"\r"))
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


def _split(source: BinaryIO) -> Iterator[bytes]:
    rest = b""
    for block in _blocks(source):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    try:
        number = source.fileno()
    except io.UnsupportedOperation:  # in memory
        yield source.read()
        return
    while block := os.read(number, BLOCK_BYTES):
        yield block
