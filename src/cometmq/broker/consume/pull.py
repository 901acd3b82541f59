"""Pulling: the checks, the read, the answer or the wait.

    checks       broker, group and topic may be read; the queue exists; the subscription is known and not too old
    read         a pending reset answers at once, else the store is asked with the group's filter: tags are tested in
                 the queue before a record is touched, properties (SQL92) on the record
    commit       an offset that rides on the request is saved on the first pass only
    nothing new  with permission to wait the request is parked (long_poll.py) and read again when woken

Answers with codes 0, 19, 20 and 21 always say where to go on. The remark is the store's word for what it found.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from cometmq import names
from cometmq.broker import filters, sql
from cometmq.broker.consume.context import PullContext
from cometmq.broker.consume.long_poll import Waiter
from cometmq.broker.entry import Entry
from cometmq.broker.filters import Subscription
from cometmq.broker.forbidden import Forbidden
from cometmq.broker.matching import PropertyMatch, record_passes, tag_passes
from cometmq.broker.sql import Properties, SqlError
from cometmq.broker.tables.groups import SYSTEM_GROUP_PREFIX
from cometmq.broker.tables.sessions import BROADCASTING, CONSUME_ACTIVELY
from cometmq.broker.tables.system_topics import PERM_READ
from cometmq.clock import uptime_ms
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.store.queues.reading import GET_BYTES_MAX
from cometmq.store.results import GetResult, GetStatus
from cometmq.wire.codes import PullFlag, Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import PullMessage
from cometmq.wire.record.properties import Property

if TYPE_CHECKING:
    from cometmq.wire.bodies import SubscriptionGroupConfig, TopicConfig

logger = logging.getLogger(__name__)

FLAG_COMMIT: Final = PullFlag.COMMIT
FLAG_SUSPEND: Final = PullFlag.SUSPEND
FLAG_SUBSCRIPTION: Final = PullFlag.SUBSCRIPTION
FLAG_CLASS_FILTER: Final = PullFlag.CLASS_FILTER
# A bulk reader takes as much as it asks for, up to these two bounds.
FLAG_BULK: Final = PullFlag.BULK
BULK_COUNT_MAX: Final = 4096
BULK_BYTES_MAX: Final = 4 * 1024 * 1024

# Some old clients send nanoseconds; none waits longer than 30 s for its answer.
HOLD_MS_MAX: Final = 60_000
# What one pull may ask for. The store returns at most 32 as it is set, but looks through as many entries as asked for.
COUNT_MAX: Final = 10_000
# Parts of expressions that one pull may test, at up to 0.2 us each: others want to be served too. What it has not
# looked through then is left to the next pull.
PARTS_MAX: Final = 50_000
# The same for retried messages, each of which may have another expression.
RETRY_UNITS_MAX: Final = 100

# A parked pull without texts; a compiled expression, by the character of its text.
WAITER_BYTES: Final = 1_200
FILTER_CHAR_BYTES: Final = 60

_NAMES: Final = {
    GetStatus.FOUND: "FOUND",
    GetStatus.NO_MATCHED_MESSAGE: "NO_MATCHED_MESSAGE",
    GetStatus.MESSAGE_WAS_REMOVING: "MESSAGE_WAS_REMOVING",
    GetStatus.OFFSET_FOUND_NULL: "OFFSET_FOUND_NULL",
    GetStatus.OFFSET_OVERFLOW_BADLY: "OFFSET_OVERFLOW_BADLY",
    GetStatus.OFFSET_OVERFLOW_ONE: "OFFSET_OVERFLOW_ONE",
    GetStatus.OFFSET_TOO_SMALL: "OFFSET_TOO_SMALL",
    GetStatus.NO_MATCHED_LOGIC_QUEUE: "NO_MATCHED_LOGIC_QUEUE",
    GetStatus.NO_MESSAGE_IN_QUEUE: "NO_MESSAGE_IN_QUEUE",
    GetStatus.OFFSET_RESET: "OFFSET_RESET",
}
_CODES: Final = {
    GetStatus.FOUND: Response.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: Response.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: Response.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: Response.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: Response.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: Response.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: Response.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: Response.PULL_OFFSET_MOVED,
}


class Pull:
    """One pull that passed the checks, as often as it is read."""

    __slots__ = ("connection", "request", "header", "topic", "group", "subscription", "wants", "units_max")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PullMessage,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: Subscription,
        wants: PropertyMatch | None,
        units_max: int,
    ) -> None:
        self.connection = connection
        self.request = request
        self.header = header
        self.topic = topic
        self.group = group
        self.subscription = subscription
        self.wants = wants
        self.units_max = units_max


def pull_message(context: PullContext, connection: Connection, request: Command) -> Command | None:
    """Requests 11 and 361."""
    try:
        pull = _check(context, connection, request, PullMessage.decode(request.ext))
    except Forbidden as forbidden:
        return _answer_to(request, forbidden)
    return _read(context, pull, True, 0)


def pull_again(context: PullContext, waiter: Waiter) -> None:
    """A parked pull was woken: checked and read once more, and answered whatever comes of it."""
    request = waiter.request
    try:
        answer = _read(context, _check(context, waiter.connection, request, waiter.header), False, 0)
    except Exception as error:
        answer = _answer_to(request, error)
    if answer is not None:
        waiter.connection.answer(request, answer)


def _go_on(context: PullContext, pull: Pull, first_pass: bool, cold: GetResult) -> None:
    """What a cold read needs is in memory now."""
    try:
        answer = _read(context, pull, first_pass, cold.cold_units)
    except Exception as error:
        answer = _answer_to(pull.request, error)
    if answer is not None:
        pull.connection.answer(pull.request, answer)


def _answer_to(request: Command, error: Exception) -> Command:
    """The answer to a pull that failed."""
    if isinstance(error, Forbidden):
        return reply(request, error.code, error.remark, {"forbiddenType": str(error.rule)})
    if isinstance(error, RequestError):
        return reply(request, error.code, error.remark)
    logger.error("fail pull code=%d opaque=%d", request.code, request.opaque, exc_info=error)
    return reply(request, Response.SYSTEM_ERROR, f"{type(error).__name__}: {error}"[:512])


# Checks


def _check(context: PullContext, connection: Connection, request: Command, header: PullMessage) -> Pull:
    settings = context.config()
    if not settings.readable:
        raise Forbidden(f"broker {settings.broker_name} is not readable (brokerPermission)", Forbidden.BROKER)
    if request.code == Request.LITE_PULL_MESSAGE and not settings.lite_pull_enabled:
        raise Forbidden("lite pull is switched off (litePullMessageEnable)", Forbidden.BROKER)
    group = context.groups.find(header.consumer_group)
    if group is None:
        raise RequestError(
            Response.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"consumer group {header.consumer_group} does not exist: create it, or set "
            "autoCreateSubscriptionGroup=true",
        )
    if not group.consume_enable:
        raise Forbidden(
            f"consumer group {header.consumer_group} may not consume (consumeEnable=false): enable the group",
            Forbidden.GROUP,
        )
    topic = context.topics.get(header.topic)
    if topic is None:
        raise RequestError(
            Response.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist on broker {settings.broker_name}"
        )
    if not topic.perm & PERM_READ:
        raise Forbidden(f"topic {header.topic} may not be read (perm {topic.perm})", Forbidden.TOPIC)
    if not 0 <= header.queue_id < topic.read_queue_nums:
        raise RequestError(
            Response.INVALID_PARAMETER,
            f"queue {header.queue_id} does not exist: topic {header.topic} has {topic.read_queue_nums} read queues",
        )
    subscription = _subscription(context, header, group)
    if header.sys_flag & FLAG_CLASS_FILTER:
        subscription = filters.parse(header.topic, filters.ALL, None, header.sub_version)
    wants: PropertyMatch | None = None
    units_max = 0
    if not subscription.is_tag:
        expression = _expression(context, header, subscription)
        wants = expression.matches
        units_max = max(1, PARTS_MAX // expression.parts)
    elif settings.filter_retry_messages and header.topic.startswith(names.RETRY_PREFIX):
        wants = partial(_origin_wants, context, header.consumer_group)
        units_max = RETRY_UNITS_MAX
    if settings.reject_pull_consumers:
        _check_connected(context, connection, header.consumer_group)
    return Pull(connection, request, header, topic, group, subscription, wants, units_max)


def _subscription(context: PullContext, header: PullMessage, group: SubscriptionGroupConfig) -> Subscription:
    if header.sys_flag & FLAG_SUBSCRIPTION:
        subscription = filters.parse(header.topic, header.subscription, header.expression_type, header.sub_version)
        context.consumers.note_pull(header.consumer_group, header.topic, subscription, uptime_ms(context.clock))
        return subscription
    members = context.consumers.get(header.consumer_group)
    if members is None:
        raise RequestError(
            Response.SUBSCRIPTION_NOT_EXIST,
            f"consumer group {header.consumer_group} has no member here: its heartbeat has not arrived yet",
        )
    if members.message_model == BROADCASTING and not group.consume_broadcast_enable:
        raise Forbidden(
            f"consumer group {header.consumer_group} may not consume by broadcasting (consumeBroadcastEnable=false)",
            Forbidden.BROADCAST,
        )
    if not context.groups.may_read(header.consumer_group, header.topic):
        raise Forbidden(
            f"consumer group {header.consumer_group} is barred from topic {header.topic}",
            Forbidden.GROUP_TOPIC,
        )
    known = members.subscriptions.get(header.topic)
    if known is None:
        raise RequestError(
            Response.SUBSCRIPTION_NOT_EXIST,
            f"consumer group {header.consumer_group} does not subscribe to {header.topic}: all its members must "
            "subscribe to the same topics",
        )
    if known.version < header.sub_version:
        raise RequestError(
            Response.SUBSCRIPTION_NOT_LATEST,
            f"the subscription of {header.consumer_group} to {header.topic} is of version {known.version}, the pull "
            f"wants {header.sub_version}: the heartbeat with it has not arrived yet",
        )
    return known


def _expression(context: PullContext, header: PullMessage, subscription: Subscription) -> sql.Filter:
    """What a subscription by properties was compiled to: from the heartbeat, or from the text that the pull carries."""
    data = subscription.data
    fault = filters.fault_of(data.expression_type, context.config().property_filter_enabled)
    if fault is not None:
        raise RequestError(fault[0], fault[1])
    if header.sys_flag & FLAG_SUBSCRIPTION:
        try:
            return sql.compile_filter(data.sub_string or "")
        except SqlError as error:
            raise RequestError(Response.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    table = context.property_filters
    known = table.find(header.consumer_group, header.topic)
    if known is None:
        table.put(header.consumer_group, data)  # the heartbeat came before property filters were switched on
        known = table.find(header.consumer_group, header.topic)
    if known is None or known.compiled is None:
        raise RequestError(
            Response.FILTER_DATA_NOT_EXIST,
            f"consumer group {header.consumer_group} has no filter for {header.topic}: its expression "
            f"{(data.sub_string or '')[:80]!r} may be wrong",
        )
    if known.version < header.sub_version:
        raise RequestError(
            Response.FILTER_DATA_NOT_LATEST,
            f"the filter of {header.consumer_group} for {header.topic} is of version {known.version}, the pull wants "
            f"{header.sub_version}: the heartbeat with it has not arrived yet",
        )
    return known.compiled


def _origin_wants(context: PullContext, group: str, properties: Properties) -> bool:
    """A retried message is tested by the filter for the topic that it comes from, if there is one."""
    known = context.property_filters.find(group, properties.get(Property.RETRY_TOPIC) or "")
    return known is None or known.compiled is None or known.compiled.matches(properties)


def _check_connected(context: PullContext, connection: Connection, name: str) -> None:
    """With rejectPullConsumerEnable a group that pulls by itself is served only where it sends its heartbeats."""
    if name.startswith(SYSTEM_GROUP_PREFIX):
        return
    members = context.consumers.get(name)
    if members is None or (members.consume_type == CONSUME_ACTIVELY and connection not in members.members):
        raise RequestError(
            Response.SUBSCRIPTION_NOT_EXIST,
            f"consumer group {name} is not connected here, and pull consumers are refused (rejectPullConsumerEnable)",
        )


# Reading


def _read(context: PullContext, pull: Pull, first_pass: bool, loaded_units: int) -> Command | None:
    header = pull.header
    reset = context.offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
    if reset is not None:
        # An offset that rides on this pull is from before the reset.
        low, high = context.store.queue_bounds(header.topic, header.queue_id)
        return _answer(context, pull, GetResult(GetStatus.OFFSET_RESET, reset, low, high), False)
    matches = pull.subscription.matches
    wants = pull.wants
    bulk = header.sys_flag & FLAG_BULK != 0
    found = context.store.get(
        header.topic,
        header.queue_id,
        header.queue_offset,
        min(header.max_msg_nums, BULK_COUNT_MAX if bulk else COUNT_MAX),
        min(header.max_msg_bytes or BULK_BYTES_MAX, BULK_BYTES_MAX) if bulk else GET_BYTES_MAX,
        unit_filter=None if matches is None else partial(tag_passes, matches),
        record_filter=None if wants is None else partial(record_passes, wants),
        loaded_units=loaded_units,
        units_max=pull.units_max,
        bulk=bulk,
    )
    if found is None:
        return reply(pull.request, Response.SYSTEM_ERROR, "the store is closed or cannot be read")
    if found.cold:
        context.background.load_pages(found, partial(_go_on, context, pull, first_pass, found))
        return None
    if first_pass and header.sys_flag & FLAG_COMMIT:
        context.offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset, pull.connection.peer_text
        )
    return _answer(context, pull, found, first_pass)


def _answer(context: PullContext, pull: Pull, result: GetResult, may_hold: bool) -> Command | None:
    header = pull.header
    status = result.status
    if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        code = Response.PULL_NOT_FOUND if header.queue_offset == 0 else Response.PULL_OFFSET_MOVED
    else:
        code = _CODES[status]
    suggested = _suggested_broker(context, pull.group, result)
    if context.store.is_replica:
        code, suggested = _as_replica(context, pull.group, result, code, suggested)
    context.offsets.pull_commit(header.consumer_group, header.topic, header.queue_id, result.next_offset)
    if code == Response.PULL_NOT_FOUND and may_hold and header.sys_flag & FLAG_SUSPEND and _may_park(context, pull):
        _hold(context, pull)
        return None
    ext = {
        "suggestWhichBrokerId": str(suggested),
        "nextBeginOffset": str(result.next_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
        "topicSysFlag": str(pull.topic.topic_sys_flag),
        "groupSysFlag": str(pull.group.group_sys_flag),
    }
    if status != GetStatus.FOUND:
        context.stats.missed(header.consumer_group, header.topic)
        return reply(pull.request, code, _NAMES[status], ext)
    context.stats.got(header.consumer_group, header.topic, header.queue_id, result)
    return reply(pull.request, code, "FOUND", ext, b"".join(result.slices))


def _may_park(context: PullContext, pull: Pull) -> bool:
    wants = pull.wants
    if wants is None or not pull.header.sys_flag & FLAG_SUBSCRIPTION:
        return True
    return context.longpoll.may_filter(pull.connection.peer[0], wants, len(pull.header.subscription or ""))


def _hold(context: PullContext, pull: Pull) -> None:
    header = pull.header
    settings = context.config()
    hold_ms = settings.short_polling_ms
    if settings.long_polling:
        hold_ms = max(0, min(header.suspend_timeout_ms, HOLD_MS_MAX))
    deadline_ms = uptime_ms(context.clock) + hold_ms
    pull.connection.kept_bytes = _kept_bytes(pull)
    if not pull.connection.endpoint.hooks:
        pull.request.ext = {}  # all of it is in `header`; it is half of what a parked pull costs
    context.longpoll.hold(
        Waiter(pull.connection, pull.request, header, pull.subscription.matches, deadline_ms, pull.wants)
    )


def _kept_bytes(pull: Pull) -> int:
    """What a parked pull takes besides its request: waiter, header and texts, and what it carries of its own."""
    header = pull.header
    kept = WAITER_BYTES + len(header.consumer_group) + len(header.topic)
    if header.sys_flag & FLAG_SUBSCRIPTION:
        kept += pull.subscription.kept_bytes
        if not pull.subscription.is_tag:
            kept += FILTER_CHAR_BYTES * len(header.subscription or "")
    return kept


def _suggested_broker(context: PullContext, group: SubscriptionGroupConfig, result: GetResult) -> int:
    if not context.config().slave_read_enabled:
        return 0
    return group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id


def _as_replica(
    context: PullContext, group: SubscriptionGroupConfig, result: GetResult, code: int, suggested: int
) -> tuple[int, int]:
    """Whom the master has not sent goes to it, at once if there is nothing. While it is gone a reader waits for what is
    not here: only the master knows whether it is anywhere."""
    if not context.is_master_alive():
        moved = code == Response.PULL_OFFSET_MOVED and not context.store.options.offset_check_on_slave
        return (Response.PULL_NOT_FOUND if moved else code), suggested
    if code == Response.PULL_OFFSET_MOVED and not context.store.options.offset_check_on_slave:
        return Response.PULL_RETRY_IMMEDIATELY, group.broker_id
    if result.suggest_slave:
        return code, suggested
    return (code if result.status == GetStatus.FOUND else Response.PULL_RETRY_IMMEDIATELY), 0


HANDLERS: Final = {
    Request.PULL_MESSAGE: Entry(pull_message, "pull"),
    Request.LITE_PULL_MESSAGE: Entry(pull_message, "lite pull"),
}
