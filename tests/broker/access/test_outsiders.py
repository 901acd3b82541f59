"""Who has no key reads nothing and changes nothing, whatever is asked for, at every port of a closed cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cometmq.broker.hosts import FAST_PORT_BELOW, ha_port_of
from cometmq.broker.server import Broker
from cometmq.nameserver.server import NameServer
from cometmq.wire.codes import REQUEST_NAMES
from cometmq.wire.command import FLAG_ONEWAY, Command, request
from tests.nameserver.support import nameserver
from tests.nameserver.test_access import SECURED as NAMES_SECURED
from tests.support.access import ROOT, SECURED, SIGNING, add_user, allow, signed_peer
from tests.support.brokers import add_topic, running_broker, stored
from tests.support.net import RawPeer

# What names something that is there, by every name that a request may have for it.
FIELDS = {
    **dict.fromkeys(("topic", "b"), "T"),
    **dict.fromkeys(("consumerGroup", "group", "groupName", "a", "destGroup", "srcGroup"), "g"),
    **dict.fromkeys(("queueId", "e", "offset", "queueOffset", "commitOffset", "commitLogOffset"), "0"),
    **dict.fromkeys(("clusterName", "brokerClusterName"), "DefaultCluster"),
    "username": ROOT,
    "subject": f"User:{ROOT}",
    "namespace": "n",
    "key": "k",
    "value": "v",
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:1",
    "maxMsgNums": "32",
}
# With a name but without its secret; nothing at all; and no fields.
CALLERS: tuple[dict[str, str], ...] = (
    {**FIELDS, "AccessKey": ROOT, "Signature": "A" * 27 + "="},
    {**FIELDS, "AccessKey": "nobody", "Signature": ""},
    FIELDS,
    {},
)
BODIES = (b"", b"{}", b'{"password":"a new password","userType":"Super"}', b"brokerPermission=0")


@dataclass
class Closed:
    names: NameServer
    broker: Broker

    def ports(self) -> Iterator[int]:
        yield self.broker.port
        yield self.broker.port - FAST_PORT_BELOW
        yield self.names.port

    def state(self) -> str:
        """All that somebody could have changed."""
        tables, access = self.broker.tables, self.broker.access
        return json.dumps(
            [
                sorted(tables.topics.table),
                sorted(tables.groups.table),
                str(tables.offsets.snapshot()()),
                repr(sorted(access.users.table.items())),
                repr(sorted(access.acls.table.items())),
                self.broker.settings.texts(secrets=True),
                self.broker.store.log.max_offset,
                sorted(map(str, self.names.state.routes.presences)),
                [*self.names.state.key_values.entries()],
                self.names.state.settings.texts(secrets=True),
            ]
        )


@asynccontextmanager
async def closed_cluster(directory: Path) -> AsyncIterator[Closed]:
    async with nameserver(directory, **NAMES_SECURED) as names:
        texts = {**SECURED, **SIGNING, "namesrvAddr": names.address, "haAllowedAddresses": "10.0.0.1"}
        async with running_broker(directory, **texts) as broker, signed_peer(broker) as root:
            add_topic(broker, "T")
            await add_user(root, "alice", allow("*", "All"))
            await root.send("T", b"secret")
            yield Closed(names, broker)


def asks(body: bytes) -> Iterator[Command]:
    for code in (*sorted(REQUEST_NAMES), 0, 99_999):
        for ext in CALLERS:
            yield request(code, dict(ext), body)


@pytest.mark.mission("AC-10")
@pytest.mark.parametrize("body", BODIES)
async def test_no_request_code_lets_anybody_in_at_any_port(tmp_path: Path, body: bytes) -> None:
    async with closed_cluster(tmp_path) as it:
        before = it.state()
        for port in it.ports():
            # Guesses with a name are answered late after some: each on a connection that is not waited for.
            async with RawPeer.connected(port) as peer:
                for command in asks(body):
                    if "Signature" in command.ext:
                        command.flag |= FLAG_ONEWAY
                        peer.send(command)
                    else:
                        answer = await peer.call(command)
                        assert (answer.code, answer.body, answer.ext) == (16, b"", {}), REQUEST_NAMES.get(command.code)
        assert it.state() == before
        assert [message.body for message in stored(it.broker, "T")] == [b"secret"]


@pytest.mark.mission("AC-10")
async def test_the_port_of_replicas_is_closed(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", ha_port_of(it.broker.store.options, it.broker.port))
        writer.write(bytes(8))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
