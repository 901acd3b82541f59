"""Requests to the console as curl makes them: status and JSON, in a thread of their own."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

CHANGE = {"Content-Type": "application/json", "X-CometMQ-Console": "1"}


async def ask(
    address: str, path: str, content: Any = None, *, headers: dict[str, str] | None = None, method: str | None = None
) -> tuple[int, Any]:
    status, text, _ = await ask_whole(address, path, content, headers=headers, method=method)
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


async def ask_whole(
    address: str, path: str, content: Any = None, *, headers: dict[str, str] | None = None, method: str | None = None
) -> tuple[int, str, dict[str, str]]:
    def send() -> tuple[int, str, dict[str, str]]:
        data = json.dumps(content).encode() if content is not None else None
        used = (CHANGE if content is not None else {}) if headers is None else headers
        request = urllib.request.Request(address.partition("?")[0].rstrip("/") + path, data, used, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.read().decode(), dict(response.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)

    return await asyncio.to_thread(send)


async def get(address: str, path: str) -> Any:
    status, content = await ask(address, path)
    assert status == 200, (status, content)
    return content


async def plan(address: str, action: str, **arguments: Any) -> dict[str, Any]:
    status, content = await ask(address, "/api/plans", {"action": action, **arguments})
    assert status == 200, (status, content)
    return dict(content)


async def apply(address: str, made: dict[str, Any]) -> dict[str, Any]:
    status, content = await ask(address, f"/api/plans/{made['id']}/apply", {})
    assert status == 200, (status, content)
    return dict(content)


async def do(address: str, action: str, **arguments: Any) -> dict[str, Any]:
    return await apply(address, await plan(address, action, **arguments))
