"""A real browser for tests of the console: Debian's Chromium, started once, driven by Playwright.

    async with opened(chromium, address) as page: ...      an own context; ends with an error if the page had one
    async with console(cluster) as address: ...            the console in this process, on a free port

A page may not fail quietly: errors of its scripts, of its console and refused requests end the test.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.support.require import unavailable

SHOTS = Path(__file__).resolve().parent.parent.parent / "build" / "console-shots"
START_S = 60.0
PATIENCE_MS = 20_000


@contextmanager
def chromium_running() -> Iterator[str]:
    """Its address for DevTools."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        unavailable("browser", "there is no chromium (Debian: apt-get install chromium)")
    try:
        import playwright  # noqa: F401
    except ImportError:
        unavailable("browser", "playwright is not installed (make setup)")
    folder = tempfile.mkdtemp(prefix="cometmq-chromium-")
    command = [
        program, "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run",
        "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
        "--disable-extensions", "--hide-scrollbars", "about:blank",
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _devtools(process, Path(folder, "DevToolsActivePort"))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _devtools(process: subprocess.Popen[bytes], file: Path) -> str:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        assert process.poll() is None, "chromium ended at its start"
        if file.exists() and file.read_text().count("\n") >= 1:
            return f"http://127.0.0.1:{file.read_text().splitlines()[0]}"
        time.sleep(0.05)
    raise AssertionError(f"chromium did not start within {START_S:.0f} s")


@asynccontextmanager
async def opened(
    chromium: str,
    address: str = "",
    *,
    width: int = 1280,
    dark: bool = False,
    expected: tuple[str, ...] = (),
    **context: Any,
) -> AsyncIterator[Any]:
    """`expected`: parts of messages that the browser may log, say of a request that the test wants refused."""
    from playwright.async_api import async_playwright

    faults: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(chromium)
        own = await browser.new_context(
            viewport={"width": width, "height": 860},
            color_scheme="dark" if dark else "light",
            timezone_id="UTC",
            **context,
        )
        own.set_default_timeout(PATIENCE_MS)
        page = await own.new_page()
        page.on("pageerror", lambda error: faults.append(f"script: {error}"))
        page.on("console", lambda said: faults.append(f"{said.type}: {said.text}") if said.type == "error" else None)
        try:
            if address:
                await page.goto(address)
            yield page
        except BaseException:
            SHOTS.mkdir(parents=True, exist_ok=True)
            name = (os.environ.get("PYTEST_CURRENT_TEST") or "shot").split("::")[-1].split(" ")[0]
            await page.screenshot(path=SHOTS / f"failed-{name[:80].replace('/', '_')}.png")
            if faults:
                print("the browser said:", *faults, sep="\n  ")
            raise
        finally:
            await own.close()
            await browser.close()
    wrong = [fault for fault in faults if not any(part in fault for part in expected)]
    assert not wrong, "the browser reported:\n" + "\n".join(wrong)


@asynccontextmanager
async def console(namesrv: str, **options: Any) -> AsyncIterator[str]:
    """The console of a cluster, in this process; gives its address."""
    from cometmq.console.options import Options
    from cometmq.console.serving import serve

    stopping = asyncio.Event()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def told(address: str) -> None:
        ready.set_result(address)

    serving = asyncio.create_task(serve(Options(namesrv, port=0, **options), told, stopping))
    try:
        waits: list[asyncio.Future[Any]] = [serving, ready]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        yield await ready
    finally:
        stopping.set()
        await serving
