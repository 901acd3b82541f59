"""The port of replicas: who may copy the log."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path

import pytest

from cometmq.broker.hosts import ha_port_of
from cometmq.broker.server import Broker
from cometmq.errors import ConfigError
from tests.support.access import SECURED, signed_peer
from tests.support.brokers import add_topic, broker_settings, running_broker
from tests.support.net import until

FROM_START = struct.pack(">q", 0)


def port_of(broker: Broker) -> int:
    return ha_port_of(broker.store.options, broker.port)


@pytest.mark.parametrize(("allowed", "served"), [("", True), ("127.0.0.0/8, ::1", True), ("10.0.0.1", False)])
async def test_only_listed_addresses_may_copy_the_log(tmp_path: Path, allowed: str, served: bool) -> None:
    async with running_broker(tmp_path, **SECURED, haAllowedAddresses=allowed) as broker, signed_peer(broker) as root:
        add_topic(broker, "T")
        await root.send("T", b"secret")
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        received = b""
        try:
            writer.write(FROM_START)
            while b"secret" not in received and (data := await reader.read(1 << 16)):
                received += data
        except ConnectionError:
            pass
        writer.close()
        assert (b"secret" in received) is served
        assert served or received == b""


async def test_a_replica_of_a_listed_address_follows(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m", haAllowedAddresses="127.0.0.1") as master:
        texts = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"127.0.0.1:{port_of(master)}"}
        async with running_broker(tmp_path / "r", **texts) as copy:
            async with signed_peer(master) as peer:
                await peer.send("T", b"copied")
            await until(lambda: copy.store.log.max_offset == master.store.log.max_offset > 0)


async def test_an_open_port_is_warned_of_and_a_bad_list_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with running_broker(tmp_path, **SECURED):
            pass
    assert "set haAllowedAddresses" in caplog.text
    with pytest.raises(ConfigError, match=r"haAllowedAddresses.*host.example"):
        Broker(broker_settings(tmp_path, haAllowedAddresses="host.example"))
