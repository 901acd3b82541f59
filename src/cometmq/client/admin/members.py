"""Every member of a cluster, masters and slaves: for what each broker keeps by itself.

Every broker has its own users and policies; RocketMQ's do not even tell their slaves. So a change goes to every member
of the cluster, masters first, and what is read is compared. A slave that cannot be reached is left out, with a warning
in the log: CometMQ's follows its master by itself.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from cometmq.client.admin.calls import Calls, Fields, each
from cometmq.client.admin.results import BrokerMember
from cometmq.errors import BrokerError, CallError
from cometmq.wire.codes import MASTER_ID, Response
from cometmq.wire.command import Command

logger = logging.getLogger(__name__)

# What RocketMQ's broker says if no setting tells it where to keep users.
NO_STORE: Final = "MetadataProvider is not configured"
ANY_FAULT: Final = "An system error occurred, please try again later."
KEEPS_NONE: Final = (
    "RocketMQ's brokers keep users only with authenticationMetadataProvider and authorizationMetadataProvider set"
)

T = TypeVar("T")


class Members(Calls):
    async def _ask_about(
        self, member: BrokerMember, code: int, fields: Fields | None = None, body: bytes = b""
    ) -> Command:
        try:
            return await self.ask(member.address, code, fields, body)
        except BrokerError as error:
            if error.code == Response.SYSTEM_ERROR and (NO_STORE in error.remark or error.remark == ANY_FAULT):
                raise BrokerError(error.code, error.remark, error.broker, advice=f"; {KEEPS_NONE}") from error
            raise

    async def _everybody(
        self, cluster: str | None, broker: str | None
    ) -> tuple[list[BrokerMember], list[BrokerMember]]:
        """Masters and slaves, of one name or address, of one cluster, or all. NotFound if there is no master."""
        masters = await self.masters(cluster, broker)
        if broker is not None and ":" in broker:
            return masters, []
        names = {(master.cluster, master.name) for master in masters}
        slaves = [it for it in await self.members() if it.id != MASTER_ID and (it.cluster, it.name) in names]
        return masters, slaves

    async def _read(
        self, cluster: str | None, broker: str | None, ask: Callable[[BrokerMember], Awaitable[T]]
    ) -> tuple[list[BrokerMember], list[T]]:
        """What every member says; a slave that cannot be reached is left out."""
        masters, slaves = await self._everybody(cluster, broker)
        answers = dict(zip(masters, await each(masters, ask), strict=True))
        for slave, answer in await self._each_slave(slaves, ask):
            answers[slave] = answer
        return list(answers), list(answers.values())

    async def _each_slave(
        self, slaves: Iterable[BrokerMember], ask: Callable[[BrokerMember], Awaitable[T]]
    ) -> list[tuple[BrokerMember, T]]:
        async def one(slave: BrokerMember) -> list[tuple[BrokerMember, T]]:
            try:
                return [(slave, await ask(slave))]
            except CallError as error:
                logger.warning("leave out slave=%s address=%s cause=%s", label(slave), slave.address, error)
                return []

        return [pair for pairs in await each(slaves, one) for pair in pairs]


def label(member: BrokerMember) -> str:
    return member.name if member.id == MASTER_ID else f"{member.name} slave {member.id}"
