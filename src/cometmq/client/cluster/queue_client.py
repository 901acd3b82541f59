"""What brokers are asked about single queues: messages from an offset on, where a queue begins and ends, what lies at a
time, how far a group has come.

    consumers, the admin client      ask the broker that keeps the queue, once
    Spark                            asks its master, again and again for a while
    command line                     reads queues side by side

`QueueClient` has the requests about offsets; `ask` decides who is asked and how patiently. `pull_command` and
`read_pull` are the two halves of a pull, since a consumer does other things while it waits. Names are as on the wire.
Failures: NoRoute, BrokerUnknown, CallError, BrokerError.
"""

import enum
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.refusals import refused
from cometmq.errors import BrokerError
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import PullFlag, Request, Response
from cometmq.wire.command import Command
from cometmq.wire.headers import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    PullMessage,
    PullMessageResponse,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)

TAG: Final = "TAG"
ALL: Final = "*"

Ask = Callable[[MessageQueue, Command], Awaitable[Command]]


class Fields(Protocol):
    def encode(self) -> dict[str, str]: ...


class QueueClient:
    """`ask` gives the answer of a broker that knows the queue, with any code but success as BrokerError."""

    def __init__(self, instance: Instance, ask: Ask | None = None) -> None:
        self._instance = instance
        self._ask = ask or self._ask_keeper

    async def begin(self, queue: MessageQueue) -> int:
        """Of the first message that is there."""
        return await self._offset(queue, Request.GET_MIN_OFFSET, GetMinOffset(queue.topic, queue.queue_id))

    async def end(self, queue: MessageQueue) -> int:
        """Behind the last."""
        return await self._offset(queue, Request.GET_MAX_OFFSET, GetMaxOffset(queue.topic, queue.queue_id))

    async def at(self, queue: MessageQueue, moment: datetime) -> int:
        """Of the first message that was stored then or later, else the end. Times without zone are local."""
        return await self.at_ms(queue, int(moment.timestamp() * 1000))

    async def at_ms(self, queue: MessageQueue, time_ms: int) -> int:
        header = SearchOffset(queue.topic, queue.queue_id, time_ms)
        return await self._offset(queue, Request.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """What a group has stored; None if nothing."""
        header = QueryConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        try:
            return await self._offset(queue, Request.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == Response.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)
        await self._ask(queue, self._instance.request(Request.UPDATE_CONSUMER_OFFSET, header.encode()))

    async def home(self, queue: MessageQueue) -> str:
        """The address of who knows a queue."""
        await self._instance.route(queue.topic)
        return await self._instance.keeper(queue)

    async def _offset(self, queue: MessageQueue, code: int, header: Fields) -> int:
        response = await self._ask(queue, self._instance.request(code, header.encode()))
        return OffsetResponse.decode(response.ext).offset

    async def _ask_keeper(self, queue: MessageQueue, command: Command) -> Command:
        return await self._instance.ask(await self.home(queue), command, self._instance.options.call_timeout)


class PullStatus(enum.Enum):
    FOUND = "FOUND"
    NO_NEW = "NO_NEW_MSG"
    NO_MATCH = "NO_MATCHED_MSG"
    ILLEGAL = "OFFSET_ILLEGAL"


class Pulled(NamedTuple):
    """`body` has records back to back if some were found; `next_offset` says where to go on in any case.

    ILLEGAL: the offset lies outside the queue, which reaches from `min_offset` to before `max_offset`.
    """

    status: PullStatus
    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    offset_delta: int


_STATUSES: Final = {
    Response.SUCCESS: PullStatus.FOUND,
    Response.PULL_NOT_FOUND: PullStatus.NO_NEW,
    Response.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    Response.PULL_OFFSET_MOVED: PullStatus.ILLEGAL,
}


def pull_command(
    instance: Instance,
    queue: MessageQueue,
    group: str,
    offset: int,
    *,
    count_max: int,
    bytes_max: int | None = None,
    subscription: str | None = ALL,
    kind: str = TAG,
    sub_version: int = 0,
    hold_s: float = 0.0,
    commit_offset: int = 0,
    lite: bool = False,
    bulk: bool = False,
) -> Command:
    """A pull. With `hold_s` the broker keeps it so long if there is nothing; without a subscription it goes by the
    group's heartbeat."""
    flags = (
        (PullFlag.COMMIT if commit_offset > 0 else 0)
        | (PullFlag.SUSPEND if hold_s > 0 else 0)
        | (PullFlag.SUBSCRIPTION if subscription is not None else 0)
        | (PullFlag.LITE if lite else 0)
        | (PullFlag.BULK if bulk else 0)
    )
    header = PullMessage(
        group,
        queue.topic,
        queue.queue_id,
        offset,
        count_max,
        flags,
        max(0, commit_offset),
        round(hold_s * 1000),
        sub_version,
        subscription,
        kind,
        bytes_max,
        broker_name=queue.broker_name,
    )
    return instance.request(Request.LITE_PULL_MESSAGE if lite else Request.PULL_MESSAGE, header.encode())


def read_pull(response: Command, broker: str, request: Command | int = Request.PULL_MESSAGE) -> Pulled:
    """What an answer means. BrokerError for a code that is none of the four."""
    status = _STATUSES.get(response.code)
    if status is None:
        raise refused(response, broker, request)
    header = PullMessageResponse.decode(response.ext)
    return Pulled(
        status,
        bytes(response.body) if status is PullStatus.FOUND else b"",
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        header.offset_delta or 0,
    )
