"""The detector: asks brokers that failed whether they are back. Off unless `probe_faulty`.

Every 3 s each broker that counts as unreachable is asked for the end of some queue, with 200 ms for the answer. One
whose address nobody knows any more is forgotten.
"""

import logging
from typing import Final

from cometmq.client.produce.sending import Sender
from cometmq.errors import CometError
from cometmq.wire.codes import Request
from cometmq.wire.headers import GetMaxOffset

logger = logging.getLogger(__name__)

PERIOD_S: Final = 3.0
LIMIT_S: Final = 0.2


class Probe:
    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._timer = f"probe of {sender.group}"

    def start(self) -> None:
        if self._sender.options.probe_faulty:
            self._sender.instance.every(self._timer, PERIOD_S, self._look)

    def stop(self) -> None:
        self._sender.instance.cancel_timer(self._timer)

    def _look(self) -> None:
        for broker in self._sender.faults.unreachable():
            address = self._sender.instance.brokers.master(broker)
            topic = self._sender.some_topic(broker)
            if address is None or topic is None:
                self._sender.faults.forget(broker)
            else:
                self._sender.instance.spawn(self._ask(broker, address, topic))

    async def _ask(self, broker: str, address: str, topic: str) -> None:
        instance = self._sender.instance
        command = instance.request(Request.GET_MAX_OFFSET, GetMaxOffset(topic=topic, queue_id=0).encode())
        try:
            await instance.call(address, command, LIMIT_S)
        except CometError as error:
            logger.debug("fail probe broker=%s cause=%s", broker, error)
            return
        self._sender.faults.set_reachable(broker)
