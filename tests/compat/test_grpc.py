"""RocketMQ's own 5.x clients against what serves gRPC: our broker, our proxy before a RocketMQ broker, and RocketMQ's
proxy before the same, which shows the scenarios to be right. What they do is in harness/grpc_scenarios.py.

`make test` has each client before our broker and two before our proxy, `make verify` (`long`) the rest of ours, a run
with COMETMQ_LENGTH=soak all, RocketMQ's proxy too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.compat.harness.build import ToolMissing
from tests.compat.harness.grpc_clients import CLIENTS, Driver
from tests.compat.harness.grpc_fronts import Fronts
from tests.compat.harness.grpc_scenarios import SCENARIOS, Cell
from tests.support.length import SOAK
from tests.support.require import unavailable


class Place(NamedTuple):
    front: str
    client: str
    transport: str

    def __str__(self) -> str:
        return "-".join(self)


TEST = "test_a_client_does_what_the_scenario_says"
# Each client as it connects by default.
QUICK = {
    Place("comet", "python", "plain"),
    Place("comet", "node", "plain"),
    Place("comet", "go", "tls"),
    Place("comet", "java52", "tls"),
    Place("comet", "java508", "plain"),
    Place("proxy", "python", "tls"),
    Place("proxy", "java52", "plain"),
}
PLACES = [
    Place(front, client, transport)
    for front in ("comet", "proxy", *(("rocketmq",) if SOAK else ()))
    for client in CLIENTS
    for transport in ("plain", "tls")
]


@pytest.fixture(scope="session")
def fronts(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronts]:
    with ExitStack() as stack:
        yield Fronts(tmp_path_factory.mktemp("grpc-fronts"), stack)


class Cells:
    """One at a time: tests come place by place."""

    def __init__(
        self, fronts: Fronts, wanted: dict[Place, list[str]], tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        self._fronts = fronts
        self._wanted = wanted
        self._factory = tmp_path_factory
        self._now: tuple[Place, Cell] | None = None

    def __getitem__(self, place: Place) -> Cell:
        if self._now is None or self._now[0] != place:
            self.close()
            self._now = place, self._start(place)
        return self._now[1]

    def _start(self, place: Place) -> Cell:
        front = self._fronts[place.front]
        environment = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(front.keys.trust)}
        directory = self._factory.mktemp("grpc-client")
        driver = Driver(directory, CLIENTS[place.client], front.endpoints, place.transport, environment).begin()
        return Cell(driver, front, f"{place.front}_{place.client}_{place.transport}", self._wanted[place])

    def close(self) -> None:
        if self._now is not None:
            self._now[1].close()
            self._now = None


@pytest.fixture(scope="session")
def cells(fronts: Fronts, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    wanted: dict[Place, list[str]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.originalname == TEST:
            parameters: dict[str, Any] = item.callspec.params
            wanted.setdefault(parameters["place"], []).append(parameters["scenario"])
    cells = Cells(fronts, wanted, tmp_path_factory)
    yield cells
    cells.close()


@pytest.mark.mission("GR-07")
def test_a_client_does_what_the_scenario_says(cells: Cells, place: Place, scenario: str) -> None:
    try:
        cell = cells[place]
    except ToolMissing as missing:
        unavailable("interop", str(missing))
    cell.check(scenario)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        quick = [pytest.param(it, id=str(it), marks=() if it in QUICK else pytest.mark.long) for it in PLACES]
        metafunc.parametrize("place", quick, scope="session")
        metafunc.parametrize("scenario", list(SCENARIOS))
