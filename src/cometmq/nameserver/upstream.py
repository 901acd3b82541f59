"""A name server for a test environment that falls back on production (`clusterTest`).

A topic that no broker here has registered is looked up at the upstream name servers, once per query and never kept, so
that tests find what production has while their own topics come first. Only route queries fall back.
"""

import logging
from typing import Final

from cometmq.clock import Clock
from cometmq.errors import CallError
from cometmq.nameserver.query import RouteQueries
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.wire.codes import Response
from cometmq.wire.command import Command, reply
from cometmq.wire.command import request as new_request

log = logging.getLogger(__name__)

LIMIT_S: Final = 5.0


class Upstream:
    def __init__(self, queries: RouteQueries, client: Client, addresses: list[str], clock: Clock) -> None:
        self._queries = queries
        self._client = client
        self._addresses = addresses
        self._clock = clock

    async def answer(self, connection: Connection, request: Command) -> Command:
        local = self._queries.answer(connection, request)
        if local.code != Response.TOPIC_NOT_EXIST:
            return local
        try:
            found = await self._ask(request)
        except CallError as error:
            log.warning("fail upstream query addresses=%s cause=%s", ";".join(self._addresses), error)
            return local
        return reply(request, found.code, found.remark, found.ext, found.body)

    async def _ask(self, request: Command) -> Command:
        """The first answer, whatever it says; the next address only when one cannot be reached or is silent."""
        deadline_s = self._clock.monotonic() + LIMIT_S
        for number, address in enumerate(self._addresses):
            left_s = max(0.0, deadline_s - self._clock.monotonic())
            limit_s = left_s / (len(self._addresses) - number)
            try:
                return await self._client.call(address, _copy(request), limit_s)
            except CallError:
                if number == len(self._addresses) - 1:
                    raise
        raise AssertionError("there is at least one upstream address")


def _copy(request: Command) -> Command:
    """Asked in the caller's name: its version decides the form of the answer."""
    copy = new_request(request.code, dict(request.ext))
    copy.version = request.version
    return copy
