"""Fixtures of the command line's tests: one real cluster for all of them, and the command itself.

cluster    two brokers and a name server, for the whole run: use topics of your own
comet      runs `cometmq ARGUMENTS` in this process: exit code, stdout, stderr
secured    the same with another cluster, whose brokers ask who is there
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli.main import main
from cometmq.testing import SyncCluster


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """JSON objects, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Comet:
    """`comet("topic", "list")`; `stdin` is what a pipe would bring."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> Ran:
        self._monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin)))
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = self._capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    def good(self, *arguments: str | Path, stdin: bytes = b"") -> Ran:
        ran = self(*arguments, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran


@pytest.fixture(scope="session")
def cluster() -> Iterator[SyncCluster]:
    settings = {"enablePropertyFilter": True, "autoCreateTopicEnable": False, "traceTopicEnable": True}
    with SyncCluster(brokers=2, settings=settings) as running:
        yield running


@pytest.fixture
def lonely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Comet:
    """The command without a cluster, an environment or contexts."""
    for name in ("COMETMQ_NAMESRV", "NAMESRV_ADDR", "COMETMQ_CONTEXT", "COMETMQ_ACCESS_KEY", "COMETMQ_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COMETMQ_CONFIG", str(tmp_path / "config"))
    return Comet(capsys, monkeypatch)


@pytest.fixture
def comet(lonely: Comet, cluster: SyncCluster, monkeypatch: pytest.MonkeyPatch) -> Comet:
    monkeypatch.setenv("COMETMQ_NAMESRV", cluster.namesrv)
    return lonely


ROOT = {"COMETMQ_ACCESS_KEY": "root", "COMETMQ_SECRET_KEY": "root-secret"}
SECURED: dict[str, str | int | float | bool] = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}


@pytest.fixture(scope="session")
def secured_cluster() -> Iterator[SyncCluster]:
    with SyncCluster(brokers=2, settings=SECURED) as running:
        yield running


@pytest.fixture
def secured(lonely: Comet, secured_cluster: SyncCluster, monkeypatch: pytest.MonkeyPatch) -> Comet:
    """The command as a Super user of a cluster that checks signatures and policies: use users of your own."""
    monkeypatch.setenv("COMETMQ_NAMESRV", secured_cluster.namesrv)
    for name, value in ROOT.items():
        monkeypatch.setenv(name, value)
    return lonely
