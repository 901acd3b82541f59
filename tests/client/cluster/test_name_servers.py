"""Finding name servers, and staying with one."""

import asyncio
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cometmq.client.client import Client
from cometmq.client.cluster import name_servers
from cometmq.client.cluster.name_servers import NameServers, configured, namespace_of, parse
from cometmq.clock import ManualClock
from cometmq.errors import ConfigError, ConnectFailed, NoNameServer
from cometmq.net.client import Client as NetClient
from cometmq.wire.command import request
from tests.support.aio import run
from tests.support.clusters import real_cluster
from tests.support.net import ECHO, serving, until


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ["a:1"]),
        ("a:1;b:2", ["a:1", "b:2"]),
        (" a:1 ; ;b:2;", ["a:1", "b:2"]),
        ("[::1]:9876", ["[::1]:9876"]),
        ("http://MQ_INST_1_2.example.com:80", ["MQ_INST_1_2.example.com:80"]),
        ("", []),
    ],
)
def test_lists_of_addresses(text: str, addresses: list[str]) -> None:
    assert parse(text) == addresses


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:x", "a:0", "a:70000", "a:1;b"])
def test_what_is_no_address_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        parse(text)


def test_the_first_place_that_names_them_counts() -> None:
    environment = {"COMETMQ_NAMESRV": "b:1", "NAMESRV_ADDR": "c:1"}
    assert configured("a:1", environment) == ["a:1"]
    assert configured(None, environment) == ["b:1"]
    assert configured(None, {"NAMESRV_ADDR": "c:1", "COMETMQ_NAMESRV": " "}) == ["c:1"]
    assert configured(None, {}) == []


def test_an_endpoint_can_name_a_namespace() -> None:
    assert namespace_of("http://MQ_INST_1_2.example.com:80") == "MQ_INST_1_2"
    assert namespace_of("http://other.example.com:80") is None
    assert namespace_of("a:1") is None
    assert namespace_of(None) is None


async def test_the_chosen_one_is_kept_while_its_connection_lives() -> None:
    async with serving() as first, serving() as second, serving() as third:
        servers = {f"127.0.0.1:{server.port}": server for server in (first, second, third)}
        net = NetClient()
        names = NameServers(net, list(servers))
        for _ in range(5):
            await names.ask(request(ECHO), 3)
        chosen = names.chosen
        assert chosen is not None
        assert [len(server.connections) for server in servers.values()].count(1) == 1
        await servers[chosen].stop()
        await until(lambda: net.connection(chosen) is None)
        await names.ask(request(ECHO), 3)
        assert names.chosen != chosen
        await net.stop()


async def test_name_servers_that_are_down_are_passed_over() -> None:
    async with serving() as server:
        net = NetClient()
        good = f"127.0.0.1:{server.port}"
        for _ in range(4):
            names = NameServers(net, ["127.0.0.1:1", good, "127.0.0.1:2"])
            assert (await names.ask(request(ECHO), 3)).code == 0
            assert names.chosen == good
        names.update(["127.0.0.1:1"])
        assert net.connection(good) is None
        with pytest.raises(ConnectFailed, match="none of 1 name servers"):
            await names.ask(request(ECHO), 3)
        names.update([])
        with pytest.raises(NoNameServer):
            await names.ask(request(ECHO), 3)
        await net.stop()


class Endpoint(BaseHTTPRequestHandler):
    text = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.text else 404)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.mission("PC-01")
def test_addresses_are_fetched_from_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMETMQ_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr"

    async def main() -> None:
        async with real_cluster(tmp_path, "T") as cluster:
            clock = ManualClock()
            Endpoint.text = b""
            async with Client(namesrv_endpoint=endpoint, clock=clock) as client:
                assert client.instance.nameservers.addresses == []  # it said nothing, and that is no failure
                Endpoint.text = f" {cluster.namesrv} \nsecond line".encode()
                clock.advance(10)
                await until(lambda: client.instance.nameservers.addresses == [cluster.namesrv])
                async with client.producer("pg") as producer:
                    await producer.send("T", b"x")
            async with Client(namesrv_endpoint=endpoint) as client, client.producer("pg") as producer:
                await producer.send("T", b"x")
            async with Client("a:1", namesrv_endpoint=endpoint) as client:
                assert client.instance.nameservers.addresses == ["a:1"]

    try:
        run(main())
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_an_endpoint_must_be_one() -> None:
    names = NameServers(NetClient(), [], "ftp://x")
    await names.fetch()
    assert names.addresses == []
    with pytest.raises(ConfigError):
        await asyncio.to_thread(name_servers.fetch_over_http, "file:///etc/passwd")
