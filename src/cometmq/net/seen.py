"""Where a server is looked at: `/metrics`, `/healthz`, `/readyz`, `/startupz`, from the first moment of its start.

    Seen(config)             settings are checked
    await start()            listens, if metricsExporterType=PROM or healthPort is set
    recovering(done, all)    the store says how far it is
    attach(room)             the server serves: conditions and metrics come from it
    await stop()

While the store recovers, `/healthz` is 200 and `/readyz` is 503: recovery runs in a thread of its own for that reason.
A scrape that comes while another is being gathered gets the same one.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Final, Protocol

from cometmq import metrics_settings as settings
from cometmq.clock import Clock, Timer
from cometmq.config import SeenConfig
from cometmq.health import Check, ready
from cometmq.net.http_get import Asked, HttpGet, Page
from cometmq.settings import SettingError
from cometmq.wire.exposition import OPEN_TYPE, TEXT_TYPE, Family, Placed, as_open_metrics, as_text, sample_name

logger = logging.getLogger(__name__)

NOT_HERE: Final = b"/healthz, /readyz and /startupz are here, and /metrics with metricsExporterType=PROM\n"
JSON_TYPE: Final = "application/json"
OPEN: Final = "application/openmetrics-text"


class Room(Protocol):
    """Of the server that serves; see room.py."""

    def checks(self) -> list[Check]: ...

    def fatal(self) -> str:
        """Why the process should be restarted; "" while it should not."""

    async def families(self) -> list[Family]: ...


class Seen:
    """`host` is where it listens if no setting says otherwise."""

    def __init__(self, config: SeenConfig, clock: Clock, host: str) -> None:
        self.exporter: str = settings.exporter_type(config)
        if self.exporter == settings.OTLP:
            raise SettingError(
                "metricsExporterType=OTLP_GRPC is not built: use PROM and let a collector scrape it, or LOG"
            )
        self._config = config
        self._clock = clock
        self._host = config.metrics_host or host
        self._room: Room | None = None
        self._progress = "not begun"
        self._pages: list[HttpGet] = []
        self._timer: Timer | None = None
        self._gathering: asyncio.Task[list[Family]] | None = None
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def is_served(self) -> bool:
        return bool(self._pages)

    @property
    def port(self) -> int:
        """Of the first page that is served; 0 if there is none."""
        return self._pages[0].port if self._pages else 0

    @property
    def counts_requests(self) -> bool:
        return self.exporter != settings.DISABLE

    async def start(self) -> None:
        """ConfigError: a port is taken."""
        config = self._config
        wanted = []
        if self.exporter == settings.PROM:
            wanted.append((config.metrics_port, "metricsPromExporterPort"))
        if config.health_port and (self.exporter != settings.PROM or config.health_port != config.metrics_port):
            wanted.append((config.health_port, "healthPort"))
        for port, key in wanted:
            page = HttpGet(self.answer, setting=key)
            try:
                await page.start(self._host, port)
            except BaseException:
                await self.stop()
                raise
            self._pages.append(page)
            logger.info("serve metrics and health address=%s:%d", self._host, page.port)
        if self.exporter == settings.LOG:
            self._timer = self._clock.call_later(config.metrics_log_interval_ms / 1000, self._tick)

    async def stop(self) -> None:
        self._room = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for page in self._pages:
            await page.stop()
        self._pages.clear()
        running = [*self._writing, *([self._gathering] if self._gathering is not None else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def recovering(self, done: int, count: int) -> None:
        """From any thread."""
        self._progress = f"log file {done} of {count}"

    def attach(self, room: Room) -> None:
        self._room = room

    # Pages

    async def answer(self, asked: Asked) -> Page:
        page = PAGES.get(asked.path)
        if page is None or (asked.path == "/metrics" and self.exporter != settings.PROM):
            return Page(404, NOT_HERE)
        if asked.path == "/metrics":
            return await self._metrics(asked)
        return page(self)

    def healthz(self) -> Page:
        fatal = self._room.fatal() if self._room is not None else ""
        return Page(503, f"{fatal}\n".encode()) if fatal else Page(200, b"ok\n")

    def readyz(self) -> Page:
        if self._room is None:
            return self._not_yet()
        is_ready, body = ready(self._room.checks())
        return Page(200 if is_ready else 503, body, JSON_TYPE)

    def startupz(self) -> Page:
        if self._room is None:
            return self._not_yet()
        return Page(200, ready([Check("recovery", True, "done")])[1], JSON_TYPE)

    def _not_yet(self) -> Page:
        return Page(503, ready([Check("recovery", False, self._progress)])[1], JSON_TYPE)

    def exporter_health(self) -> Page:
        """As RocketMQ's exporter says it."""
        return Page(200, b"Exporter is healthy.\n")

    async def _metrics(self, asked: Asked) -> Page:
        families = await self._families()
        names = set(asked.query.get("name[]", ()))
        is_open = OPEN in asked.headers.get("accept", "")
        body = await asyncio.to_thread(_written, families, names, is_open)
        return Page(200, body, OPEN_TYPE if is_open else TEXT_TYPE)

    async def _families(self) -> list[Family]:
        if self._room is None:
            return []
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().create_task(self._room.families())
            self._gathering.add_done_callback(self._gathered)
        return await asyncio.shield(self._gathering)

    def _gathered(self, task: "asyncio.Task[list[Family]]") -> None:
        self._gathering = None

    # The log

    def _tick(self) -> None:
        self._timer = self._clock.call_later(self._config.metrics_log_interval_ms / 1000, self._tick)
        if not self._writing:
            task = asyncio.get_running_loop().create_task(self._write())
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write(self) -> None:
        try:
            families = await self._families()
            logger.info("metrics %s", await asyncio.to_thread(as_json, families))
        except Exception:
            logger.exception("fail metrics")


def _written(families: list[Family], names: set[str], is_open: bool) -> bytes:
    wanted = [family for family in families if not names or names & {family.name, sample_name(family)}]
    return (as_open_metrics(wanted) if is_open else as_text(wanted)).encode()


def as_json(families: list[Family]) -> str:
    rows = {
        sample_name(family): {series.labels: _plain(series.value) for series in family.series} for family in families
    }
    return json.dumps(rows, separators=(",", ":"))


def _plain(value: float | Placed) -> object:
    if isinstance(value, Placed):
        return {"bounds": value.bounds, "counts": value.counts, "sum": value.sum}
    return value


PAGES: Final[dict[str, Callable[[Seen], Page]]] = {
    "/metrics": Seen.readyz,  # made of what the room gathers, see answer()
    "/healthz": Seen.healthz,
    "/readyz": Seen.readyz,
    "/startupz": Seen.startupz,
    "/-/healthy": Seen.exporter_health,
}
