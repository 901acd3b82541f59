"""Where a replica that acts as master puts messages: to another broker, since its own log belongs to the master.

    due message, kept until now   as it would be delivered, without what would delay it again
    timer that is still far       to its real topic, with the time that it waits for
    open half                     as its producer sent it: the other broker asks from now on

With enableRemoteEscape; without, all of it waits for the master.

A put that must wait cannot answer. So the first try begins to send and is refused; whoever puts tries the same message
again, and is told OK when it has arrived. `resume` asks for that next try. A message of which nobody knows whether it
arrived is sent again: twice rather than never.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.broker.replicas.cluster_routes import ClusterRoutes
from cometmq.clock import Clock
from cometmq.errors import CometError, RequestError
from cometmq.names import TIMER_TOPIC
from cometmq.net.client import Client
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.store import Store
from cometmq.wire.bodies import TopicRoute
from cometmq.wire.codes import MASTER_ID, Request, Response
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import SendMessage
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property, find, with_property, without

logger = logging.getLogger(__name__)

SEND_S: Final = 3.0
PERM_WRITE: Final = 2
PRODUCER_GROUP: Final = "CometMQ_escape"
STORED: Final = (
    Response.SUCCESS,
    Response.FLUSH_DISK_TIMEOUT,
    Response.FLUSH_SLAVE_TIMEOUT,
    Response.SLAVE_NOT_AVAILABLE,
)
# What made this broker keep the message.
KEPT_BY: Final = (
    Property.DELAY,
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELIVER_MS,
    Property.REAL_TOPIC,
    Property.REAL_QID,
)

Key = tuple[str, str, int, bytes]


class RemotePut:
    """Has what delivery of delays needs of a store; all but `put` is the store's."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        store: Store,
        client: Client,
        routes: ClusterRoutes,
        resume: Callable[[], object],
    ) -> None:
        self.sent: int = 0
        self._config = config
        self._store = store
        self._client = client
        self._routes = routes
        self._resume = resume
        self._sending: dict[Key, asyncio.Task[None]] = {}
        self._done: dict[Key, PutResult] = {}
        self._failures = ThinnedLog(logger, clock)

    def put(self, request: AppendRequest) -> PutResult:
        """SERVICE_NOT_AVAILABLE: not yet, try again."""
        if not self._config().remote_escape_enabled:
            return _not_yet("this broker acts for its master, and enableRemoteEscape=false")
        unique_id = find(request.properties, Property.UNIQ_KEY) or ""
        key = (request.topic, unique_id, request.born_time_ms, request.body or b"")
        done = self._done.pop(key, None)
        if done is not None:
            return done
        if key not in self._sending:
            self._sending[key] = asyncio.get_running_loop().create_task(self._send(key, _freed(request)))
        return _not_yet("is being sent to another broker")

    async def stop(self) -> None:
        tasks = list(self._sending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sending.clear()
        self._done.clear()

    # Reading

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._store.queue_bounds(topic, queue_id)

    def queue_entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        return self._store.queue_entries(topic, queue_id, offset, count)

    def extended_tag_code(self, topic: str, queue_id: int, address: int) -> int | None:
        return self._store.extended_tag_code(topic, queue_id, address)

    def message_at(self, physical_offset: int, record_bytes: int | None) -> StoredMessage | None:
        return self._store.message_at(physical_offset, record_bytes)

    # Sending

    async def _send(self, key: Key, request: AppendRequest) -> None:
        try:
            self._done[key] = await self._send_to_any(request)
            self.sent += 1
        except CometError as error:
            self._routes.forget(request.topic)
            self._failures.warning("fail to escape topic=%s cause=%s", request.topic, error)
        finally:
            del self._sending[key]
        if key in self._done:
            self._resume()

    async def _send_to_any(self, request: AppendRequest) -> PutResult:
        address, queue_id = random.choice(await self._places(request.topic))  # noqa: S311 - spreads load
        header = SendMessage(
            find(request.properties, Property.PGROUP) or PRODUCER_GROUP,
            request.topic,
            "TBW102",
            4,
            queue_id,
            request.sys_flag,
            request.born_time_ms,
            request.flag,
            request.properties,
            request.reconsume_times,
        )
        command = new_request(Request.SEND_MESSAGE_V2, header.encode_v2(), request.body or b"")
        answer = await self._client.call(address, command, SEND_S)
        if answer.code == Response.MESSAGE_ILLEGAL:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, remark=answer.remark or "")
        if answer.code not in STORED:
            raise RequestError(answer.code, f"{address} refused it: {answer.remark}")
        return PutResult(PutStatus.OK)

    async def _places(self, topic: str) -> list[tuple[str, int]]:
        """(address, queue id) of every queue of other masters; RequestError if there is none."""
        route = await self._routes.find(topic)
        places = _places(route, self._config().broker_name)
        if not places:
            raise RequestError(Response.TOPIC_NOT_EXIST, f"no other broker takes messages of {topic}")
        return places


def _freed(request: AppendRequest) -> AppendRequest:
    """The message without what would have another broker keep it, unless it has to wait there."""
    waits_for_ms = find(request.properties, Property.TIMER_OUT_MS) if request.topic == TIMER_TOPIC else None
    topic = find(request.properties, Property.REAL_TOPIC) if waits_for_ms is not None else None
    text = request.properties
    for name in KEPT_BY:
        text = without(text, name)
    if waits_for_ms is not None and topic is not None:
        # Rounded down there as it was here.
        text = without(text, Property.TIMER_OUT_MS)
        text = with_property(text, Property.TIMER_DELIVER_MS, str(int(waits_for_ms) + 1))
    return AppendRequest(
        topic or request.topic,
        request.queue_id,
        request.body,
        text,
        flag=request.flag,
        sys_flag=request.sys_flag,
        born_time_ms=request.born_time_ms,
        reconsume_times=request.reconsume_times,
    )


def _places(route: TopicRoute, own_name: str) -> list[tuple[str, int]]:
    masters = {
        broker.broker_name or "": broker.broker_addrs[MASTER_ID]
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs and broker.broker_name != own_name
    }
    return [
        (masters[queues.broker_name or ""], queue_id)
        for queues in route.queue_datas
        if queues.perm & PERM_WRITE and (queues.broker_name or "") in masters
        for queue_id in range(queues.write_queue_nums)
    ]


def _not_yet(remark: str) -> PutResult:
    return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=remark)
