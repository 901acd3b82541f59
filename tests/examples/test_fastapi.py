"""The web service of the examples, driven through its ASGI interface."""

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq.testing import Cluster
from tests.conftest import run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fastapi_service.py"

pytest.importorskip("fastapi", reason="it is in the dev extra")


def load(namesrv: str) -> Any:
    spec = importlib.util.spec_from_file_location("fastapi_service", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.NAMESRV = namesrv  # type: ignore[attr-defined]
    return module


@asynccontextmanager
async def living(app: Any) -> AsyncIterator[None]:
    """What an ASGI server does at its start and end."""
    asked: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    life = asyncio.ensure_future(app({"type": "lifespan", "asgi": {"version": "3.0"}}, asked.get, said.put))
    for step in ("startup", "shutdown"):
        await asked.put({"type": f"lifespan.{step}"})
        assert (await said.get())["type"] == f"lifespan.{step}.complete"
        if step == "startup":
            yield
    await life


async def request(app: Any, method: str, path: str, body: object = None) -> tuple[int, Any]:
    content = b"" if body is None else json.dumps(body).encode()
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(b"content-type", b"application/json"), (b"host", b"test")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    await app(scope, receive, send)
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(answer)


def test_an_order_goes_through_the_queue_and_back() -> None:
    async def check() -> None:
        async with Cluster() as cluster:
            module = load(cluster.namesrv)
            async with living(module.app):
                status, answer = await request(module.app, "POST", "/orders", {"item": "book", "count": 2})
                assert status == 202
                assert answer["id"]
                for _ in range(500):
                    _, seen = await request(module.app, "GET", "/orders")
                    if seen:
                        break
                    await asyncio.sleep(0.05)
                assert seen == [{"item": "book", "count": 2}]
                assert (await request(module.app, "POST", "/orders", {"count": 2}))[0] == 422
                await cluster.broker.stop()
                status, answer = await request(module.app, "POST", "/orders", {"item": "late"})
                assert status == 503
                assert "try again" in answer["detail"]

    run(check(), 60)
