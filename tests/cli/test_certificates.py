"""Checks `cometmq tls`: what it writes serves an enforcing cluster that asks for client certificates."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Comet
from tests.nameserver.support import nameserver


@pytest.mark.mission("AC-20")
async def test_an_enforcing_server_runs_on_what_init_has_made(lonely: Comet, tmp_path: Path) -> None:
    made = (await asyncio.to_thread(lonely.good, "tls", "init", tmp_path / "certs", "-o", "json")).json
    settings = made["server"] | {"tls.server.mode": "enforcing", "tls.server.need.client.auth": "require"}
    client = [word for pair in made["client"].items() for word in pair]
    async with nameserver(tmp_path, **{key.replace(".", "_"): text for key, text in settings.items()}) as names:
        ask = ("config", "get", "tls.server.mode", "--nameserver", "--namesrv", names.address)
        await asyncio.to_thread(lonely.good, *ask, *client)
        assert (await asyncio.to_thread(lonely, *ask)).code == 4, "it takes TLS only"
        assert (await asyncio.to_thread(lonely, *ask, *client[:2])).code == 4, "it asks for a certificate"


@pytest.mark.mission("AC-20")
def test_keys_are_the_owners_and_nothing_is_written_over(lonely: Comet, tmp_path: Path) -> None:
    shown = lonely.good("tls", "init", tmp_path / "certs", "--host", "mq.example.com")
    assert "tls.server.certPath=" in shown.out
    assert "PRIVATE" not in shown.out + shown.err
    for name in ("ca", "server", "client"):
        assert (tmp_path / "certs" / f"{name}.key").stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "certs" / "ca.key").read_bytes()
    again = lonely("tls", "init", tmp_path / "certs")
    assert (again.code, again.err.count("\n")) == (3, 1)
    assert (tmp_path / "certs" / "ca.key").read_bytes() == before


@pytest.mark.mission("AC-20")
def test_more_pairs_are_issued_by_the_same_authority(lonely: Comet, tmp_path: Path) -> None:
    lonely.good("tls", "init", tmp_path)
    server = lonely.good("tls", "issue", tmp_path, "broker-2", "--host", "10.0.0.6", "-o", "json").json
    assert server["tls.server.certPath"] == str(tmp_path / "broker-2.pem")
    client = lonely.good("tls", "issue", tmp_path, "shop", "-o", "json").json
    assert client["--tls-key"] == str(tmp_path / "shop.key")
    assert (tmp_path / "shop.key").stat().st_mode & 0o777 == 0o600
    for words in ((tmp_path, "shop"), (tmp_path, "../shop"), (tmp_path / "none", "x")):
        wrong = lonely("tls", "issue", *words)
        assert (wrong.code, wrong.err.count("\n")) == (3, 1)


@pytest.mark.mission("AC-20")
def test_without_the_package_the_extra_is_named(
    lonely: Comet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    missing = lonely("tls", "init", tmp_path)
    assert (missing.code, missing.err.count("\n")) == (2, 1)
    assert "pip install 'cometmq[tls]'" in missing.err
    assert not list(tmp_path.glob("*.pem"))


@pytest.mark.mission("AC-20")
def test_a_bad_host_is_refused_before_anything_is_written(lonely: Comet, tmp_path: Path) -> None:
    wrong = lonely("tls", "init", tmp_path / "certs", "--host", "no host")
    assert wrong.code == 2
    assert not (tmp_path / "certs").exists()
    assert json.dumps("no host")[1:-1] in wrong.err
