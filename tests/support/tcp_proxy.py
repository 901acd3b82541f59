"""A TCP proxy that is a bad network: it can delay, swallow and cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class TcpProxy:
    """Between a client and 127.0.0.1:`target_port`. Settings act on what passes from then on.

    delay_s             each chunk waits this long, in both directions
    swallow_answers     what the target sends does not arrive
    cut_requests        the first byte from a client cuts its connection, and the target never sees it
    stalled             nothing passes, in either direction, and nothing is said: half-open. What is held passes later
    cut_after_bytes     so much more passes from the target, and then all connections break: in the middle of an answer
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.accepted = 0
        self.delay_s = 0.0
        self.swallow_answers = False
        self.cut_requests = False
        self.stalled = False
        self.cut_after_bytes: int | None = None
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    @asynccontextmanager
    async def before(cls, target_port: int) -> "AsyncIterator[TcpProxy]":
        proxy = cls(target_port)
        proxy._server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.port = proxy._server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            proxy._server.close()
            proxy.cut()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)
            await proxy._server.wait_closed()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break all connections at once."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:  # the target is down, and so is the proxy
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)
            return
        self._writers.add(target_writer)
        try:
            await asyncio.gather(self._pump(reader, target_writer, True), self._pump(target_reader, writer, False))
        finally:
            for each in (writer, target_writer):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()
                self._writers.discard(each)
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_request: bool) -> None:
        with suppress(OSError, RuntimeError):  # uvloop raises RuntimeError for a closed transport
            while data := await reader.read(1 << 16):
                if is_request and self.cut_requests:
                    self.cut()
                    return
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                while self.stalled:  # noqa: ASYNC110 - a plain attribute for tests to set
                    await asyncio.sleep(0.01)
                if not is_request and self.cut_after_bytes is not None:
                    data = data[: self.cut_after_bytes]
                    self.cut_after_bytes -= len(data)
                if is_request or not self.swallow_answers:
                    writer.write(data)
                    await writer.drain()
                if self.cut_after_bytes == 0:
                    self.cut_after_bytes = None
                    self.cut()
                    return
        writer.close()
