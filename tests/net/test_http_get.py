"""The listener for probes and scrapes: what it answers, and what a hostile peer can make of it."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cometmq.errors import ConfigError
from cometmq.net import http_get
from cometmq.net.http_get import CONNECTIONS_MAX, HEAD_BYTES_MAX, Asked, HttpGet, Page
from tests.support.scraping import fetch, raw


async def echo(asked: Asked) -> Page:
    if asked.path == "/broken":
        raise RuntimeError("a fault of ours")
    if asked.path == "/long":
        return Page(200, b"x" * 10_000)
    return Page(200 if asked.path == "/" else 404, f"{asked.path} {sorted(asked.query.items())}".encode())


@asynccontextmanager
async def served() -> AsyncIterator[HttpGet]:
    server = HttpGet(echo, setting="healthPort")
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


async def test_a_page_has_its_length_and_is_not_stored() -> None:
    async with served() as server:
        status, headers, body = await fetch(server.port, "/?a=1&a=2")
        assert (status, body) == (200, b"/ [('a', ['1', '2'])]")
        assert headers["content-length"] == str(len(body))
        assert headers["cache-control"] == "no-store"
        assert (await fetch(server.port, "/other"))[0] == 404


async def test_head_has_the_headers_and_no_body() -> None:
    async with served() as server:
        status, headers, body = await fetch(server.port, "/", method="HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 0


async def test_a_long_page_is_compressed_for_those_who_take_it() -> None:
    async with served() as server:
        _, headers, body = await fetch(server.port, "/long", headers={"Accept-Encoding": "gzip"})
        assert headers["content-encoding"] == "gzip"
        assert gzip.decompress(body) == b"x" * 10_000
        assert (await fetch(server.port, "/long"))[2] == b"x" * 10_000


async def test_requests_of_one_connection_are_answered_in_order() -> None:
    async with served() as server:
        both = b"GET /one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\nConnection: close\r\n\r\n"
        _, _, rest = await raw(server.port, both)
        assert rest.startswith(b"/one")
        assert b"/two" in rest


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (b"GET /?" + b"a=1&" * 100 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"\x16\x03\x01 tls\r\n\r\n", 400),
        (b"GET / SPDY/9\r\n\r\n", 400),
    ],
)
async def test_what_is_no_plain_get_is_refused_and_the_connection_closed(data: bytes, status: int) -> None:
    async with served() as server:
        assert (await raw(server.port, data))[0] == status
        assert (await fetch(server.port, "/"))[0] == 200, "others are served"


async def test_a_fault_of_ours_is_a_500_and_the_server_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as server:
        assert (await fetch(server.port, "/broken"))[0] == 500
        assert "a fault of ours" in caplog.text
        assert (await fetch(server.port, "/"))[0] == 200


async def test_one_connection_too_many_is_closed_and_a_free_place_serves_again() -> None:
    async with served() as server:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(CONNECTIONS_MAX)]
        for _, writer in held:
            writer.write(b"GET / HTTP/1.1\r\n")
            await writer.drain()
        while len(server._open) < CONNECTIONS_MAX:  # noqa: ASYNC110 - the kernel hands them over one by one
            await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        while server._open:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert (await fetch(server.port, "/"))[0] == 200


async def test_a_peer_that_drips_is_told_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "REQUEST_S", 0.05)
    async with served() as server:
        assert (await raw(server.port, b"GET / HT"))[0] == 408


async def test_a_taken_port_is_named_with_its_setting() -> None:
    async with served() as server:
        with pytest.raises(ConfigError, match=f"{server.port}.*healthPort"):
            await HttpGet(echo, setting="healthPort").start("127.0.0.1", server.port)
