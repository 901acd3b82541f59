"""Reaching a cluster from a command: the client of the options, and its administration.

    async with administration(options) as admin: ...
    async with client_of(options) as client: ...

Name servers are tried once each; a command that cannot reach any of them says so instead of waiting. The client is
imported here, when a command runs: help and wrong arguments do not wait for it.
"""

import argparse
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cometmq.cli.context import resolve

if TYPE_CHECKING:
    from cometmq.client.admin import Admin
    from cometmq.client.client import Client
    from cometmq.client.options import ClientKeywords

# A tool says what went wrong itself, once; what its client logs on the way is for programs that run for long.
logging.getLogger("cometmq").addHandler(logging.NullHandler())


def _keywords(options: argparse.Namespace) -> "ClientKeywords":
    target = resolve(options)
    return {
        "access_key": target.access_key,
        "secret_key": target.secret_key,
        "call_timeout": options.timeout,
        "connect_timeout": min(options.timeout, 3.0),
    }


@asynccontextmanager
async def client_of(options: argparse.Namespace) -> "AsyncIterator[Client]":
    from cometmq.client.client import Client

    async with Client(resolve(options).namesrv, **_keywords(options)) as client:
        yield client


@asynccontextmanager
async def administration(options: argparse.Namespace) -> "AsyncIterator[Admin]":
    """Without the rest of a client: importing consumers would take a fifth of the time of `cometmq topic list`."""
    from cometmq.client.admin import Admin
    from cometmq.client.instance import Instance
    from cometmq.client.options import ClientOptions

    instance = Instance(ClientOptions(resolve(options).namesrv, **_keywords(options)))
    await instance.start()
    try:
        async with Admin(instance, options.timeout) as admin:
            yield admin
    finally:
        await instance.stop()
