"""TLS on the command line: which certificates are taken, and where that is set."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli.context import Tls, resolve
from cometmq.errors import ConfigError
from tests.cli.conftest import Comet, Ran
from tests.conftest import run
from tests.nameserver.support import nameserver
from tests.support.certificates import authority, pair

Get = Callable[..., Awaitable[Ran]]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("COMETMQ_TLS")]:
        monkeypatch.delenv(name)


async def with_server(
    lonely: Comet, folder: Path, act: Callable[[Get, str], Awaitable[None]], hosts: tuple[str, ...] = ("127.0.0.1",)
) -> None:
    """A name server that takes TLS only, and a command that asks it for a setting."""
    certificate, key = pair("server", hosts=hosts).write(folder, "server")
    (folder / "ca.pem").write_bytes(authority())
    (folder / "other.pem").write_bytes(authority("another authority"))
    files = {"tls_server_mode": "enforcing", "tls_server_certPath": certificate, "tls_server_keyPath": key}
    async with nameserver(folder, **files) as names:

        async def get(*options: object, namesrv: bool = True) -> Ran:
            where = ("--namesrv", names.address) if namesrv else ()
            words = ("config", "get", "--nameserver", "tls.server.mode", "-o", "json", *where, *map(str, options))
            return await asyncio.to_thread(lonely, *words)

        await act(get, names.address)


def test_a_server_must_prove_itself_unless_the_user_says_otherwise(lonely: Comet, tmp_path: Path) -> None:
    async def main(get: Get, address: str) -> None:
        good = await get("--tls", "--tls-ca", tmp_path / "ca.pem")
        assert (good.code, good.json[0]["value"]) == (0, "enforcing")
        assert (await get("--tls-ca", tmp_path / "ca.pem")).code == 0
        insecure = await get("--tls-insecure")
        assert (insecure.code, "not verified" in insecure.err) == (0, True)
        for options in (["--tls"], ["--tls-ca", tmp_path / "other.pem"]):
            refused = await get(*options)
            assert (refused.code, refused.out) == (4, "")
            assert address in refused.err
            assert "certificate verify failed" in refused.err
            assert "trust_path" in refused.err
        assert (await get()).code == 4, "it takes TLS only"
        assert (await get("--tls-cert", tmp_path / "server.pem")).code == 2
        assert (await get("--tls-insecure", "--tls-name", "mq.example")).code == 2

    run(with_server(lonely, tmp_path, main))


def test_a_name_stands_for_addresses_that_the_certificate_does_not_have(lonely: Comet, tmp_path: Path) -> None:
    async def main(get: Get, address: str) -> None:
        refused = await get("--tls-ca", tmp_path / "ca.pem")
        assert refused.code == 4
        assert "127.0.0.1 in its subjectAltName" in refused.err
        assert (await get("--tls-ca", tmp_path / "ca.pem", "--tls-name", "mq.example")).code == 0

    run(with_server(lonely, tmp_path, main, ("mq.example",)))


def test_a_context_and_the_environment_say_it_too(
    lonely: Comet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(get: Get, address: str) -> None:
        trust = str(tmp_path / "ca.pem")
        monkeypatch.setenv("COMETMQ_TLS_CA", trust)
        assert (await get()).code == 0
        monkeypatch.delenv("COMETMQ_TLS_CA")
        assert (await get()).code == 4
        await asyncio.to_thread(lonely.good, "context", "add", "safe", "--namesrv", address, "--tls-ca", trust)
        assert (await get("--context", "safe", namesrv=False)).code == 0
        kept = json.loads((tmp_path / "config" / "contexts.json").read_text())
        assert kept["contexts"]["safe"]["tls"]["ca"] == trust
        listed = (await asyncio.to_thread(lonely.good, "context", "list", "-o", "json")).json
        assert listed == [{"name": "safe", "namesrv": address, "current": True, "keys": False, "tls": True}]

    run(with_server(lonely, tmp_path, main))


def test_a_flag_wins_over_the_environment_and_that_over_the_context(tmp_path: Path) -> None:
    import argparse

    def found(environment: dict[str, str], **flags: Any) -> Tls | None:
        names = ("namesrv", "context", "access_key", "secret_key", "tls", "tls_ca", "tls_name", "tls_cert", "tls_key")
        options = argparse.Namespace(**{**dict.fromkeys([*names, "tls_insecure"]), "namesrv": "ns:9876", **flags})
        return resolve(options, {"COMETMQ_CONFIG": str(tmp_path), **environment}).tls

    assert found({}) is None
    assert found({"COMETMQ_TLS": "true"}) == Tls()
    assert found({"COMETMQ_TLS": "false"}) is None
    assert found({"COMETMQ_TLS_CA": "env.pem"}, tls_ca="flag.pem") == Tls(ca="flag.pem")
    assert found({"COMETMQ_TLS_INSECURE": "true"}) == Tls(insecure=True)
    with pytest.raises(ConfigError, match="COMETMQ_TLS is 'perhaps'"):
        found({"COMETMQ_TLS": "perhaps"})
