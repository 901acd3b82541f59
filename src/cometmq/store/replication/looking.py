"""A listener that sees a connection's first byte before it is handed on: with TLS, without, or not at all (doors.py).

    accept ──> address allowed? ──> first byte, left to be read ──> TLS handshake or nothing ──> protocol

Connections that say nothing have a bound and a time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from cometmq.clock import Clock
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.replication.doors import Doors

log = logging.getLogger(__name__)

OPENING_MAX: Final = 64
OPENING_S: Final = 10.0
BACKLOG: Final = 100
# After a failure to accept, as when there are no more descriptors.
PAUSE_S: Final = 0.1


class LookingServer:
    def __init__(self, doors: Doors, make_protocol: Callable[[], asyncio.Protocol], clock: Clock) -> None:
        self.port: int = 0
        self._doors = doors
        self._make_protocol = make_protocol
        self._refusals = ThinnedLog(log, clock)
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """OSError if the port is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._listening))

    async def stop(self) -> None:
        tasks = [task for task in (self._accepting, *self._opening) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, address = await loop.sock_accept(listening)
            except OSError as error:
                self._refusals.warning("fail to accept a replica cause=%s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            host = str(address[0])
            if not self._doors.is_allowed(host):
                self._refuse(peer, host, "not in haAllowedAddresses")
            elif len(self._opening) >= OPENING_MAX:
                self._refuse(peer, host, f"{OPENING_MAX} connections have not said yet what they speak")
            else:
                task = loop.create_task(self._open(peer, host))
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)

    async def _open(self, peer: socket.socket, host: str) -> None:
        handed_on = False
        try:
            async with asyncio.timeout(OPENING_S):
                peer.setblocking(False)
                is_served, context = self._doors.admit(await _first_byte(peer))
                if is_served:
                    handed_on = True
                    await asyncio.get_running_loop().connect_accepted_socket(self._make_protocol, peer, ssl=context)
                else:
                    self._refuse(peer, host, f"tls.ha.mode is {self._doors.mode}")
        except (OSError, TimeoutError) as error:
            self._refusals.warning("refused replica peer=%s cause=%s", host, str(error) or "time is over")
        finally:
            if not handed_on:
                peer.close()

    def _refuse(self, peer: socket.socket, host: str, cause: str) -> None:
        self._refusals.warning("refused replica peer=%s cause=%s", host, cause)
        peer.close()


async def _first_byte(peer: socket.socket) -> bytes:
    """What it will read first; nothing if the peer leaves."""
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()
    loop.add_reader(peer, _found, there)
    try:
        await there
    finally:
        loop.remove_reader(peer)
    return peer.recv(1, socket.MSG_PEEK)


def _found(there: asyncio.Future[None]) -> None:
    if not there.done():
        there.set_result(None)
