"""Which name servers there are, and which of them is asked.

Their addresses come from, first match:

    the argument `namesrv`  ->  COMETMQ_NAMESRV  ->  NAMESRV_ADDR  ->  an HTTP endpoint, only if one was given

as `host:port;host:port`. A value that begins with `http://` is one address: what comes after its last slash.

Choice is sticky: the one that was chosen is asked while its connection is open. Otherwise the next in a shuffled list
is dialled, each client beginning somewhere else, until one answers.
"""

import asyncio
import logging
import os
import random
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final

from cometmq.errors import ConfigError, ConnectFailed, NoNameServer
from cometmq.net.client import Client
from cometmq.wire.command import Command

logger = logging.getLogger(__name__)

ENVIRONMENT: Final = ("COMETMQ_NAMESRV", "NAMESRV_ADDR")
FETCH_LIMIT_S: Final = 3.0
FETCHED_BYTES_MAX: Final = 65_536

Fetch = Callable[[str], str]


def configured(argument: str | None, environment: Mapping[str, str] | None = None) -> list[str]:
    """The addresses that somebody set; empty if nobody did."""
    if argument:
        return parse(argument)
    environment = os.environ if environment is None else environment
    for name in ENVIRONMENT:
        if environment.get(name, "").strip():
            return parse(environment[name])
    return []


def parse(text: str) -> list[str]:
    if text.startswith("http://"):
        text = text.rstrip("/").rpartition("/")[2]
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 0xFFFF:
            raise ConfigError(f"name server {address!r} is not host:port; several are separated by ;")
    return addresses


def namespace_of(argument: str | None) -> str | None:
    """An endpoint `http://MQ_INST_a_b.example.com:80` names a namespace, too."""
    if not argument or not argument.startswith("http://MQ_INST_"):
        return None
    instance = argument.removeprefix("http://").partition(".")[0]
    return instance if instance.count("_") >= 3 else None


def fetch_over_http(endpoint: str) -> str:
    """The first line of what the endpoint says. Blocks; ConnectFailed if it says nothing useful."""
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"namesrv_endpoint is {endpoint!r}: it must begin with http:// or https://")
    try:
        with urllib.request.urlopen(endpoint, timeout=FETCH_LIMIT_S) as answer:  # noqa: S310 - checked above
            text = answer.read(FETCHED_BYTES_MAX).decode("utf-8", "replace")
    except OSError as error:
        raise ConnectFailed(f"cannot fetch name servers from {endpoint}: {error}") from error
    lines = text.strip().splitlines()
    return str(lines[0]).strip() if lines else ""


class NameServers:
    """`endpoint` is asked by `fetch()` when no address was configured."""

    def __init__(self, net: Client, addresses: list[str], endpoint: str | None = None) -> None:
        self._net = net
        self._endpoint = endpoint if not addresses else None
        self._addresses: list[str] = []
        self._chosen: str | None = None
        self._index = random.randrange(999)  # noqa: S311 - spreads load, keeps no secret
        self.update(addresses)

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses)

    @property
    def chosen(self) -> str | None:
        return self._chosen

    @property
    def fetches(self) -> bool:
        """Whether addresses come from an endpoint and may change."""
        return self._endpoint is not None

    def update(self, addresses: list[str]) -> None:
        if sorted(addresses) == sorted(self._addresses):
            return
        self._addresses = random.sample(addresses, len(addresses))
        if self._chosen is not None and self._chosen not in addresses:
            self._net.drop(self._chosen, "no longer a name server")
            self._chosen = None
        logger.info("use name servers addresses=%s", ";".join(addresses))

    async def fetch(self, fetch: Fetch = fetch_over_http) -> None:
        """Ask the endpoint. What was known stays if it fails or has nothing to say."""
        if self._endpoint is None:
            return
        try:
            addresses = parse(await asyncio.to_thread(fetch, self._endpoint))
        except (ConnectFailed, ConfigError) as error:
            logger.warning("fail name server fetch endpoint=%s cause=%s", self._endpoint, error)
            return
        if addresses:
            self.update(addresses)

    async def ask(self, command: Command, timeout_s: float) -> Command:
        """The answer of one name server. NoNameServer, or CallError of the last one that was tried."""
        if not self._addresses:
            raise NoNameServer(
                "no name server is known: give Client('host:port') or set COMETMQ_NAMESRV or NAMESRV_ADDR"
            )
        failure: ConnectFailed | None = None
        for _ in range(len(self._addresses)):
            address = self._choose()
            try:
                return await self._net.call(address, command, timeout_s)
            except ConnectFailed as error:
                failure = error
        raise ConnectFailed(f"none of {len(self._addresses)} name servers can be reached, the last: {failure}")

    def _choose(self) -> str:
        if self._chosen is not None and self._net.connection(self._chosen) is not None:
            return self._chosen
        self._index += 1
        self._chosen = self._addresses[self._index % len(self._addresses)]
        return self._chosen
