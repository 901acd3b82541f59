"""A listener for probes and scrapes: HTTP/1.1, GET and HEAD, no bodies, and nothing that anybody can change.

    GET /readyz HTTP/1.1      ->  Pages.answer("/readyz", query, headers)  ->  200 or 503, with Content-Length
    POST, a body, a head of over 4 KiB, more than 100 headers   ->  405, 413, 431, 400, and the connection is closed

A peer has `REQUEST_S` for a request and for taking the answer; there are at most `CONNECTIONS_MAX` connections, and one
more is closed. So what a peer can hold is 8 heads of 4 KiB and 8 references to one answer. Requests of
one connection are served one after the other; one that is pipelined waits in the head buffer, and counts against it.

The standard library's server is one thread a connection; a whole web framework would be the larger part of the broker.
"""

import asyncio
import gzip
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs

from cometmq.errors import ConfigError

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 8
HEAD_BYTES_MAX: Final = 4096
HEADERS_MAX: Final = 100
REQUEST_S: Final = 5.0
FIELDS_MAX: Final = 64
COMPRESS_BYTES_MIN: Final = 1024

REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = field(default=())


Answer = Callable[[Asked], Awaitable[Page]]


class BadRequest(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpGet:
    """`answer` gives a page for each path; 404 is its business. `setting` is named if the port is taken."""

    def __init__(self, answer: Answer, *, setting: str) -> None:
        self._answer = answer
        self._setting = setting
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.port: int = 0

    async def start(self, host: str, port: int) -> None:
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise ConfigError(
                f"cannot serve metrics and health at {host}:{port}: {error.strerror or error}; "
                f"choose another port with {self._setting}"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writer.transport.set_write_buffer_limits(0)  # `drain` returns when the kernel has everything
        if len(self._open) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
            writer.close()
        except (OSError, asyncio.CancelledError, TimeoutError):
            writer.transport.abort()
        finally:
            self._open.discard(task)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False: the connection ends here."""
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        except asyncio.LimitOverrunError:
            return await _refuse(writer, 431, f"the head of a request may have {HEAD_BYTES_MAX} bytes")
        except TimeoutError:
            return await _refuse(writer, 408, f"a request must arrive within {REQUEST_S:.0f} s")
        try:
            asked, is_head, is_last = parse(head)
        except BadRequest as error:
            return await _refuse(writer, error.status, str(error))
        try:
            page = await self._answer(asked)
        except Exception:
            logger.exception("fail page path=%r", asked.path[:80])
            page = Page(500, b"the page could not be made; the log has the cause\n")
        if len(page.body) >= COMPRESS_BYTES_MIN and "gzip" in asked.headers.get("accept-encoding", ""):
            body = await asyncio.to_thread(gzip.compress, page.body, 5)
            page = Page(page.status, body, page.content_type, (*page.headers, ("Content-Encoding", "gzip")))
        await _send(writer, _encoded(page, is_head=is_head, is_last=is_last))
        return not is_last


def parse(head: bytes) -> tuple[Asked, bool, bool]:
    """The request, whether it is a HEAD, whether the peer wants to close. BadRequest says what is wrong."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(400, "that is no HTTP/1 request")
    method, target, version = words
    if len(lines) > HEADERS_MAX:
        raise BadRequest(431, f"a request may have {HEADERS_MAX} headers")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if line and not colon:
            raise BadRequest(400, "a header has no colon")
        headers[name.lower()] = value.strip()
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "only GET and HEAD are served here: nothing can be changed")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(413, "a request here has no body")
    path, _, query = target.partition("?")
    try:
        fields = parse_qs(query, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise BadRequest(400, f"a query may have {FIELDS_MAX} fields") from None
    is_last = version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
    return Asked(path, fields, headers), method == "HEAD", is_last


async def _refuse(writer: asyncio.StreamWriter, status: int, text: str) -> bool:
    await _send(writer, _encoded(Page(status, f"{text}\n".encode()), is_head=False, is_last=True))
    return False


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(REQUEST_S):
        await writer.drain()


def _encoded(page: Page, *, is_head: bool, is_last: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status} {REASONS[page.status]}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        *(f"{name}: {value}" for name, value in page.headers),
    ]
    if is_last:
        lines.append("Connection: close")
    if page.status == 405:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if is_head else page.body)
