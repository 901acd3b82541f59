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

# A tool says what went wrong itself, once; what its client logs on the way is for programs that run for long.
logging.getLogger("cometmq").addHandler(logging.NullHandler())


def make_client(options: argparse.Namespace) -> "Client":
    from cometmq.client.client import Client

    target = resolve(options)
    return Client(
        target.namesrv,
        access_key=target.access_key,
        secret_key=target.secret_key,
        call_timeout=options.timeout,
        connect_timeout=min(options.timeout, 3.0),
    )


@asynccontextmanager
async def client_of(options: argparse.Namespace) -> "AsyncIterator[Client]":
    async with make_client(options) as client:
        yield client


@asynccontextmanager
async def administration(options: argparse.Namespace) -> "AsyncIterator[Admin]":
    async with make_client(options) as client, client.admin(timeout_s=options.timeout) as admin:
        yield admin
