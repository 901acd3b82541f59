"""What calls share: the backend, the clients, and what the front itself asks and waits for.

The handlers of calls find it as `call.desk`. It knows nothing of calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from google.protobuf.timestamp_pb2 import Timestamp

from cometmq.clock import Clock
from cometmq.errors import CometError
from cometmq.front import requests
from cometmq.front.backend import Backend, Wanted
from cometmq.front.client import ClientTable
from cometmq.front.halves import Halves
from cometmq.front.handles import Handle
from cometmq.front.refusals import Refused, refused
from cometmq.net.http2 import Http2Connection
from cometmq.net.inside import Inside
from cometmq.rate_limited_log import ThinnedLog
from cometmq.wire.codes import Response
from cometmq.wire.command import Command
from cometmq.wire.grpc import messages_pb2 as pb

logger = logging.getLogger(__name__)


class Questions:
    """Those that wait for a client's answer, by nonce."""

    def __init__(self) -> None:
        self._last = 0
        self.waiting: dict[str, asyncio.Future[pb.TelemetryCommand]] = {}

    def open(self) -> tuple[str, asyncio.Future[pb.TelemetryCommand]]:
        self._last += 1
        nonce = str(self._last)
        future: asyncio.Future[pb.TelemetryCommand] = asyncio.get_running_loop().create_future()
        self.waiting[nonce] = future
        return nonce, future

    def answered(self, nonce: str, answer: pb.TelemetryCommand) -> None:
        future = self.waiting.pop(nonce, None)
        if future is not None and not future.done():
            future.set_result(answer)


class Desk:
    """`serves_all`: every broker of the cluster is reached through this front."""

    def __init__(self, backend: Backend, clock: Clock, *, serves_all: bool = False) -> None:
        self.backend = backend
        self.serves_all = serves_all
        self.clients = ClientTable()
        self.halves = Halves()
        self.questions = Questions()
        self._clock = clock
        self._own: Inside | None = None
        self._loads: set[asyncio.Task[None]] = set()
        self._log_failed = ThinnedLog(logger, clock)

    def open(self) -> None:
        self._own = self.backend.enter(("127.0.0.1", 0), "front", "127.0.0.1", None)

    def close(self) -> None:
        self.clients.close()
        for load in self._loads:
            load.cancel()

    def link_of(self, connection: Http2Connection) -> Inside:
        """The inner connection of a socket: for requests that are no membership."""
        link = connection.owner
        if not isinstance(link, Inside):
            link = self.backend.enter(connection.peer, connection.peer_text, connection.source, None)
            link.takes = connection.takes
            if connection.is_open:
                connection.owner = link
        return link

    def load(self, wanted: Wanted, serve: Callable[[], None], fail: Callable[[Refused], None]) -> None:
        """Serve when the backend knows more."""
        task = asyncio.get_running_loop().create_task(self._load(wanted, serve, fail))
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    async def _load(self, wanted: Wanted, serve: Callable[[], None], fail: Callable[[Refused], None]) -> None:
        try:
            await wanted.load()
        except CometError as error:
            fail(refused(error))
            return
        serve()

    def delivered_now(self) -> pb.ReceiveMessageResponse:
        now_ms = self.backend.now_ms()
        at = Timestamp(seconds=now_ms // 1000, nanos=now_ms % 1000 * 1_000_000)
        return pb.ReceiveMessageResponse(delivery_timestamp=at)

    def later(self, delay_s: float, run: Callable[[], object]) -> None:
        self._clock.call_later(delay_s, run)

    # Requests of the front's own

    def ask(self, command: Command, then: Callable[[Command], object]) -> None:
        assert self._own is not None
        self._own.ask(command, then)

    def tell(self, command: Command) -> None:
        self.ask(command, self.ignore)

    def ignore(self, response: Command) -> None:
        if response.code != Response.SUCCESS:
            self._log_failed.warning("fail request of the front code=%d cause=%s", response.code, response.remark)

    def bury(self, handle: Handle, group: str, topic: str, attempts_max: int) -> None:
        """Tried too often: to the dead letters, then done."""
        command = requests.dead_letter_command(handle, group, topic, attempts_max)
        self.ask(command, partial(self._buried, requests.ack_command(handle, group, topic)))

    def _buried(self, ack: Command, response: Command) -> None:
        if response.code == Response.SUCCESS:
            self.tell(ack)
        else:
            self.ignore(response)
