"""Requests that arrive while this broker gives the lead away, and after it: clients learn of the new master late.

    open         served here, as always
    holding      kept, up to a bound, until the set has decided
    forwarding   sent on to the master of the document; its answer is passed back

A client reads routes every 30 seconds. So the former master forwards for `handoverForwardMs`, and a producer that knows
of nothing sees no error. The first request goes alone, again and again, until the new master takes it: what follows
keeps its order. A request that was refused has done nothing; one whose answer was lost may have been carried out, and
is answered so that the client decides.

Only requests that change something are held: reads go on. Whoever forwards has asked its own access control before, and
signs as a broker. In a forwarded message the born host is this broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final

from cometmq.auth.signature import SIGNED_WITH
from cometmq.broker.entry import Served
from cometmq.clock import Clock, Timer
from cometmq.errors import CallError, CallTimeout, CometError, ConnectFailed, WireError
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Answer, Handler
from cometmq.net.serving import answer_to
from cometmq.rate_limited_log import ThinnedLog
from cometmq.wire.bodies import HaStatus
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.command import request as new_request

logger = logging.getLogger(__name__)

HELD_MAX: Final = 10_000
HELD_BYTES_MAX: Final = 64 << 20
HOLD_S: Final = 3.0
# A send of a stock client waits 3 s for its answer.
CALL_S: Final = 2.5
AGAIN_S: Final = 0.005
QUIET_S: Final = 2.0
QUIET_LOOK_S: Final = 0.05

# What changes something and does not wait for messages.
CODES: Final = (
    Request.SEND_MESSAGE,
    Request.SEND_MESSAGE_V2,
    Request.SEND_BATCH_MESSAGE,
    Request.CONSUMER_SEND_MSG_BACK,
    Request.END_TRANSACTION,
    Request.UPDATE_CONSUMER_OFFSET,
    Request.LOCK_BATCH_MQ,
    Request.UNLOCK_BATCH_MQ,
    Request.ACK_MESSAGE,
    Request.BATCH_ACK_MESSAGE,
    Request.CHANGE_MESSAGE_INVISIBLETIME,
    Request.RECALL_MESSAGE,
)

Held = tuple[Connection, Command]


class Handover:
    """`forwarded` counts requests that the new master has answered."""

    def __init__(self, clock: Clock, client: Client) -> None:
        self.forwarded: int = 0
        self._clock = clock
        self._client = client
        self._local: dict[int, Handler] = {}
        self._holds = False
        self._address: str = ""
        self._until_s = 0.0
        self._heard_s = 0.0
        self._held: deque[Held] = deque()
        self._held_bytes = 0
        self._probing: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._failures = ThinnedLog(logger, clock)

    def wrap(self, handlers: Mapping[int, Served]) -> dict[int, Served]:
        """The handlers of a broker whose requests may have to go elsewhere."""
        wrapped = dict(handlers)
        for code in CODES:
            served = wrapped[code]
            self._local[code] = served.handler
            wrapped[code] = Served(self._handle, served.family)
        return wrapped

    @property
    def takes(self) -> bool:
        """Whether a request that only a master serves is taken here, whoever leads."""
        return self._holds or bool(self._address)

    # What the set decides

    def hold(self) -> bool:
        """From now on; False: it is so already. Ends by itself: a decision that takes too long helps nobody."""
        if self._holds:
            return False
        self._holds = True
        self._timer = self._clock.call_later(HOLD_S, self.open)
        return True

    def open(self) -> None:
        """This broker decides by itself again: what was held is served here, and refused if it does not lead."""
        self._end_timer()
        self._stop_probing()
        self._holds, self._address = False, ""
        for connection, request in self._taken():
            self._serve_here(connection, request)

    def forward(self, address: str, for_s: float) -> None:
        """The lead is at `address`."""
        self._end_timer()
        now_s = self._clock.monotonic()
        if not self._address:
            self._until_s = now_s + for_s
            self._timer = self._clock.call_later(for_s, self.open)
        else:
            self._timer = self._clock.call_later(max(0.0, self._until_s - now_s), self.open)
        if address == self._address:
            return
        logger.info("forward requests to=%s for_ms=%d held=%d", address, for_s * 1000, len(self._held))
        self._address = address
        self._holds = True  # until the new master takes the first one
        self._stop_probing()
        self._probe_soon()

    async def quiet(self, for_s: float) -> None:
        """Until clients have gone to the new master, `for_s` at most."""
        end_s = self._clock.monotonic() + for_s
        self._heard_s = max(self._heard_s, self._clock.monotonic() - QUIET_S / 2)
        while self.takes and self._clock.monotonic() < min(end_s, self._heard_s + QUIET_S):  # noqa: ASYNC110 - time passes
            await asyncio.sleep(QUIET_LOOK_S)

    def stop(self) -> None:
        self._end_timer()
        self._stop_probing()
        self._holds, self._address = False, ""
        for connection, request in self._taken():
            _refuse(connection, request, "this broker stops; nothing was done, send again")

    # Requests

    def _handle(self, connection: Connection, request: Command) -> Answer:
        if not self._holds and not self._address:
            return self._local[request.code](connection, request)
        self._heard_s = self._clock.monotonic()
        if not self._holds:
            self._forward(connection, request)
            return None
        size = len(request.body)
        if len(self._held) >= HELD_MAX or self._held_bytes + size > HELD_BYTES_MAX:
            remark = f"{len(self._held)} requests wait for the new master; nothing was done, send again"
            return reply(request, Response.SERVICE_NOT_AVAILABLE, remark)
        self._held.append((connection, request))
        self._held_bytes += size
        self._probe_soon()
        return None

    def _taken(self) -> list[Held]:
        held = list(self._held)
        self._held.clear()
        self._held_bytes = 0
        return held

    def _serve_here(self, connection: Connection, request: Command) -> None:
        if not request.is_oneway and not connection.is_kept(request):
            return  # its connection is gone
        try:
            result = self._local[request.code](connection, request)
        except Exception as error:
            connection.answer(request, answer_to(connection.endpoint, request, error))
            return
        if isinstance(result, Command):
            connection.answer(request, result)
        elif result is not None:
            task = asyncio.ensure_future(_later(connection, request, result))
            connection.endpoint.tasks.add(task)
            task.add_done_callback(connection.endpoint.tasks.discard)

    # On to the new master

    def _probe_soon(self) -> None:
        if self._address and self._held and self._probing is None:
            self._probing = asyncio.get_running_loop().create_task(self._probe(self._address))

    def _stop_probing(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            self._probing = None

    async def _probe(self, address: str) -> None:
        """The first request alone, until the new master takes it; then all that were kept meanwhile, in their order."""
        connection, request = self._held[0]
        end_s = self._clock.monotonic() + CALL_S
        answer: Command | None = None
        leads = False
        try:
            while answer is None:
                left_s = end_s - self._clock.monotonic()
                if left_s <= 0:
                    raise ConnectFailed(f"the new master at {address} does not take requests yet")
                try:
                    leads = leads or await self._leads(address, left_s)
                    if leads:
                        answer = await self._client.call(address, _copy(request), left_s)
                except ConnectFailed as error:
                    self._failures.warning("fail to reach new master address=%s cause=%s", address, error)
                if answer is not None and _is_not_ready(answer):
                    answer = None
                if answer is None:
                    await asyncio.sleep(AGAIN_S)
        except ConnectFailed as error:
            for each in self._taken():
                _refuse(*each, f"{error}; nothing was done, send again")
            return
        except (CallError, WireError) as error:
            self._drop_first(request)
            _unknown(connection, request, error)
        else:
            self._drop_first(request)
            self._pass_back(connection, request, answer)
        finally:
            if self._probing is asyncio.current_task():
                self._probing = None
        if address != self._address:
            return
        self._holds = False
        for each in self._taken():
            self._forward(*each)

    async def _leads(self, address: str, left_s: float) -> bool:
        """Some requests a replica takes, too, and forgets."""
        answer = await self._client.call(address, new_request(Request.GET_BROKER_HA_STATUS), left_s)
        return answer.code == Response.SUCCESS and HaStatus.decode(answer.body).master

    def _drop_first(self, request: Command) -> None:
        if self._held and self._held[0][1] is request:
            self._held.popleft()
            self._held_bytes -= len(request.body)

    def _forward(self, connection: Connection, request: Command) -> None:
        self._client.call_soon(self._address, _copy(request), CALL_S, partial(self._answered, connection, request))

    def _answered(
        self, connection: Connection, request: Command, answer: Command | None, error: CallError | None
    ) -> None:
        if answer is not None:
            self._pass_back(connection, request, answer)
        elif isinstance(error, ConnectFailed):
            _refuse(connection, request, f"{error}; nothing was done, send again")
        else:
            _unknown(connection, request, error)

    def _pass_back(self, connection: Connection, request: Command, answer: Command) -> None:
        self.forwarded += 1
        connection.answer(request, reply(request, answer.code, answer.remark, answer.ext, answer.body))

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _copy(request: Command) -> Command:
    """As its client sent it, without its signature: this broker signs. The version says what the client understands."""
    ext = {name: value for name, value in request.ext.items() if name not in SIGNED_WITH}
    copy = new_request(request.code, ext, request.body, form=request.form, language=request.language)
    copy.version = request.version
    return copy


def _is_not_ready(answer: Command) -> bool:
    """Nothing was done, and that ends soon: it does not lead yet, or too few replicas have found it."""
    if answer.code in (Response.SERVICE_NOT_AVAILABLE, Response.SYSTEM_BUSY):
        return True
    return answer.code == Response.SYSTEM_ERROR and "copies are needed" in (answer.remark or "")


async def _later(connection: Connection, request: Command, work: Awaitable[Command | None]) -> Command | None:
    try:
        connection.answer(request, await work)
    except Exception as error:
        connection.answer(request, answer_to(connection.endpoint, request, error))
    return None


def _refuse(connection: Connection, request: Command, remark: str) -> None:
    connection.answer(request, reply(request, Response.SERVICE_NOT_AVAILABLE, remark))


def _unknown(connection: Connection, request: Command, error: CometError | None) -> None:
    """A send that timed out at the new master is one that timed out here."""
    if isinstance(error, CallTimeout) and request.code in CODES[:3]:
        connection.answer(request, None)
        return
    remark = f"the new master was asked and did not answer ({error}): it may have been done"
    connection.answer(request, reply(request, Response.SYSTEM_ERROR, remark))
