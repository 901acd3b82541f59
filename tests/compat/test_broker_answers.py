"""What a Java producer makes of each answer that our broker can give to a send.

The broker is the real one, in this process, with a store that gives the result the test has laid ready.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cometmq.broker.server import Broker
from cometmq.store.results import PutResult, PutStatus
from tests.compat.harness.servers import CometNameServer
from tests.compat.harness.shell import JavaShell
from tests.conftest import run
from tests.support.brokers import add_topic, broker_settings

pytestmark = pytest.mark.interop

SEND_ONE_BY_ONE = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_answers"));
    p.setNamesrvAddr(args[0]);
    p.setRetryTimesWhenSendFailed(0);
    p.start();
    while (receive() != null) {
        try {
            SendResult r = p.send(new Message(args[1], "x".getBytes()), 10_000);
            emit("status", r.getSendStatus(), "queueOffset", r.getQueueOffset());
        } catch (MQBrokerException e) {
            emit("code", e.getResponseCode());
        } catch (MQClientException e) {  // a code after which it would try another broker
            emit("code", ((MQBrokerException) e.getCause()).getResponseCode());
        }
    }
"""

STORED = {
    PutStatus.OK: "SEND_OK",
    PutStatus.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    PutStatus.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    PutStatus.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}
REFUSED = {
    PutStatus.MESSAGE_ILLEGAL: 13,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: 13,
    PutStatus.SERVICE_NOT_AVAILABLE: 14,
    PutStatus.OS_PAGE_CACHE_BUSY: 2,
    PutStatus.CREATE_FILE_FAILED: 1,
    PutStatus.UNKNOWN_ERROR: 1,
}


@pytest.mark.mission("SE-06")
def test_a_java_producer_shows_the_status_of_each_put(java: JavaShell, tmp_path: Path, topic: str) -> None:
    async def main() -> None:
        broker = Broker(broker_settings(tmp_path, namesrvAddr=namesrv.address))
        await broker.start()
        try:
            add_topic(broker, topic)
            await broker.rooms.settled()
            producer = java.begin(SEND_ONE_BY_ONE, namesrv.address, topic)

            async def send(result: PutResult) -> dict[str, object]:
                broker.rooms.produce.context.put = lambda _: result
                producer.send("one more")
                row: dict[str, object] = await asyncio.to_thread(producer.next)
                return row

            for status, name in STORED.items():
                row = await send(PutResult(status, 4096, 200, 1, 12, 1, 4296))
                assert row == {"status": name, "queueOffset": 12}
            for status, code in REFUSED.items():
                assert await send(PutResult(status, remark="why")) == {"code": code}
            await asyncio.to_thread(producer.stop)
        finally:
            await broker.stop()

    with CometNameServer(tmp_path).start() as namesrv:
        run(main(), timeout_s=60)
