"""As much of HTTP/1.1 as a JSON gateway needs of its client: one POST at a time on a connection, answers by length or
in chunks. Nothing is followed, decoded or kept; every part has a bound.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

ANSWER_BYTES_MAX: Final = 8 << 20
HEADER_BYTES_MAX: Final = 64 << 10
CONNECT_S: Final = 1.0


class Peer:
    """One endpoint of the store."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self.host = host
        self.port = port
        self.context = context

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class HttpConnection:
    def __init__(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peer = peer
        self._reader = reader
        self._writer = writer
        self._left: int | None = None
        self.is_chunked = False

    @classmethod
    async def open(cls, peer: Peer) -> HttpConnection:
        """OSError or TimeoutError: not to be reached."""
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(
                peer.host, peer.port, ssl=peer.context, limit=HEADER_BYTES_MAX,
                server_hostname=peer.host if peer.context is not None else None,
            )  # fmt: skip
        return cls(peer, reader, writer)

    def close(self) -> None:
        with suppress(RuntimeError):
            self._writer.close()

    async def post(self, path: str, body: bytes, token: str) -> int:
        """The status; then `read` or `lines`. OSError, ValueError: the connection is of no more use."""
        authorization = f"Authorization: {token}\r\n" if token else ""
        self._writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {self.peer}\r\nContent-Type: application/json\r\n{authorization}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await self._writer.drain()
        return await self._head()

    async def _head(self) -> int:
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise OSError(f"{self.peer} closed the connection") from error
        parts = head[0].split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise ValueError(f"{self.peer} does not speak HTTP: {head[0][:60]!r}")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        self.is_chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        length = fields.get("content-length", "0")
        self._left = None if self.is_chunked else int(length)
        if self._left is not None and not 0 <= self._left <= ANSWER_BYTES_MAX:
            raise ValueError(f"{self.peer} answers with {length} bytes, at most {ANSWER_BYTES_MAX} are taken")
        return int(parts[1])

    async def read(self) -> bytes:
        """The whole answer."""
        if self._left is not None:
            return await self._exactly(self._left)
        body = b""
        async for chunk in self._chunks():
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                raise ValueError(f"{self.peer} answers with more than {ANSWER_BYTES_MAX} bytes")
        return body

    async def lines(self) -> AsyncIterator[bytes]:
        """A long answer, line by line as they come."""
        rest = b""
        async for chunk in self._chunks():
            rest += chunk
            *whole, rest = rest.split(b"\n")
            if len(rest) > ANSWER_BYTES_MAX:
                raise ValueError(f"{self.peer} sends a line of more than {ANSWER_BYTES_MAX} bytes")
            for line in whole:
                if line:
                    yield line

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            try:
                size = int((await self._reader.readline()).split(b";")[0], 16)
            except (ValueError, asyncio.LimitOverrunError) as error:
                raise OSError(f"{self.peer} ended its answer in the middle") from error
            if not 0 <= size <= ANSWER_BYTES_MAX:
                raise ValueError(f"{self.peer} sends a chunk of {size} bytes")
            chunk = await self._exactly(size + 2)
            if not size:
                return
            yield chunk[:-2]

    async def _exactly(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as error:
            raise OSError(f"{self.peer} ended its answer in the middle") from error
