"""Brokers that ask who is there, and peers that say it.

async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
    await add_user(root, "alice", allow("Topic:orders", "Pub"))
    async with signed_peer(broker, "alice") as alice:
        ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cometmq.auth.signer import Signer
from cometmq.broker.hosts import FAST_PORT_BELOW
from cometmq.broker.server import Broker
from cometmq.wire.bodies import AclInfo, AclPolicy, PolicyEntry, UserInfo
from cometmq.wire.codes import Request
from cometmq.wire.command import Command
from tests.support.brokers import Peer

ROOT: Final = "root"
INNER: Final = "servers"
SECURED: Final[dict[str, object]] = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"password of root"}',
}
SIGNING: Final[dict[str, object]] = {
    "innerClientAuthenticationCredentials": '{"accessKey":"servers","secretKey":"password of servers"}',
}


def password_of(name: str) -> str:
    return f"password of {name}"


@asynccontextmanager
async def signed_peer(
    broker: Broker, name: str = ROOT, password: str | None = None, *, token: str | None = None, fast: bool = False
) -> AsyncIterator[Peer]:
    """A peer that signs; `fast`: at the second port."""
    host, _, port = broker.address.rpartition(":")
    async with Peer.at(f"{host}:{int(port) - FAST_PORT_BELOW}" if fast else broker.address) as peer:
        peer.client.add_hook(Signer(name, password or password_of(name), token))
        yield peer


def allow(resource: str, *actions: str, sources: list[str] | None = None, decision: str = "Allow") -> PolicyEntry:
    return PolicyEntry(actions=list(actions), decision=decision, resource=resource, source_ips=sources)


def deny(resource: str, *actions: str) -> PolicyEntry:
    return allow(resource, *actions, decision="Deny")


async def create_user(root: Peer, name: str, *, password: str | None = None, kind: str = "Normal") -> Command:
    info = UserInfo(password=password or password_of(name), user_type=kind)
    return await root.call(Request.AUTH_CREATE_USER, info.encode(), username=name)


async def grant(root: Peer, name: str, *entries: PolicyEntry, policy: str = "Custom") -> Command:
    info = AclInfo(subject=f"User:{name}", policies=[AclPolicy(entries=list(entries), policy_type=policy)])
    return await root.call(Request.AUTH_CREATE_ACL, info.encode(), subject=f"User:{name}")


async def add_user(root: Peer, name: str, *entries: PolicyEntry, kind: str = "Normal") -> None:
    answers = [await create_user(root, name, kind=kind)]
    if entries:
        answers.append(await grant(root, name, *entries))
    for answer in answers:
        assert answer.code == 0, answer.remark
