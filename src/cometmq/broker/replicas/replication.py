"""The log side of a broker's role: a master serves replicas, a replica follows its master.

    master   listens on haListenPort, the port above its own unless set; a SYNC_MASTER answers producers when enough
             replicas have the message
    replica  connects to haMasterAddress, or to where the name servers say that its master is

What replicas follow besides the log is in table_sync.py; docs/replication.md has the whole picture.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cometmq.broker.replicas.replica_port import ReplicaPort
from cometmq.clock import Clock
from cometmq.errors import StoreError
from cometmq.store.background import Background
from cometmq.store.options import SYNC_MASTER
from cometmq.store.replication.follower import Follower
from cometmq.store.replication.links import Link
from cometmq.store.replication.listener import Listener
from cometmq.store.store import Store
from cometmq.wire.bodies import HaClientInfo, HaConnectionInfo, HaStatus

logger = logging.getLogger(__name__)

# A master that stops gives its replicas so long to take what they do not have yet.
LAST_BYTES_S: Final = 1.0
LAST_BYTES_LOOK_S: Final = 0.01


class Replication:
    """`listener` on a master, `follower` on a replica; the other one is None, as are both before `start`."""

    def __init__(self, store: Store, background: Background, clock: Clock, port: ReplicaPort) -> None:
        self.listener: Listener | None = None
        self.follower: Follower | None = None
        self._clock = clock
        self._port = port
        self._store = store
        self._background = background

    async def start(self, host: str, port: int) -> None:
        """StoreError if the port is taken."""
        store = self._store
        if store.options.is_slave:
            self.follower = Follower(store, self._port.doors)
            self.follower.follow(store.options.ha_master_address)
            return
        self._port.open()
        self.listener = Listener(store, self._background.load_ranges, self._port.doors)
        try:
            await self.listener.start(host, port)
        except OSError as error:
            raise StoreError(f"cannot listen for replicas on {host}:{port}: {error}; set haListenPort") from error
        if store.options.broker_role == SYNC_MASTER:
            store.promise_copies(self.listener.wait)
            if store.options.in_sync_replicas == 1:
                logger.warning(
                    "brokerRole=SYNC_MASTER waits for no replica because inSyncReplicas=1: set 2, or leave it out"
                )

    async def stop(self) -> None:
        """No message comes any more. Replicas get what they do not have yet, if they are quick."""
        if self.listener is not None:
            await self._last_bytes(self.listener)
            await self.listener.stop()
        if self.follower is not None:
            await self.follower.stop()
        self._port.close()

    async def _last_bytes(self, listener: Listener) -> None:
        for _ in range(round(LAST_BYTES_S / LAST_BYTES_LOOK_S)):
            end = listener.store.log.confirm_offset
            if all(link.acked_offset >= end for link in listener.master.links if link.in_sync()):
                return
            await asyncio.sleep(LAST_BYTES_LOOK_S)

    # A replica's master

    def follow(self, ha_address: str | None) -> None:
        """Where name servers or the master itself say that the log comes from; None: nowhere for now.

        A fixed haMasterAddress overrides them.
        """
        if self.follower is not None and not self.follower.store.options.ha_master_address:
            self.follower.follow(ha_address or "")

    # A master's replicas

    def act_as_masters(self, alive: Callable[[], int]) -> None:
        """Replicas stand in for this master: a message that cannot have enough copies is not stored at all.

        `alive`: how many brokers of this name are alive, this one included.
        """
        if self.listener is not None and self._store.options.broker_role == SYNC_MASTER:
            self.listener.master.count_alive(alive)
            self._store.require_copies(self.listener.master.shortage)

    def copies(self) -> tuple[int, int]:
        """How many an acknowledgement promises, and how many there would be now: the master's own counts."""
        if self.listener is None or self._store.options.broker_role != SYNC_MASTER:
            return 1, 1
        return self.listener.master.copies()

    @property
    def is_connected(self) -> bool | None:
        """Of a replica, to its master; None on a master."""
        return None if self.follower is None else self.follower.connection is not None

    def status(self) -> HaStatus:
        """Request 907."""
        log = self._store.log
        if self.follower is not None:
            return HaStatus(master=False, ha_client_runtime_info=self._client_info(self.follower))
        links = self.listener.master.links if self.listener is not None else []
        return HaStatus(
            master=True,
            master_commit_log_max_offset=log.max_offset,
            in_sync_slave_nums=sum(link.in_sync() for link in links),
            ha_connection_info=[_connection_info(link, log.max_offset, self._clock.monotonic()) for link in links],
        )

    def _client_info(self, follower: Follower) -> HaClientInfo:
        log = follower.store.log
        connection = follower.connection
        info = HaClientInfo(master_addr=follower.address or None, max_offset=log.max_offset)
        if connection is not None:
            info.last_read_timestamp = self._wall_ms(connection.replica.heard_s)
            info.last_write_timestamp = self._wall_ms(connection.replica.reported_s)
            info.transferred_byte_in_second = connection.replica.pace.rate(self._clock.monotonic())
        return info

    def _wall_ms(self, monotonic_s: float) -> int:
        return self._clock.now_ms() - int((self._clock.monotonic() - monotonic_s) * 1000)


def _connection_info(link: Link, end: int, now_s: float) -> HaConnectionInfo:
    return HaConnectionInfo(
        addr=link.name,
        slave_ack_offset=max(0, link.acked_offset),
        diff=end - max(0, link.acked_offset),
        in_sync=link.in_sync(),
        transferred_byte_in_second=link.pace.rate(now_s),
        transfer_from_where=max(0, link.next_offset),
    )
