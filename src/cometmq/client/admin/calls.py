"""How the administration reaches servers: one request, its answer or an error with cause; many at once, bounded.

    name servers    one of them answers what all know; what they keep themselves is written to every one
    brokers         by name (its master), by address, of a cluster, or all; from the name server's cluster list
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from cometmq.client.admin.results import BrokerMember
from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import strip, wrap
from cometmq.client.cluster.refusals import refused
from cometmq.errors import NotFound
from cometmq.wire.bodies import ClusterInfo
from cometmq.wire.codes import MASTER_ID, Request, Response
from cometmq.wire.command import Command

AT_ONCE_MAX: Final = 32

T = TypeVar("T")
R = TypeVar("R")


class Fields(Protocol):
    def encode(self) -> dict[str, str]: ...


class Calls:
    """`timeout_s` bounds each request. A namespace of the client is put before names and taken off again."""

    def __init__(self, instance: Instance, timeout_s: float) -> None:
        self.instance = instance
        self.timeout_s = timeout_s

    def wrap(self, name: str) -> str:
        return wrap(self.instance.namespace, name)

    def strip(self, name: str) -> str:
        return strip(self.instance.namespace, name)

    def _command(self, code: int, fields: Fields | None, body: bytes) -> Command:
        return self.instance.request(code, fields.encode() if fields is not None else {}, body)

    async def ask(self, address: str, code: int, fields: Fields | None = None, body: bytes = b"") -> Command:
        """BrokerError for any answer but success; CallError if there is none."""
        return await self.instance.ask(address, self._command(code, fields, body), self.timeout_s)

    async def ask_name_server(self, code: int, fields: Fields | None = None, body: bytes = b"") -> Command:
        nameservers = self.instance.nameservers
        command = self._command(code, fields, body)
        response = await nameservers.ask(command, self.timeout_s)
        if response.code != Response.SUCCESS:
            raise refused(response, f"name server {nameservers.chosen}", command)
        return response

    async def ask_name_servers(self, code: int, fields: Fields | None = None, body: bytes = b"") -> list[Command]:
        """Every one of them: they do not tell each other."""
        return await each(self.name_servers(), lambda address: self.ask(address, code, fields, body))

    def name_servers(self, only: str | None = None) -> list[str]:
        return [only] if only is not None else sorted(self.instance.nameservers.addresses)

    async def members(self) -> list[BrokerMember]:
        """All brokers, masters first within a name."""
        response = await self.ask_name_server(Request.GET_BROKER_CLUSTER_INFO)
        info = ClusterInfo.decode(response.body)
        return [
            BrokerMember(data.cluster or "", name, number, address)
            for name, data in sorted(info.broker_addr_table.items())
            for number, address in sorted(data.broker_addrs.items())
        ]

    async def masters(self, cluster: str | None = None, broker: str | None = None) -> list[BrokerMember]:
        """Of one name or address, of one cluster, or all. NotFound if there is none."""
        members = await self.members()
        if broker is not None and ":" in broker:
            known = [member for member in members if member.address == broker]
            return known or [BrokerMember("", broker, MASTER_ID, broker)]
        chosen = [
            member
            for member in members
            if member.id == MASTER_ID and cluster in (None, member.cluster) and broker in (None, member.name)
        ]
        if not chosen:
            raise NotFound(_no_master(members, cluster, broker))
        return chosen

    async def masters_of(self, topic: str) -> list[BrokerMember]:
        """Those that have a topic (name on the wire). NoRoute if nobody has."""
        route = await self.instance.refresh_route(topic)
        return [
            BrokerMember(data.cluster or "", data.broker_name, MASTER_ID, data.broker_addrs[MASTER_ID])
            for data in route.data.broker_datas
            if MASTER_ID in data.broker_addrs
        ]


def _no_master(members: Sequence[BrokerMember], cluster: str | None, broker: str | None) -> str:
    wanted = f"broker {broker}" if broker is not None else f"cluster {cluster}" if cluster is not None else "cluster"
    names = sorted({f"{member.name} in {member.cluster}" for member in members if member.id == MASTER_ID})
    if not names:
        return "no broker is registered with the name server: start one, or check the name server's address"
    return f"no master of {wanted}: the name server knows {', '.join(names)}"


async def each(items: Iterable[T], ask: Callable[[T], Awaitable[R]]) -> list[R]:
    """Ask for all, some at a time; the first error is raised when the others have ended."""
    turn = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(item: T) -> R:
        async with turn:
            return await ask(item)

    results = await asyncio.gather(*[one(item) for item in items], return_exceptions=True)
    good: list[R] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        good.append(result)
    return good
