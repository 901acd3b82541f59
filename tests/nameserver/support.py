"""A name server on a temporary directory, and peers that play broker and client."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from cometmq.clock import Clock
from cometmq.nameserver import settings as live
from cometmq.nameserver.server import NameServer
from cometmq.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable, TopicRoute
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, request
from cometmq.wire.headers import RegisterBroker
from tests.support.net import RawPeer

BROKER = "10.0.0.1:10911"


@asynccontextmanager
async def nameserver(directory: Path, clock: Clock | None = None, /, **texts: str) -> AsyncIterator[NameServer]:
    """`texts` are settings by RocketMQ's keys, with _ for the dot."""
    settings = {
        "listenPort": "0",
        "kvConfigPath": str(directory / "kvConfig.json"),
        "configStorePath": str(directory / "namesrv.properties"),
        **{key.replace("_", "."): text for key, text in texts.items()},
    }
    server = NameServer(live.load(settings), clock)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def registration_body(*topics: str | TopicConfig, counter: int = 1) -> bytes:
    configs = [
        TopicConfig(topic_name=it, read_queue_nums=4, write_queue_nums=4) if isinstance(it, str) else it
        for it in topics
    ]
    table = TopicConfigTable(DataVersion(counter, 0, 5), {config.topic_name: config for config in configs})
    return RegisterBrokerBody(topics=table).encode()


def registration(
    *topics: str | TopicConfig, counter: int = 1, version: int = 513, body: bytes | None = None, **fields: Any
) -> Command:
    values = {
        "broker_name": "broker-a",
        "broker_addr": BROKER,
        "cluster_name": "c1",
        "ha_server_addr": "10.0.0.1:10912",
        "broker_id": 0,
        "enable_acting_master": False,
    }
    header = RegisterBroker(**{**values, **fields})
    content = registration_body(*topics, counter=counter) if body is None else body
    return asked(Request.REGISTER_BROKER, header.encode(), content, version=version)


def asked(code: int, ext: dict[str, str] | None = None, body: bytes = b"", version: int = 513) -> Command:
    command = request(code, ext or {}, body, opaque=1)
    command.version = version
    return command


async def call(peer: RawPeer, code: int, body: bytes = b"", /, **ext: str) -> Command:
    return await peer.call(asked(code, ext, body))


async def register(peer: RawPeer, *topics: str | TopicConfig, **fields: Any) -> Command:
    answer = await peer.call(registration(*topics, **fields))
    assert answer.code == 0, answer.remark
    return answer


async def route(peer: RawPeer, topic: str) -> TopicRoute | None:
    """The route of a topic, None for code 17; any other code is an error."""
    answer = await call(peer, Request.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    assert answer.code in (0, 17), answer.remark
    return TopicRoute.decode(answer.body) if answer.code == 0 else None


class Process:
    """`cometmq nameserver` as a child process that serves."""

    def __init__(self, child: "subprocess.Popen[str]", address: str) -> None:
        self.child = child
        self.address = address
        self.port = int(address.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self.child.pid


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cometmq.cli.main", "nameserver", *arguments]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home)}


@contextmanager
def process(home: Path, *arguments: str) -> Iterator[Process]:
    listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    with (home / "stderr").open("a") as log:
        child = subprocess.Popen(
            command_line(*listen, *arguments), stdout=subprocess.PIPE, stderr=log, text=True, env=environment(home)
        )
    try:
        assert child.stdout is not None
        ready = re.fullmatch(r"ready namesrv=(\S+)\n", child.stdout.readline())
        assert ready, (home / "stderr").read_text()
        yield Process(child, ready[1])
    finally:
        child.kill()
        child.communicate()
