"""Reaching a cluster from a command: the client of the options, and its administration.

    async with administration(options) as admin: ...                  4 unless a broker is registered
    async with administration(options, brokers=False) as admin: ...    what name servers know by themselves
    async with client_of(options) as client: ...

Name servers are tried once each; a command that cannot reach any of them says so instead of waiting. The client is
imported here, when a command runs: help and wrong arguments do not wait for it.

A topic without a route was never made, or its brokers are stopped, or nobody may use it: who asked is told which. So
is who looks for a group or a broker while none is registered: that is a server out of reach, not a wrong name.
"""

import argparse
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from cometmq.cli.context import resolve
from cometmq.cli.shared import output
from cometmq.cli.shared.failures import EXIT_REFUSED, EXIT_UNREACHABLE, Failure
from cometmq.errors import BrokerError, CallError, CometError, NoRoute, NotFound
from cometmq.wire.codes import MASTER_ID

if TYPE_CHECKING:
    from cometmq.cli.context import Tls
    from cometmq.client.admin import Admin
    from cometmq.client.client import Client
    from cometmq.client.options import ClientKeywords
    from cometmq.net.tls import ClientTls

# A tool says what went wrong itself, once; what its client logs on the way is for programs that run for long.
logging.getLogger("cometmq").addHandler(logging.NullHandler())


def _keywords(options: argparse.Namespace) -> "ClientKeywords":
    target = resolve(options)
    return {
        "tls": _tls(target.tls),
        "access_key": target.access_key,
        "secret_key": target.secret_key,
        "call_timeout": options.timeout,
        "connect_timeout": min(options.timeout, 3.0),
    }


def _tls(given: "Tls | None") -> "ClientTls | None":
    if given is None:
        return None
    from cometmq.net.tls import ClientTls

    if given.insecure:
        output.note("servers are not verified (--tls-insecure): anybody may pose as one and learn what is sent")
    return ClientTls(
        verify=not given.insecure,
        trust_path=given.ca,
        certificate_path=given.cert,
        key_path=given.key,
        server_name=given.name,
    )


@asynccontextmanager
async def client_of(options: argparse.Namespace) -> "AsyncIterator[Client]":
    from cometmq.client.client import Client

    async with Client(resolve(options).namesrv, **_keywords(options)) as client:
        try:
            yield client
        except (NoRoute, NotFound) as error:
            async with client.admin(timeout_s=options.timeout) as admin:
                raise await _cause(admin, options, error) from error.__cause__


@asynccontextmanager
async def administration(options: argparse.Namespace, *, brokers: bool = True) -> "AsyncIterator[Admin]":
    """Without the rest of a client: importing consumers would take a fifth of the time of `cometmq topic list`.

    An empty answer of a name server without brokers would look like an empty cluster, so that is asked first."""
    from cometmq.client.admin import Admin
    from cometmq.client.cluster.instance import Instance
    from cometmq.client.options import ClientOptions

    instance = Instance(ClientOptions(resolve(options).namesrv, **_keywords(options)))
    await instance.start()
    try:
        async with Admin(instance, options.timeout) as admin:
            if brokers:
                await _need_brokers(admin, options)
            try:
                yield admin
            except (NoRoute, NotFound) as error:
                raise await _cause(admin, options, error) from error.__cause__
    finally:
        await instance.stop()


async def _need_brokers(admin: "Admin", options: argparse.Namespace) -> None:
    if ":" in (getattr(options, "broker", None) or ""):
        return  # an address: whether it is registered does not matter
    try:
        members = await admin.members()
    except BrokerError:
        return  # this name server does not say: the command's own requests decide
    if not members:
        raise _no_broker(options)


def _no_broker(options: argparse.Namespace) -> Failure:
    cause = f"no broker is registered with name server {resolve(options).namesrv}: all are stopped"
    return Failure(EXIT_UNREACHABLE, f"{cause}; start one (cometmq broker), see cometmq cluster health")


async def _cause(admin: "Admin", options: argparse.Namespace, error: NoRoute | NotFound) -> CometError:
    """Why something is not there. The same error, if there is nothing better to say."""
    if isinstance(error.__cause__, CallError):
        return error
    if isinstance(error, NotFound) and ":" in (getattr(options, "broker", None) or ""):
        return error  # the broker at that address said so, registered or not
    if not await admin.members():
        return _no_broker(options)
    if isinstance(error, NotFound):
        return error
    topic = getattr(options, "topic", None)
    try:
        route = await admin.topic_route(topic) if topic else None
    except NoRoute:
        return error
    if route is None:
        return error
    lost = sorted(it.broker_name for it in route.broker_datas if MASTER_ID not in it.broker_addrs)
    if lost and all(data.broker_name in lost for data in route.queue_datas if data.perm & PERM_WRITE):
        text = f"{str(error).partition(':')[0]}: the master of {', '.join(lost)} is down, only replicas are registered"
        return Failure(EXIT_UNREACHABLE, f"{text}; start it, or make a replica the master (docs/replicas.md)")
    permissions = ", ".join(f"{data.broker_name} {_PERMISSIONS[data.perm & 6]}" for data in route.queue_datas)
    fix = f"cometmq topic alter {topic} --permissions rw, or brokerPermission=6 at the broker"
    return Failure(EXIT_REFUSED, f"{str(error).partition(':')[0]} (permissions: {permissions}): {fix}")


PERM_WRITE: Final = 2
_PERMISSIONS: Final = {0: "none", 2: "w", 4: "r", 6: "rw"}
