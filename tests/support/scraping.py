"""A scrape over HTTP, read by Prometheus' own Python parsers: they are the judges of the format."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as text_families

Key = tuple[str, frozenset[tuple[str, str]]]


async def fetch(port: int, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None) -> Any:
    """Status, headers in lower case, body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return await raw(port, "\r\n".join(lines).encode() + b"\r\n\r\n")


async def raw(port: int, data: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    first, *lines = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}, body


class Scrape:
    def __init__(self, text: str, *, is_open: bool = False) -> None:
        read: Any = open_families if is_open else text_families
        self.families: dict[str, Any] = {family.name: family for family in read(text)}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def values(self, name: str, /, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        wanted = set(labels.items())
        return {key[1]: value for key, value in self.samples.items() if key[0] == name and wanted <= key[1]}

    def value(self, name: str, /, **labels: str) -> float:
        found = self.values(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {found}"
        return next(iter(found.values()))


async def scrape(port: int, *, is_open: bool = False) -> Scrape:
    headers = {"Accept": "application/openmetrics-text"} if is_open else {}
    status, _, body = await fetch(port, "/metrics", headers=headers)
    assert status == 200
    return Scrape(body.decode(), is_open=is_open)
