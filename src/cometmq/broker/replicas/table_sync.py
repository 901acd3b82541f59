"""A replica follows its master in what is not in the log: topics, groups, offsets, progress of delays and timers.

    request   what                          taken over
    21        topics                        at once, if the version is another one
    201       groups, and who is barred     at once, if the version is another one
    402       who pops instead of pulling   at once
    43        consumer offsets              when the log is there
    45        progress of delay levels      when the log is there
    61        timer messages that wait      at once, a figure only
    60        progress of timers            when the log is there
    3005      users                         at once, if access control is on and the servers have credentials
    3010      policies                      the same

A topic that nobody here knows yet is made when the log brings its first message: should the master die before it has
said how the topic is, its messages can be read. What the master then says replaces it.

The last is asked for every 3 s, everything every 60 s, when a master is found, and when the log brings a message of a
topic that nobody here knows: all from the port of the master that pulls do not reach. Nothing goes the other way, but
see replica_group.py.

"When the log is there": an offset or a progress speaks of messages. Taken over before these are here, it would skip, if
the master died now, other messages that get their places. So the master is asked last where its log ends, and what it
said before waits until the log here has come that far.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from cometmq.broker.config import BrokerConfig
from cometmq.broker.hosts import FAST_PORT_BELOW
from cometmq.broker.periodic import Periods
from cometmq.broker.tables.files import DELAYS, REQUEST_MODES, TIMER_COUNTS
from cometmq.broker.tables.rebuild import rebuilt_topic
from cometmq.broker.tables.tables import Tables
from cometmq.clock import Clock
from cometmq.errors import CometError, RequestError
from cometmq.net.client import Client
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.disk import DiskFull
from cometmq.store.store import Store
from cometmq.store.timers import following
from cometmq.store.timers.progress import TimerProgress
from cometmq.wire.bodies import (
    ConsumerOffsetTable,
    DataVersion,
    DelayOffsetTable,
    HaStatus,
    MessageRequestModeTable,
    SubscriptionGroupTable,
    TimerCounts,
    TopicConfig,
    TopicConfigTable,
)
from cometmq.wire.codes import REQUEST_NAMES, Request, Response
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import (
    GetAllGroupConfig,
    GetAllGroupConfigResponse,
    GetAllTopicConfig,
    GetAllTopicConfigResponse,
)

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
PROGRESS_S: Final = 3.0
EVERYTHING_S: Final = 60.0
# In a set whose replicas may lead at any moment.
EVERYTHING_IN_SET_S: Final = 5.0
CALL_S: Final = 5.0
PAGE_ENTRIES: Final = 1_000
# A table that changes while its pages are read is read again, at most so often.
TABLE_TRIES: Final = 3
MET_MAX: Final = 10_000
NEVER_S: Final = float("-inf")

Act = Callable[[], object]
Part = Callable[[str], Awaitable[Act | None]]
T = TypeVar("T", TopicConfigTable, SubscriptionGroupTable)
# Of a master, from an entry on, with the version and the table so far: the table, the entries of the page, all entries.
AskPage = Callable[[str, int, DataVersion | None, T | None], Awaitable[tuple[T, int, int | None]]]


class TableSync:
    """`master`: where it is asked, and last answered at `heard_s`; None while nobody knows. What it said and cannot be
    taken over yet is `waiting`."""

    def __init__(
        self, config: Callable[[], BrokerConfig], clock: Clock, tables: Tables, store: Store, client: Client
    ) -> None:
        in_set = store.options.controller_mode
        self._everything_each_s = EVERYTHING_IN_SET_S if in_set else EVERYTHING_S
        self._progress_each_s = LOOK_S if in_set else PROGRESS_S
        self._offsets_each_time = in_set
        self.master: str | None = None
        self.rounds: int = 0
        self.heard_s: float = NEVER_S
        self.waiting: list[Act] = []
        self._config = config
        self._clock = clock
        self._tables = tables
        self._store = store
        self._client = client
        self._more: list[Callable[[], Sequence[Part]]] = []
        self._periods = Periods(clock)
        self._running: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._log_end: int = 0
        self._met: set[tuple[str, int]] = set()
        # Topics that the log has brought since the master was last asked for all of them, with their queues.
        self._made: dict[str, int] = {}
        self._everything_s: float = NEVER_S
        self._progress_s: float = NEVER_S
        self._log_failures = ThinnedLog(logger, clock)

    def copy_too(self, parts: Callable[[], Sequence[Part]]) -> None:
        """What else to ask a master for, when it is asked for everything."""
        self._more.append(parts)

    def start(self) -> None:
        """From now on, if a master is known; else when one is found."""
        if "master" not in self._periods:
            self._periods.every("master", lambda: LOOK_S, self._look, LOOK_S)

    async def stop(self) -> None:
        self._periods.stop()
        self.waiting.clear()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._noting is not None:
            await self._noting

    def follow(self, address: str | None) -> None:
        """Another master, or none for now."""
        if address == self.master:
            return
        logger.info("follow master address=%s before=%s", address, self.master)
        self.master = address
        self.heard_s = self._clock.monotonic()  # by whoever said so
        self.waiting.clear()
        self._everything_s = NEVER_S
        if address is not None and "master" in self._periods:
            self._look()

    async def catch_up(self, limit_s: float) -> None:
        """What a master that gives the lead away had last: offsets and progress, unless that takes too long."""
        if self.master is None:
            return
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        try:
            async with asyncio.timeout(limit_s):
                await self._ask(self.master, self._some())
        except TimeoutError:
            logger.warning("go on without the newest offsets of master=%s", self.master)
        self._take_over()
        if self._noting is not None:
            await self._noting

    def arrived(self, topic: str, queue_id: int) -> None:
        """The log has brought a message."""
        known = self._tables.topics.table.get(topic)
        if known is None or queue_id >= known.read_queue_nums:
            self.met(topic, queue_id)

    def met(self, topic: str, queue_id: int = 0) -> None:
        """The log has brought a message for a queue that is not known here: make it, and ask for it soon, once."""
        if (topic, queue_id) in self._met:
            return
        if len(self._met) >= MET_MAX:
            self._met.clear()
        self._met.add((topic, queue_id))
        self._made[topic] = max(queue_id + 1, self._made.get(topic, 0))
        self._make([topic])
        self._everything_s = self._progress_s = NEVER_S

    def _make(self, topics: Iterable[str]) -> None:
        table = self._tables.topics.table
        wanted: list[TopicConfig] = []
        for topic in topics:
            known, queues = table.get(topic), self._made[topic]
            if known is None:
                wanted.append(rebuilt_topic(topic, queues, is_batch=topic in self._store.queues.batch_topics))
            elif known.read_queue_nums < queues:
                wanted.append(msgspec.structs.replace(known, read_queue_nums=queues))
        if wanted:
            self._tables.topics.update(wanted)

    def _look(self) -> None:
        self._take_over()
        now_s = self._clock.monotonic()
        if self.master is None or self._running is not None or self.waiting:
            return
        if now_s - self._progress_s < self._progress_each_s:
            return
        everything = now_s - self._everything_s >= self._everything_each_s
        self._progress_s = now_s
        self._running = asyncio.get_running_loop().create_task(self._round(self.master, everything))

    # A round

    async def _round(self, master: str, everything: bool) -> None:
        try:
            met = len(self._met)
            done = await self._ask(master, self._all() if everything else self._some())
            if self.master != master:
                return
            if everything and done and len(self._met) == met:
                self._everything_s = self._clock.monotonic()
            self.rounds += 1
            self._take_over()
        finally:
            self._running = None

    def _some(self) -> list[Part]:
        timers: list[Part] = [self._timer_progress] if self._config().timer_wheel_enabled else []
        if not self._offsets_each_time:
            return timers
        return [self._changed_topics, self._changed_groups, self._offsets, self._delays, *timers]

    def _all(self) -> list[Part]:
        counts: list[Part] = [self._timer_counts] if self._config().timer_wheel_enabled else []
        tables: list[Part] = [self._topics, self._groups, self._request_modes, self._offsets, self._delays]
        more = [part for parts in self._more for part in parts()]
        looked_at = [*tables, self._changed_topics, self._changed_groups]
        timers = [part for part in self._some() if part not in looked_at]
        return [*tables, *more, *counts, *timers]

    async def _ask(self, master: str, parts: list[Part]) -> bool:
        """Each part by itself: what one master does not have, another part of it may. Whether all went well."""
        waiting: list[Act] = []
        failures = 0
        for part in parts:
            try:
                act = await part(master)
            except CometError as error:
                failures += 1
                self._log_failures.warning("fail to follow master=%s part=%s cause=%s", master, part.__name__, error)
            else:
                if act is not None:
                    waiting.append(act)
        if waiting or not parts:
            self._log_end = await self._end_of_log(master)
            self.waiting = waiting
        return failures == 0

    def _take_over(self) -> None:
        if self.waiting and self._store.log.max_offset >= self._log_end:
            for act in self.waiting:
                act()
            self.waiting = []

    # Parts

    async def _topics(self, master: str) -> None:
        self._made.clear()
        table = await self._table(master, self._topic_page)
        own = self._tables.topics
        # A RocketMQ master that makes a topic meanwhile may give the new version with the old table.
        if table.data_version != own.data_version or table.topic_config_table.keys() != own.table.keys():
            logger.info("took over topics count=%d master=%s", len(table.topic_config_table), master)
            self._tables.topics.follow(table)
            self._make(self._made)  # the master was asked before it had them

    async def _changed_topics(self, master: str) -> None:
        """All of them, if the first one comes with another version."""
        answer = await self.call(master, Request.GET_ALL_TOPIC_CONFIG, GetAllTopicConfig(0, None, 1).encode())
        if TopicConfigTable.decode(answer.body).data_version != self._tables.topics.data_version:
            await self._topics(master)

    async def _changed_groups(self, master: str) -> None:
        answer = await self.call(
            master, Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllGroupConfig(0, None, 1).encode()
        )
        if SubscriptionGroupTable.decode(answer.body).data_version != self._tables.groups.data_version:
            await self._groups(master)

    async def _topic_page(
        self, master: str, start: int, version: DataVersion | None, so_far: TopicConfigTable | None
    ) -> tuple[TopicConfigTable, int, int | None]:
        header = GetAllTopicConfig(start, _text(version), PAGE_ENTRIES)
        answer = await self.call(master, Request.GET_ALL_TOPIC_CONFIG, header.encode())
        page = await asyncio.to_thread(TopicConfigTable.decode, answer.body)
        count = len(page.topic_config_table)
        if so_far is not None and so_far.data_version == page.data_version:
            page.topic_config_table = so_far.topic_config_table | page.topic_config_table
        return page, count, GetAllTopicConfigResponse.decode(answer.ext).total_topic_num

    async def _groups(self, master: str) -> None:
        table = await self._table(master, self._group_page)
        if table.data_version != self._tables.groups.data_version:
            logger.info("took over groups count=%d master=%s", len(table.subscription_group_table), master)
            self._tables.groups.follow(table)

    async def _group_page(
        self, master: str, start: int, version: DataVersion | None, so_far: SubscriptionGroupTable | None
    ) -> tuple[SubscriptionGroupTable, int, int | None]:
        header = GetAllGroupConfig(start, _text(version), PAGE_ENTRIES)
        answer = await self.call(master, Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header.encode())
        page = await asyncio.to_thread(SubscriptionGroupTable.decode, answer.body)
        count = len(page.subscription_group_table)
        if so_far is not None and so_far.data_version == page.data_version:
            page.subscription_group_table = so_far.subscription_group_table | page.subscription_group_table
            page.forbidden_table = so_far.forbidden_table | page.forbidden_table
        return page, count, GetAllGroupConfigResponse.decode(answer.ext).total_group_num

    async def _table(self, master: str, ask_page: AskPage[T]) -> T:
        """All pages of a table; one that changes meanwhile is begun anew. Old masters give everything at once."""
        for _ in range(TABLE_TRIES):
            table, got, total = await ask_page(master, 0, None, None)
            while total is not None and got < total:
                page, count, total = await ask_page(master, got, table.data_version, table)
                if page.data_version != table.data_version or count == 0:
                    break
                table, got = page, got + count
            else:
                return table
        raise RequestError(Response.SYSTEM_ERROR, f"the table of {master} changed in each of {TABLE_TRIES} readings")

    async def _request_modes(self, master: str) -> None:
        answer = await self.call(master, Request.GET_ALL_MESSAGE_REQUEST_MODE)
        self._tables.request_modes.follow(MessageRequestModeTable.decode(answer.body))
        self._tables.files.save_soon(REQUEST_MODES)

    async def _offsets(self, master: str) -> Act:
        answer = await self.call(master, Request.GET_ALL_CONSUMER_OFFSET)
        table = await asyncio.to_thread(ConsumerOffsetTable.decode, answer.body)
        return lambda: self._tables.offsets.follow(table)

    async def _delays(self, master: str) -> Act:
        table = DelayOffsetTable.decode((await self.call(master, Request.GET_ALL_DELAY_OFFSET)).body)

        def take_over() -> None:
            if table.offset_table != self._tables.delays.offsets:
                self._tables.delays.follow(table)
                self._tables.files.save_soon(DELAYS)

        return take_over

    async def _timer_counts(self, master: str) -> None:
        counts = TimerCounts.decode((await self.call(master, Request.GET_TIMER_METRICS)).body)
        if counts.data_version != self._tables.timer_counts.version:
            self._tables.timer_counts.follow(counts)
            self._tables.files.save_soon(TIMER_COUNTS)

    async def _timer_progress(self, master: str) -> Act:
        progress = TimerProgress.unpacked((await self.call(master, Request.GET_TIMER_CHECK_POINT)).body)
        return partial(self._note, progress)

    def _note(self, progress: TimerProgress) -> None:
        if self._noting is None:
            self._noting = asyncio.get_running_loop().create_task(self._note_in_thread(progress))

    async def _note_in_thread(self, progress: TimerProgress) -> None:
        try:
            await asyncio.to_thread(following.note, self._store.disk, self._store.options, progress)
        except (OSError, DiskFull) as error:
            logger.error("fail to save progress of timers error=%s", error)
        finally:
            self._noting = None

    async def _end_of_log(self, master: str) -> int:
        """0, which waits for nothing, at a master that cannot say."""
        try:
            answer = await self.call(master, Request.GET_BROKER_HA_STATUS)
            return HaStatus.decode(answer.body).master_commit_log_max_offset
        except CometError as error:
            self._log_failures.warning("fail to ask for end of log master=%s cause=%s", master, error)
            return 0

    async def call(self, address: str, code: int, ext: dict[str, str] | None = None) -> Command:
        """Ask another broker at its fast port; RequestError if it refuses."""
        answer = await self._client.call(fast_address(address), new_request(code, ext or {}), CALL_S)
        if address == self.master:
            self.heard_s = self._clock.monotonic()
        if answer.code != Response.SUCCESS:
            raise RequestError(answer.code, f"{REQUEST_NAMES[code]} was refused: {answer.remark}")
        return answer


def fast_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - FAST_PORT_BELOW}"


def _text(version: DataVersion | None) -> str | None:
    return None if version is None else version.encode().decode()
