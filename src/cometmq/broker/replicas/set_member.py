"""This broker as a member of a set that elects its master: does what failover decides, with clients connected.

                 sends      log                        tables                    duties     name servers
    follow       refused    from the master of the     copied each second        paused     the own id
                            document, from where they agree
    lead         taken      to replicas; an ack when   own                       on         id 0 with the epoch
                            it is committed
    rest, seal   refused    neither                    kept                      paused     as before

Leading begins with a log that is all on disk and all in the queues, and is told to name servers once enough members are
there to ack, or after a second. It ends by answering first: who waits is told that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.broker.hosts import OwnAddress
from cometmq.broker.replicas.handover import Handover
from cometmq.broker.replicas.leader_tasks import LeaderTasks
from cometmq.broker.replicas.registration import Registration
from cometmq.broker.replicas.replica_port import ReplicaPort
from cometmq.broker.replicas.table_sync import TableSync
from cometmq.clock import Clock, Timer
from cometmq.errors import ConfigError, StoreError
from cometmq.failover import document as documents
from cometmq.failover import member as members
from cometmq.failover.document import Document, Member
from cometmq.failover.keeper import Keeper
from cometmq.failover.member import Progress, Promises, Seen
from cometmq.failover.stores import StoreUnknown, open_store
from cometmq.failover.tenure import Tenure
from cometmq.store.background import Background
from cometmq.store.replication.sets import cut as cutting
from cometmq.store.replication.sets.follower import SetFollower
from cometmq.store.replication.sets.leader import Leader
from cometmq.store.replication.sets.listener import SetListener
from cometmq.store.replication.sets.promises import SetMemory
from cometmq.store.store import Store
from cometmq.store.timers import following
from cometmq.wire.bodies import HaClientInfo, HaConnectionInfo, HaStatus
from cometmq.wire.codes import MASTER_ID

logger = logging.getLogger(__name__)

COPIES_DEFAULT: Final = 2
FLUSH_LOOK_S: Final = 0.002
TELL_S: Final = 1.0
# A member that is to enter the in-sync set has been at the end of the log so lately.
ENTER_S: Final = 0.5
HAND_OVER_S: Final = 5.0
HAND_OVER_LOOK_S: Final = 0.02
# A member that is to lead lacks so little when requests begin to be held, and they are for so long at most.
YIELD_BYTES: Final = 4 << 20
YIELD_S: Final = 2.5
YIELD_LOOK_S: Final = 0.001
CATCH_UP_S: Final = 0.15


class SetMember:
    """Implements `keeper.Actor`. `take_id` changes the id that this broker goes by; `close_to_sends` the gate of sends.

    `settled` is set when it leads or follows for the first time; its exception says why it never will.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        own: OwnAddress,
        store: Store,
        background: Background,
        registration: Registration,
        table_sync: TableSync,
        leader_tasks: LeaderTasks,
        port: ReplicaPort,
        handover: Handover,
        take_id: Callable[[int], object],
    ) -> None:
        self.memory = SetMemory(store.options.root_dir, store.disk)
        cutting.resume(store, self.memory)
        self.tenure: Tenure | None = None
        self.role: str = "none"
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._config = config
        self._clock = clock
        self._own = own
        self._store = store
        self._background = background
        self._registration = registration
        self._table_sync = table_sync
        self._leader_tasks = leader_tasks
        self.handover = handover
        self._port = port
        self._take_id = take_id
        self._listeners: list[Callable[[], object]] = []
        self._good_s: dict[int, float] = {}
        self._heard_s = 0.0
        self._tell_timer: Timer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._yielding: asyncio.Task[None] | None = None
        # The epoch whose master wished that this broker leads the next one.
        self._heir_of = 0
        self._set_sends: Callable[[bool], object] = _ignore
        doors = port.doors
        self.listener = SetListener(store, background.load_ranges, doors, self._changed)
        self.follower = SetFollower(
            store, self.memory, doors, lambda: config().controller_silence_ms / 1000, self._changed,
            is_learner=config().async_learner,
        )  # fmt: skip
        self.keeper = Keeper(
            open_store(config().controller_store, clock),
            clock,
            self,
            config().cluster_name,
            config().broker_name,
            config().controller_session_ms,
        )

    def subscribe(self, listener: Callable[[], object]) -> None:
        """Told when readers should go to another master."""
        self._listeners.append(listener)

    def close_sends_with(self, close: Callable[[bool], object]) -> None:
        """True: this broker does not lead, sends are refused before they are looked at."""
        self._set_sends = close

    def _changed(self) -> None:
        self.keeper.changed()

    # Starting and stopping

    async def start(self, host: str, port: int) -> None:
        """StoreError if the port is taken. What comes of it later is `settled`."""
        self._port.open()
        await self.listener.start(host, port)
        self._store.promise_copies(self.listener.wait)
        self._store.require_copies(self._shortage)
        self._starting = asyncio.get_running_loop().create_task(self._join())

    async def _join(self) -> None:
        kept, options = self.memory.kept, self._store.options
        own = Member(self._own.address, self._registration.ha_address, kept.check)
        try:
            number, check = await self.keeper.join(
                own, kept.id, self.copies,
                is_empty=self._store.log.max_offset == 0,
                newest_epoch=max(self.memory.table.last, kept.joined, kept.sealed, kept.led),
            )  # fmt: skip
            if (number, check) != (kept.id, kept.check):
                self.memory.become(number, check)
            if options.in_sync_replicas == 1:
                raise ConfigError(
                    "inSyncReplicas=1 acks what one machine has: no election can keep that; set 2 or leave it out, or "
                    "leave out enableControllerMode"
                )
        except (Exception, asyncio.CancelledError) as error:
            if not self.settled.done():
                self.settled.set_exception(error)
            return
        self.keeper.start()

    @property
    def copies(self) -> int:
        return self._store.options.in_sync_replicas or COPIES_DEFAULT

    async def stop(self) -> None:
        """A master hands over first, if there is somebody who can take over now."""
        if self.role == "master":
            await self._hand_over()
        if self.handover.takes:
            await self.handover.quiet(self._config().handover_forward_ms / 1000)
        self.handover.stop()
        if self._yielding is not None:
            self._yielding.cancel()
            await asyncio.gather(self._yielding, return_exceptions=True)
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._tell_timer is not None:
            self._tell_timer.cancel()
        await self.keeper.stop()
        self._stop_leading()
        if self._ending is not None:
            await self._ending
        await self.follower.leave()
        await self.listener.stop()
        self._port.close()

    async def _hand_over(self) -> None:
        keeper, document = self.keeper, self.keeper.document
        if document is None or document.master != self.memory.kept.id:
            return
        heir = members.successor(document, self.memory.kept.id, self.seen())
        if not heir:
            logger.warning("stop as master without a successor inSync=%s", list(document.in_sync))
            return
        epoch = document.epoch
        try:
            await keeper.ask(documents.wished(document, heir), keeper.version)
            keeper.changed()
            for _ in range(round(HAND_OVER_S / HAND_OVER_LOOK_S)):
                if keeper.document is not None and keeper.document.epoch > epoch:
                    logger.info("handed over to member=%d epoch=%d", keeper.document.master, keeper.document.epoch)
                    return
                await asyncio.sleep(HAND_OVER_LOOK_S)
        except (StoreUnknown, documents.Refused) as error:
            logger.warning("fail to hand over cause=%s", error)

    # Giving the lead to the member that is wished for

    def forwards(self) -> bool:
        """Whether requests for a master are taken although this broker may not be it."""
        return self.handover.takes

    async def _yield_to(self, heir: int, leader: Leader) -> None:
        """Hold requests as soon as the heir lacks little; then it has all in a moment, and the keeper sees it."""
        is_held = False
        end_s = self._clock.monotonic() + HAND_OVER_S
        try:
            while self.listener.leader is leader and not leader.frozen and self._is_wished(heir):
                lacks = self._store.log.max_offset - leader.ends().get(heir, -1)
                if not is_held and lacks <= YIELD_BYTES and heir in leader.ends():
                    is_held = self.handover.hold()
                    self._store.log.closed = "this broker gives the lead away: send again in a moment"
                    end_s = self._clock.monotonic() + YIELD_S
                if is_held and lacks <= 0 and leader.committed >= self._store.log.max_offset:
                    self.keeper.changed()
                if self._clock.monotonic() >= end_s:
                    logger.warning("keep the lead: member=%d lacks %d bytes", heir, lacks)
                    break
                await asyncio.sleep(YIELD_LOOK_S)
            await self._await_outcome(leader)
        finally:
            self._yielding = None
            if self.listener.leader is leader and not leader.frozen:
                self._store.log.closed = ""
                self.handover.open()
                await self._forget_wish(heir)

    def _is_wished(self, heir: int) -> bool:
        document = self.keeper.document
        return document is not None and document.wish == heir

    async def _await_outcome(self, leader: Leader) -> None:
        """The store was asked, and nobody knows yet."""
        end_s = self._clock.monotonic() + HAND_OVER_S
        while self._is_undecided(leader) and self._clock.monotonic() < end_s:  # noqa: ASYNC110 - the store decides
            await asyncio.sleep(YIELD_LOOK_S)

    def _is_undecided(self, leader: Leader) -> bool:
        return self.listener.leader is leader and leader.frozen

    async def _forget_wish(self, heir: int) -> None:
        document = self.keeper.document
        if document is None or document.wish != heir:
            return
        try:
            await self.keeper.ask(documents.unwished(document), self.keeper.version)
        except StoreUnknown as error:
            logger.warning("fail to forget the wish cause=%s", error)

    # What is decided by

    def promises(self) -> Promises:
        kept = self.memory.kept
        return Promises(kept.id, kept.joined, kept.sealed, kept.led)

    def seen(self) -> Seen:
        leader, follower = self.listener.leader, self.follower
        seen = Seen(end=self._store.log.flushed_offset, copies=self.copies)
        if leader is not None:
            seen.epoch, seen.is_leading = leader.epoch, True
            seen.pending = None if self.tenure is None else self.tenure.pending
            seen.progress = self._progress(leader)
        elif follower.epoch:
            seen.epoch = follower.epoch
            seen.is_refused, seen.is_silent = follower.is_refused, follower.is_silent
        return seen

    def _progress(self, leader: Leader) -> Progress:
        """Who keeps up: a member may be away for haMaxTimeSlaveNotCatchup before it is dropped."""
        now_s, limit_s = self._clock.monotonic(), self._store.options.ha_not_caught_up_ms / 1000
        document = self.keeper.document
        ends = leader.ends()
        in_sync = set() if document is None else set(document.in_sync)
        near = set()
        for number, member in leader.members.items():
            if number in ends and now_s - member.caught_up_s <= limit_s:
                self._good_s[number] = member.caught_up_s
        for number in in_sync | ends.keys():
            allowed_s = limit_s if number in in_sync else ENTER_S
            if now_s - self._good_s.get(number, -1e9) <= allowed_s:
                near.add(number)
        return Progress(
            leader.start, self._store.log.max_offset, leader.committed, ends, frozenset(near), frozenset(ends)
        )

    def asks(self, kind: str, version: int, after: Document) -> bool:
        leader = self.listener.leader
        if self.tenure is not None and leader is not None:
            end = self._store.log.max_offset
            if kind == members.HAND_OVER and min(leader.ends().get(after.master, -1), leader.committed) < end:
                return False
            self.tenure.asks(kind, version, after)
            self._rule(leader, self.tenure)
        return True

    def learns(self, document: Document, version: int) -> None:
        leader, own = self.listener.leader, self.memory.kept.id
        if document.wish == own != 0:
            self._heir_of = document.epoch
        if self.handover.takes and document.master != own and (leader is None or document.epoch > leader.epoch):
            self.handover.forward(document.members[document.master].address, self._config().handover_forward_ms / 1000)
        if leader is None or self.tenure is None:
            return
        self.tenure.learns(document, version)
        if document.wish not in (0, own) and document.epoch == leader.epoch and self._yielding is None:
            self._yielding = asyncio.get_running_loop().create_task(self._yield_to(document.wish, leader))
        if document.epoch > leader.epoch:
            leader.give_up()
            self._store.follow()
        else:
            self._rule(leader, self.tenure)

    def _rule(self, leader: Leader, tenure: Tenure) -> None:
        leader.frozen = tenure.is_frozen
        if leader.rule(tenure.rulers):
            self.listener.announce()

    def _shortage(self) -> str:
        leader, options = self.listener.leader, self._store.options
        return "" if leader is None else leader.shortage(max(self.copies, options.in_sync_replicas_min))

    # Roles

    async def follow(self, epoch: int, master: Member) -> None:
        self._stop_leading()
        if self._ending is not None:
            await self._ending
        await self.follower.leave()
        self._take_id(self.memory.kept.id)
        self.role = "replica"
        self.follower.follow(epoch, master.ha)
        self._table_sync.follow(master.address)
        self._table_sync.start()
        self._tell()
        self._send_readers()
        self._settle()

    async def lead(self, epoch: int, document: Document, version: int) -> None:
        self._stop_leading()
        if self._ending is not None:
            await self._ending
        store = self._store
        await self.follower.leave()
        if self._heir_of == epoch - 1:
            await self._table_sync.catch_up(CATCH_UP_S)
        await self._table_sync.stop()
        await self._flush()
        while store.count_all():  # noqa: ASYNC110 - work, not waiting
            await asyncio.sleep(0)
        if store.dispatcher.position < store.log.max_offset:  # never number messages by queues that lack some
            raise StoreError(f"queues are built up to {store.dispatcher.position} of {store.log.max_offset} only")
        self.memory.lead(epoch, store.log.max_offset)
        leader = Leader(self.memory.kept.id, epoch, self.memory.table, store.log, store.options)
        self.tenure = Tenure(epoch)
        self.listener.lead(leader)
        now_s = self._clock.monotonic()
        self._good_s = dict.fromkeys(document.in_sync, now_s)
        self.tenure.learns(document, version)
        self._rule(leader, self.tenure)
        self._background.make_ahead()
        store.lead()
        self._set_sends(False)
        self._take_id(MASTER_ID)
        self._registration.state_version = epoch
        self.role = "master"
        logger.warning("lead set epoch=%d start=%d inSync=%s", epoch, leader.start, list(document.in_sync))
        self._wait_to_tell(now_s + TELL_S)
        self._leader_tasks.start()
        self.handover.open()
        self._send_readers()
        self._settle()

    def _wait_to_tell(self, until_s: float) -> None:
        """Clients come when they can be served."""
        self._tell_timer = None
        leader = self.listener.leader
        if leader is None:
            return
        if not self._shortage() or self._clock.monotonic() >= until_s:
            self._tell()
        else:
            self._tell_timer = self._clock.call_later(FLUSH_LOOK_S, lambda: self._wait_to_tell(until_s))

    async def rest(self) -> None:
        self._stop_leading()
        if self._ending is not None:
            await self._ending
        await self.follower.leave()
        self._table_sync.follow(None)
        self.role = "none"

    async def seal(self, epoch: int) -> None:
        await self.rest()
        await self._flush()
        self.memory.seal(epoch)

    async def unseal(self, epoch: int) -> None:
        self.memory.unseal(epoch)

    def _stop_leading(self) -> None:
        if self.listener.leader is None:
            return
        logger.warning("lead no longer epoch=%d", self.listener.leader.epoch)
        self._store.follow()
        self._set_sends(True)
        self.listener.resign()
        self.tenure = None
        self.role = "none"
        if self._tell_timer is not None:
            self._tell_timer.cancel()
            self._tell_timer = None
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end_duties())

    async def _end_duties(self) -> None:
        try:
            await self._leader_tasks.stop()
            following.forget_own(self._store.disk, self._store.options)
        finally:
            self._ending = None

    async def _flush(self) -> None:
        """All of the log on disk. OSError: the disk failed."""
        while self._store.flusher.running:  # noqa: ASYNC110 - a thread ends it, not a task
            await asyncio.sleep(FLUSH_LOOK_S)
        self._store.flush_now()
        if self._store.failure is not None:
            raise self._store.failure

    def _tell(self) -> None:
        """Name servers: who this broker is now."""
        self._registration.is_isolated = False
        self._registration.announce([])

    def _send_readers(self) -> None:
        for listener in self._listeners:
            listener()

    def _settle(self) -> None:
        if not self.settled.done():
            self.settled.set_result(None)

    # For others to see

    def sees_master(self) -> bool:
        return self.follower.is_agreed

    def status_line(self) -> str:
        document = self.keeper.document
        in_sync = 0 if document is None else len(document.in_sync)
        epoch = 0 if document is None else document.epoch
        name = self._config().broker_name
        return f"set={name} id={self.memory.kept.id} role={self.role} epoch={epoch} inSync={in_sync}"

    def figures(self) -> dict[str, str]:
        """For the broker's runtime figures."""
        document = self.keeper.document
        if document is None:
            return {"cometmq.setRole": self.role, "cometmq.setStore": self.keeper.store.seen_text() or "not asked yet"}
        return {
            "cometmq.setRole": self.role,
            "cometmq.setEpoch": str(document.epoch),
            "cometmq.setMaster": str(document.master),
            "cometmq.setInSync": ",".join(map(str, document.in_sync)),
            "cometmq.setCopies": str(document.copies),
            "cometmq.setMembers": ",".join(map(str, sorted(document.members))),
            "cometmq.setSeals": ",".join(map(str, sorted(document.seals))) or "none",
            "cometmq.setStore": self.keeper.store.seen_text() or "not asked yet",
            "cometmq.setForwarded": str(self.handover.forwarded),
        }

    def epochs(self) -> tuple[int, list[tuple[int, int]]]:
        """Own id, and which master wrote which part of the log."""
        return self.memory.kept.id, list(self.memory.table.entries)

    def ha_status(self) -> HaStatus:
        """Request 907."""
        log, leader, document = self._store.log, self.listener.leader, self.keeper.document
        if leader is None:
            info = HaClientInfo(master_addr=self.follower.address or None, max_offset=log.max_offset)
            return HaStatus(master=False, ha_client_runtime_info=info)
        now_s = self._clock.monotonic()
        in_sync = () if document is None else document.in_sync
        return HaStatus(
            master=True,
            master_commit_log_max_offset=log.max_offset,
            in_sync_slave_nums=sum(number in in_sync for number in leader.members),
            ha_connection_info=[
                HaConnectionInfo(
                    addr=member.name,
                    slave_ack_offset=max(0, member.acked),
                    diff=log.max_offset - max(0, member.acked),
                    in_sync=number in in_sync,
                    transferred_byte_in_second=member.pace.rate(now_s),
                    transfer_from_where=max(0, member.next_offset),
                )
                for number, member in sorted(leader.members.items())
            ],
        )




def _ignore(_is_replica: bool) -> None: ...
