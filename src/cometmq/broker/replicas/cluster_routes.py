"""Where the cluster has a topic, as a name server says; kept for a while."""

from __future__ import annotations

from typing import Final

from cometmq.broker.replicas.registration import Registration
from cometmq.clock import Clock
from cometmq.errors import CometError, RequestError
from cometmq.net.client import Client
from cometmq.wire.bodies import TopicRoute
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import GetRoute

CALL_S: Final = 3.0
KEPT_S: Final = 30.0
TOPICS_MAX: Final = 10_000


class ClusterRoutes:
    def __init__(self, clock: Clock, client: Client, registration: Registration) -> None:
        self._clock = clock
        self._client = client
        self._registration = registration
        self._kept: dict[str, tuple[float, TopicRoute]] = {}

    async def find(self, topic: str) -> TopicRoute:
        """CometError if no name server knows it."""
        now_s = self._clock.monotonic()
        kept = self._kept.get(topic)
        if kept is not None and now_s - kept[0] <= KEPT_S:
            return kept[1]
        route = await self._ask(topic)
        if len(self._kept) >= TOPICS_MAX:
            self._kept.clear()
        self._kept[topic] = (now_s, route)
        return route

    def forget(self, topic: str) -> None:
        self._kept.pop(topic, None)

    async def _ask(self, topic: str) -> TopicRoute:
        failure: CometError = RequestError(Response.TOPIC_NOT_EXIST, "there is no name server")
        for server in self._registration.name_servers:
            try:
                command = new_request(Request.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic).encode())
                answer = await self._client.call(server, command, CALL_S)
                if answer.code == Response.SUCCESS:
                    return TopicRoute.decode_answer(answer.body)
                failure = RequestError(answer.code, answer.remark or "no route")
            except CometError as error:
                failure = error
        raise failure
