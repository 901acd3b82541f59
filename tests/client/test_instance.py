"""The shared core: routes, heartbeats, registration, start and stop."""

from pathlib import Path

import pytest

from cometmq.client.instance import Instance
from cometmq.client.options import ClientOptions
from cometmq.errors import NoNameServer, NoRoute
from cometmq.wire.bodies import MessageQueue
from tests.nameserver.support import nameserver
from tests.support.aio import run
from tests.support.brokers import add_topic, running_broker


def test_a_route_is_found_through_the_name_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with nameserver(tmp_path) as names, running_broker(tmp_path, namesrvAddr=names.address) as broker:
            add_topic(broker, "T", 2)
            await broker.nameservers.told()
            instance = Instance(ClientOptions(names.address))
            await instance.start()
            try:
                route = await instance.route("T")
                assert route.publish == (MessageQueue("broker-a", 0, "T"), MessageQueue("broker-a", 1, "T"))
                assert instance.brokers.master("broker-a") == broker.address
                with pytest.raises(NoRoute):
                    await instance.route("Missing")
            finally:
                await instance.stop()

    run(main())


def test_without_a_name_server_there_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("COMETMQ_NAMESRV", raising=False)

    async def main() -> None:
        instance = Instance(ClientOptions())
        await instance.start()
        with pytest.raises(NoNameServer):
            await instance.route("T")
        await instance.stop()

    run(main())
