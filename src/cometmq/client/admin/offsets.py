"""How far groups are: lag, and moving them.

    plan    where each queue's offset would go: Move(queue, before, after)         changes nothing
    reset   the plan, carried out:
            CometMQ and RocketMQ 5     the broker moves the group at its next pull, members online or not
            older, members online      the broker tells the members (by time only)
            older, nobody online       the offset is committed
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, TypeAlias

from cometmq.client.admin.calls import each
from cometmq.client.admin.groups import GroupAdmin
from cometmq.client.admin.results import BrokerMember, Lag, Move, ProgressSpan
from cometmq.client.admin.topics import TopicAdmin
from cometmq.client.cluster.queue_client import QueueClient
from cometmq.errors import BrokerError, ConfigError, NotFound
from cometmq.names import RETRY_PREFIX
from cometmq.wire import java_properties
from cometmq.wire.bodies import ConsumeStats, ConsumeTimeSpans, MessageQueue, SubscriptionGroupTable
from cometmq.wire.codes import Request, Response
from cometmq.wire.headers import (
    CloneGroupOffset,
    GetConsumerConnections,
    GetConsumeStats,
    QueryConsumeTimeSpan,
    ResetOffset,
)

Place: TypeAlias = datetime | int | Literal["earliest", "latest"] | Mapping[MessageQueue, int]

NEWEST_MS = -1
# The setting with which a broker moves a group by itself; RocketMQ has it from 5.0 on.
MOVES_ITSELF = "useServerSideResetOffset"


class OffsetAdmin(TopicAdmin, GroupAdmin):
    async def group_lag(
        self, group: str, topic: str | None = None, *, owners: bool = False
    ) -> dict[MessageQueue, Lag]:
        """Every queue that a group consumes, of one topic or all; empty if it never committed anything.

        With `owners` every member that is online is asked which queues it has.
        """
        header = GetConsumeStats(self.wrap(group), self.wrap(topic) if topic is not None else None)
        responses = await each(await self._stat_masters(topic), lambda master: self._stats(master, header))
        owned = await self._owners(group) if owners else {}
        lags: dict[MessageQueue, Lag] = {}
        for stats in responses:
            for queue, progress in stats.offset_table.items():
                lags[self.shown(queue)] = Lag(
                    progress.consumer_offset,
                    progress.broker_offset,
                    progress.last_timestamp,
                    owned.get(queue),
                    progress.pull_offset,
                )
        return dict(sorted(lags.items(), key=lambda pair: (pair[0].topic, pair[0])))

    async def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """What every queue of a topic would start from; -1 where nothing is committed. NoRoute."""
        queues = await self.topic_queues(topic)
        offsets = await each(queues, lambda queue: self._committed(self.wrap(group), queue))
        return dict(zip(queues, offsets, strict=True))

    async def plan_offsets(
        self, group: str, topic: str, *, to: Place, queues: Iterable[MessageQueue] | None = None
    ) -> list[Move]:
        """Where `reset_offsets` would move the group, clipped to what is there. NoRoute, ConfigError."""
        chosen = list(queues) if queues is not None else await self.topic_queues(topic)
        if isinstance(to, Mapping):
            unknown = set(to) - set(chosen)
            if unknown:
                raise ConfigError(f"{len(unknown)} queues are not of topic {topic}: {sorted(unknown)[:3]}")
            chosen = [queue for queue in chosen if queue in to]

        async def move(queue: MessageQueue) -> Move:
            before = await self._committed(self.wrap(group), queue)
            return Move(queue, before, await self._target(queue, to))

        return await each(chosen, move)

    async def reset_offsets(
        self, group: str, topic: str, *, to: Place, queues: Iterable[MessageQueue] | None = None
    ) -> list[Move]:
        """Move a group: to a time (the first message stored then or later), an offset, 'earliest', 'latest', or an
        offset per queue. Members that are online go on from there by themselves."""
        moves = await self.plan_offsets(group, topic, to=to, queues=queues)
        by_broker: dict[str, list[Move]] = {}
        for move in moves:
            by_broker.setdefault(await self._home(move.queue), []).append(move)
        await each(by_broker.items(), lambda item: self._apply(item[0], self.wrap(group), item[1], to))
        return moves

    async def clone_offsets(self, source: str, target: str, topic: str | None = None) -> list[Move]:
        """Let one group go on where another is, in one topic or all that the other consumes."""
        topics = [topic] if topic is not None else await self.group_topics(source)
        moves: list[Move] = []
        for name in topics:
            if name.startswith(RETRY_PREFIX):
                continue
            before = await self.committed_offsets(target, name)
            header = CloneGroupOffset(self.wrap(source), self.wrap(target), self.wrap(name), offline=True)
            await each(
                await self.masters_of(self.wrap(name)),
                lambda master, header=header: self.ask(master.address, Request.CLONE_GROUP_OFFSET, header),  # type: ignore[misc]
            )
            after = await self.committed_offsets(target, name)
            moves += [Move(queue, before[queue], after[queue]) for queue in after]
        if not topics:
            raise NotFound(f"group {source} has no offsets to clone: it never consumed anything")
        return moves

    async def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write one offset as a consumer would; members that are online overwrite it soon."""
        await self._queues.commit(self.wrap(group), self._wired(queue), offset)

    async def progress_spans(self, group: str, topic: str) -> list[ProgressSpan]:
        """How far the group is in time. NoRoute."""
        name = self.wrap(topic)
        header = QueryConsumeTimeSpan(name, self.wrap(group))
        responses = await each(
            await self.masters_of(name),
            lambda master: self.ask(master.address, Request.QUERY_CONSUME_TIME_SPAN, header),
        )
        return [
            ProgressSpan(
                self.shown(span.message_queue or MessageQueue()),
                span.min_time_stamp,
                span.max_time_stamp,
                span.consume_time_stamp,
                span.delay_time,
            )
            for response in responses
            for span in ConsumeTimeSpans.decode(response.body).consume_time_span_set
        ]

    # Queues

    @property
    def _queues(self) -> QueueClient:
        return QueueClient(self.instance)

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that can be read. NoRoute."""
        route = await self.instance.refresh_route(self.wrap(topic))
        return [self.shown(queue) for queue in route.subscribe]

    async def earliest_offset(self, queue: MessageQueue) -> int:
        return await self._queues.begin(self._wired(queue))

    async def latest_offset(self, queue: MessageQueue) -> int:
        """The offset after the last message."""
        return await self._queues.end(self._wired(queue))

    async def offset_at(self, queue: MessageQueue, at: datetime) -> int:
        """Of the first message that was stored then or later; the end if there is none."""
        return await self._queues.at(self._wired(queue), at)

    async def _home(self, queue: MessageQueue) -> str:
        """The address of the broker that has a queue."""
        return await self._queues.home(self._wired(queue))

    def _wired(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(queue.broker_name, queue.queue_id, self.wrap(queue.topic))

    async def _committed(self, group: str, queue: MessageQueue) -> int:
        offset = await self._queues.committed(group, self._wired(queue))
        return -1 if offset is None else offset

    async def _target(self, queue: MessageQueue, to: Place) -> int:
        if isinstance(to, datetime):
            return await self.offset_at(queue, to)
        if to == "earliest":
            return await self.earliest_offset(queue)
        if to == "latest":
            return await self.latest_offset(queue)
        wanted = to[queue] if isinstance(to, Mapping) else to
        if not isinstance(wanted, int):
            raise ConfigError(f"to is {to!r}: give a datetime, an offset, 'earliest', 'latest' or offsets by queue")
        low, high = await self.earliest_offset(queue), await self.latest_offset(queue)
        return min(max(wanted, low), high)

    async def _apply(self, address: str, group: str, moves: list[Move], to: Place) -> None:
        """What one broker has to do."""
        config = java_properties.parse((await self.ask(address, Request.GET_BROKER_CONFIG)).body)
        if config.get(MOVES_ITSELF) == "true" and await self._is_known(address, group):
            await each(moves, lambda move: self._move(address, group, move))
        elif await self._is_online(address, group):
            await self._tell_members(address, group, moves, to)
        else:
            await each(moves, lambda move: self.commit_offset(self.strip(group), move.queue, move.after))

    async def _move(self, address: str, group: str, move: Move) -> None:
        queue = self._wired(move.queue)
        header = ResetOffset(queue.topic, group, 0, is_force=True, queue_id=queue.queue_id, offset=move.after)
        await self.ask(address, Request.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def _tell_members(self, address: str, group: str, moves: list[Move], to: Place) -> None:
        """By time, and all queues of the topic together: more these brokers cannot."""
        topic = self.wrap(moves[0].queue.topic)
        broker = moves[0].queue.broker_name
        here = {queue for queue in await self.topic_queues(moves[0].queue.topic) if queue.broker_name == broker}
        is_timed = to in ("earliest", "latest") or isinstance(to, datetime)
        if not is_timed or {move.queue for move in moves} != here:
            raise ConfigError(
                f"members of group {self.strip(group)} are online at broker {broker}, which then moves "
                f"whole topics by time only: stop them first, or set {MOVES_ITSELF}=true there (RocketMQ 5)"
            )
        moment_ms = time_ms(to) if isinstance(to, datetime) else NEWEST_MS if to == "latest" else 0
        header = ResetOffset(topic, group, moment_ms, is_force=True)
        await self.ask(address, Request.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def _is_known(self, address: str, group: str) -> bool:
        """A broker moves groups that it has, and lets others be made by their first commit."""
        response = await self.ask(address, Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return group in SubscriptionGroupTable.decode(response.body).subscription_group_table

    async def _is_online(self, address: str, group: str) -> bool:
        try:
            await self.ask(address, Request.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnections(group))
        except BrokerError as error:
            if error.code == Response.CONSUMER_NOT_ONLINE:
                return False
            raise
        return True

    async def _stat_masters(self, topic: str | None) -> list[BrokerMember]:
        return await (self.masters() if topic is None else self.masters_of(self.wrap(topic)))

    async def _stats(self, master: BrokerMember, header: GetConsumeStats) -> ConsumeStats:
        try:
            response = await self.ask(master.address, Request.GET_CONSUME_STATS, header)
        except BrokerError as error:
            if error.code in (Response.TOPIC_NOT_EXIST, Response.SUBSCRIPTION_GROUP_NOT_EXIST):
                return ConsumeStats()
            raise
        return ConsumeStats.decode(response.body)

    async def _owners(self, group: str) -> dict[MessageQueue, str]:
        """Which member has which queue (by wire name). Members that do not answer own nothing."""
        try:
            members = (await self.group_connections(group)).connections
        except NotFound:
            return {}
        owners: dict[MessageQueue, str] = {}
        for member in members:
            try:
                state = await self.consumer_state(group, member.client_id)
            except NotFound:
                continue
            owners.update(dict.fromkeys(state.queues, member.client_id))
        return owners


def time_ms(at: datetime) -> int:
    """As Python reads it: a time without zone is local."""
    return int(at.timestamp() * 1000)
