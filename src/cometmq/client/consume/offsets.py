"""How far a group has come in each queue: in memory here, kept by the broker or in a file.

    clustering      RemoteOffsets   requests 14 and 15 at the queue's master
    broadcasting    LocalOffsets    <directory>/<client id>/<group>/offsets.json, RocketMQ's own file:

        {
            "offsetTable":{
                {"brokerName":"broker-a","queueId":0,"topic":"T"}:12          not standard JSON: the keys are objects
            }
        }

`update` is memory only; `persist` makes it last. Queues are as on the wire. A frozen offset takes no update until it is
forgotten: after a broker said that an offset is illegal, handlers that are still at work must not bring it back.
"""

import asyncio
import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cometmq import state_file
from cometmq.client.cluster.refusals import refused
from cometmq.errors import CallError, CometError, StoreError, WireError
from cometmq.names import path_part
from cometmq.wire.bodies import MessageQueue, ResetOffsets
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.fastjson.writer import dumps_pretty
from cometmq.wire.headers import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

logger = logging.getLogger(__name__)

QUERY_LIMIT_S: Final = 5.0
# Java has a system property for this, rocketmq.client.localOffsetStoreDir.
DIRECTORY_VARIABLE: Final = "COMETMQ_LOCAL_OFFSETS"
DIRECTORY_NAME: Final = ".rocketmq_offsets"


class Offsets(Protocol):
    """What both kinds offer a consumer."""

    async def load(self) -> None:
        """Read what there is before the first question."""

    async def query(self, queue: MessageQueue, *, zero_if_young: bool = False) -> int | None:
        """The stored offset, None if there is none; also kept in memory. CometError if nobody can tell.

        With `zero_if_young` a broker may answer 0 for a queue that still has all its messages in memory.
        """

    async def stored(self, queue: MessageQueue) -> int | None:
        """What `query` finds, not kept in memory."""

    def read(self, queue: MessageQueue) -> int | None:
        """What memory has."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None: ...

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set it, and take no update until it is forgotten."""

    def forget(self, queue: MessageQueue) -> None: ...

    async def persist(self, queues: Collection[MessageQueue], *, answered: bool = True) -> None:
        """Make the offsets of these queues last; known to be so when it returns, unless `answered` is False. What
        fails is logged: the next time repairs it."""


class _Memory:
    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def read(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        if queue in self._frozen or (increase_only and offset <= self._offsets.get(queue, -1)):
            return
        self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def _known(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: self._offsets[queue] for queue in queues if queue in self._offsets}


class RemoteOffsets(_Memory):
    def __init__(self, instance: "Instance", group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group

    async def load(self) -> None:
        """The broker is asked queue by queue."""

    async def query(self, queue: MessageQueue, *, zero_if_young: bool = False) -> int | None:
        offset = await self.stored(queue, zero_if_young)
        if offset is not None:
            self.update(queue, offset)
        return offset

    async def stored(self, queue: MessageQueue, zero_if_young: bool = False) -> int | None:
        header = QueryConsumerOffset(self._group, queue.topic, queue.queue_id, set_zero_if_not_found=zero_if_young)
        command = self._instance.request(Request.QUERY_CONSUMER_OFFSET, header.encode())
        address = await self._address(queue)
        response = await self._instance.call(address, command, QUERY_LIMIT_S)
        if response.code == Response.QUERY_NOT_FOUND:
            return None
        if response.code != Response.SUCCESS:
            raise refused(response, queue.broker_name, command)
        return OffsetResponse.decode(response.ext).offset

    async def persist(self, queues: Collection[MessageQueue], *, answered: bool = True) -> None:
        known = self._known(queues)
        if answered:
            await asyncio.gather(*[self._tell(queue, offset) for queue, offset in known.items()])
            return
        for queue, offset in known.items():
            self._tell_oneway(queue, offset)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset at the broker, whatever memory has. CometError if it does not take it."""
        await self._instance.ask(
            await self._address(queue), self._command(queue, offset), self._instance.options.call_timeout
        )

    async def _tell(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self.commit(queue, offset)
        except CometError as error:
            logger.warning(
                "fail commit group=%s topic=%s broker=%s queue=%d offset=%d cause=%s",
                self._group, queue.topic, queue.broker_name, queue.queue_id, offset, error,
            )  # fmt: skip

    def _tell_oneway(self, queue: MessageQueue, offset: int) -> None:
        """Where no connection is open now, the next time will do."""
        keeper = self._instance.brokers.reader(self._instance.host(queue))
        connection = self._instance.net.connection(keeper[0]) if keeper is not None else None
        if connection is not None:
            try:
                connection.send_oneway(self._command(queue, offset))
            except CallError as error:
                logger.debug("skip commit group=%s broker=%s cause=%s", self._group, queue.broker_name, error)

    def _command(self, queue: MessageQueue, offset: int) -> Command:
        header = UpdateConsumerOffset(self._group, queue.topic, queue.queue_id, offset)
        return self._instance.request(Request.UPDATE_CONSUMER_OFFSET, header.encode())

    async def _address(self, queue: MessageQueue) -> str:
        return await self._instance.keeper(queue)


class LocalOffsets(_Memory):
    """Offsets of queues that are not ours any more stay in the file."""

    def __init__(self, client_id: str, group: str, directory: Path | None = None) -> None:
        super().__init__()
        root = directory if directory is not None else default_directory()
        self.path = root / client_id / path_part(group) / "offsets.json"
        self._stored: dict[MessageQueue, int] = {}
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        try:
            self._stored = await asyncio.to_thread(self._read)
        except OSError as error:
            raise StoreError(f"cannot read the offsets in {self.path}: {error}") from error

    def _read(self) -> dict[MessageQueue, int]:
        return state_file.load(self.path, _parse) or {}

    async def stored(self, queue: MessageQueue) -> int | None:
        return self._stored.get(queue)

    async def query(self, queue: MessageQueue, *, zero_if_young: bool = False) -> int | None:
        offset = self._stored.get(queue)
        if offset is not None:
            self.update(queue, offset)
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, answered: bool = True) -> None:
        async with self._saving:
            known = self._known(queues)
            if all(self._stored.get(queue) == offset for queue, offset in known.items()):
                return
            table = {**self._stored, **known}
            try:
                await asyncio.to_thread(state_file.save, self.path, dumps_pretty(ResetOffsets(offset_table=table)))
            except OSError as error:
                logger.warning("fail save of offsets file=%s cause=%s", self.path, error)
                return
            self._stored = table


def default_directory() -> Path:
    """Where Java clients keep theirs, too."""
    given = os.environ.get(DIRECTORY_VARIABLE)
    return Path(given) if given else Path.home() / DIRECTORY_NAME


def _parse(content: bytes) -> dict[MessageQueue, int]:
    try:
        return ResetOffsets.decode(content).offset_table
    except WireError as error:
        raise ValueError(str(error)) from None
