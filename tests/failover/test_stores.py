"""The contract of a store for failover: what holds for etcd, as a real process, holds for the one in memory."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from cometmq.clock import SystemClock
from cometmq.errors import ConfigError
from cometmq.failover.stores import SetStore, StoreUnknown, open_store
from tests.support.etcd import Etcd

Open = Callable[[], SetStore]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    node = Etcd(tmp_path_factory.mktemp("etcd"))
    yield node
    node.stop()


@pytest.fixture(params=["memory", "etcd"])
def address(request: pytest.FixtureRequest) -> str:
    name = request.node.name
    if request.param == "memory":
        return f"memory:{name}"
    node: Etcd = request.getfixturevalue("etcd")
    return f"{node.address}/{name.replace('[', '-').replace(']', '')}"


@contextlib.asynccontextmanager
async def stores(address: str, count: int = 1) -> AsyncIterator[list[SetStore]]:
    made = [open_store(address, SystemClock()) for _ in range(count)]
    try:
        yield made
    finally:
        for each in made:
            await each.stop()


async def until(what: Callable[[], bool]) -> None:
    while not what():  # noqa: ASYNC110 - of any kind
        await asyncio.sleep(0.005)


@pytest.mark.mission("FO-02")
async def test_of_two_swaps_on_one_version_one_wins(address: str) -> None:
    async with stores(address, 2) as (one, other):
        assert await one.get("/a") == (None, 0)
        assert await one.swap("/a", 0, b"first")
        assert not await other.swap("/a", 0, b"second")
        value, version = await other.get("/a")
        assert value == b"first"
        answers = await asyncio.gather(*(store.swap("/a", version, b"x") for store in (one, other, one, other)))
        assert sorted(answers) == [False, False, False, True]


async def test_a_value_that_came_back_has_another_version(address: str) -> None:
    async with stores(address) as (store,):
        await store.swap("/a", 0, b"1")
        _, before = await store.get("/a")
        await store.swap("/a", before, b"2")
        _, between = await store.get("/a")
        await store.swap("/a", between, b"1")
        assert not await store.swap("/a", before, b"3")
        assert (await store.get("/a"))[0] == b"1"


async def test_what_is_removed_is_not_there(address: str) -> None:
    async with stores(address) as (store,):
        await store.swap("/a/1", 0, bytes(range(256)))
        assert {key: value for key, (value, _) in (await store.list("/a/")).items()} == {"/a/1": bytes(range(256))}
        _, version = await store.get("/a/1")
        assert await store.swap("/a/1", version, None)
        assert await store.list("/a/") == {}


@pytest.mark.mission("FO-02")
async def test_a_watch_tells_what_is_there_and_what_changes(address: str) -> None:
    async with stores(address, 2) as (one, other):
        await one.swap("/w/1", 0, b"before")
        told: list[tuple[str, bytes | None]] = []
        live: list[bool] = []
        end = other.watch("/w/", lambda key, value, _: told.append((key, value)), live.append)
        await until(lambda: live == [True])
        assert told == [("/w/1", b"before")]
        _, version = await one.get("/w/1")
        await one.swap("/w/1", version, b"after")
        await one.swap("/other", 0, b"not watched")
        await one.swap("/w/2", 0, b"new")
        await until(lambda: len(told) >= 3)
        assert told[1:] == [("/w/1", b"after"), ("/w/2", b"new")]
        end()


async def test_what_is_announced_vanishes_with_its_owner(address: str) -> None:
    async with stores(address, 2) as (one, other):
        await one.announce("/alive/1", b"master", 5000)
        await one.announce("/alive/1", b"replica", 5000)
        assert (await other.get("/alive/1"))[0] == b"replica"
        await one.stop()
        assert (await other.get("/alive/1")) == (None, 0)


# etcd alone


async def test_nobody_answering_is_unknown_and_a_swap_is_sent_once() -> None:
    async with stores("etcd://127.0.0.1:1") as (store,):
        with pytest.raises(StoreUnknown, match=r"127\.0\.0\.1:1"):
            await store.swap("/a", 0, b"x")


@pytest.mark.mission("FO-02")
async def test_a_watch_finds_what_it_missed_when_its_node_dies(tmp_path: Path) -> None:
    nodes = Etcd(tmp_path, 3)
    try:
        async with stores(nodes.address, 2) as (one, other):
            told: list[bytes | None] = []
            live: list[bool] = []
            other.watch("/w/", lambda _key, value, _version: told.append(value), live.append)
            await until(lambda: live == [True])
            leader = nodes.leader()
            nodes.kill(leader)
            while True:
                with contextlib.suppress(StoreUnknown):
                    if await one.swap("/w/1", 0, b"x") or (await one.get("/w/1"))[0] == b"x":
                        break
            await until(lambda: told[-1:] == [b"x"])
            frozen = (leader + 1) % 3
            nodes.start(leader)
            nodes.wait()
            nodes.freeze(frozen)
            try:
                _, version = await one.get("/w/1")
                with contextlib.suppress(StoreUnknown):
                    await one.swap("/w/1", version, b"y")
                assert (await other.get("/w/1"))[0] in (b"x", b"y")
            finally:
                nodes.thaw(frozen)
    finally:
        nodes.stop()


async def test_a_user_with_a_password_is_let_in_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Etcd(tmp_path)
    try:
        async with stores(node.address) as (store,):
            ask = store._ask  # type: ignore[attr-defined]
            await ask("/v3/auth/user/add", {"name": "root", "password": "secret"})
            await ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
            await ask("/v3/auth/enable", {})
            with pytest.raises(StoreUnknown):
                await store.swap("/a", 0, b"x")
        monkeypatch.setenv("COMETMQ_ETCD_PASSWORD", "secret")
        async with stores(f"{node.address}?user=root") as (store,):
            assert await store.swap("/a", 0, b"x")
            store._token = "gone"  # type: ignore[attr-defined]  # as after a restart of etcd
            assert (await store.get("/a"))[0] == b"x"
        monkeypatch.setenv("COMETMQ_ETCD_PASSWORD", "wrong")
        async with stores(f"{node.address}?user=root") as (store,):
            with pytest.raises(StoreUnknown, match=r"authentication failed|invalid user"):
                await store.get("/a")
    finally:
        node.stop()


def make_certificates(home: Path) -> tuple[Path, Path, Path]:
    """ca, certificate, key for 127.0.0.1."""
    ca, ca_key, cert, key, request = (home / name for name in ("ca", "ca.key", "cert", "key", "request"))
    subject = ["-subj", "/CN=test"]
    extension = home / "extension"
    extension.write_text("subjectAltName=IP:127.0.0.1\n")
    for command in (
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", ca_key, "-out", ca, *subject],
        ["req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, *subject],
        ["x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-out", cert,
         "-extfile", extension],
    ):  # fmt: skip
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    return ca, cert, key


async def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    ca, cert, key = make_certificates(tmp_path)
    node = Etcd.__new__(Etcd)
    Etcd.__init__(node, tmp_path / "plain")  # ports and arguments
    node.stop()
    options = [f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={ca}", "--client-cert-auth"]
    port = node.ports[0]
    url = f"https://127.0.0.1:{port}"
    child = subprocess.Popen(  # noqa: ASYNC220
        ["etcd", "--data-dir", str(tmp_path / "tls"), "--listen-client-urls", url, "--advertise-client-urls", url,
         "--listen-peer-urls", f"http://127.0.0.1:{node._peers[0]}", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        address = f"etcd://127.0.0.1:{port}?ca={ca}&cert={cert}&key={key}"
        async with stores(address) as (store,):
            while True:
                with contextlib.suppress(StoreUnknown):
                    if await store.swap("/a", 0, b"x") or (await store.get("/a"))[0] == b"x":
                        break
            assert (await store.get("/a"))[0] == b"x"
        async with stores(f"etcd://127.0.0.1:{port}?ca={ca}") as (store,):
            with pytest.raises(StoreUnknown):
                await store.get("/a")
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    "address",
    ["redis://a:1", "etcd://", "etcd://a:x", "etcd://u:p@a:1", "etcd://a:1?what=1", "etcd://a:1?cert=x", "etcd://a?user=u"],
)
def test_an_address_that_cannot_be_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="controllerStore"):
        open_store(address, SystemClock())


