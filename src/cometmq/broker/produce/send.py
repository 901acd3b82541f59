"""Sending: SEND_MESSAGE in both spellings, and batches.

    checks           accept time, permission, name, closed topics, topic (made on demand), queue number
    priority         a message with a priority goes to the queue of that number, or to the last one
    retry topics     a consumer that sends its failed message itself: too many tries go to the dead letters
    properties       region, trace switch and cluster are added, a unique id if there is none
    settled          a topic or group that is not in its file yet: until it is (settling.py)
    put              diverted to the schedule or timer topic if delayed; then into the log
    answer           at once, or when disk and replicas have kept their promise

Every answer carries region and trace switch. Codes 0, 10, 11 and 12 mean that the message is stored, and carry its
ids. A one-way send is stored and counted like any other and never answered.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from cometmq import names
from cometmq.auth.signature import ACCESS_KEY
from cometmq.broker import retries
from cometmq.broker.entry import Entry
from cometmq.broker.produce.context import ProduceContext
from cometmq.broker.tables.system_topics import PERM_READ_WRITE
from cometmq.broker.tables.topics import UNIT_SUBSCRIPTION_FLAG
from cometmq.errors import RequestError, WireError
from cometmq.net.connection import Connection
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PUT_STATUS_NAMES, STORED, PutResult, PutStatus
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import SendMessage
from cometmq.wire.record.properties import Property, find, with_property, without
from cometmq.wire.record.sysflag import INNER_BATCH, MULTI_TAGS

if TYPE_CHECKING:
    from cometmq.wire.bodies import TopicConfig

UNIT_FLAG: Final = 1
MULTI_TAG: Final = "MULTI_TAG"
PRIORITY_DIGITS_MAX: Final = 9
# What a message with a priority must not have.
OTHER_KINDS: Final = (
    Property.DELAY,
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.SHARDING_KEY,
)

STATUS_CODES: Final = {
    PutStatus.OK: Response.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: Response.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: Response.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: Response.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: Response.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: Response.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: Response.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MESSAGE_ILLEGAL: Response.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: Response.SYSTEM_BUSY,
    PutStatus.LMQ_QUOTA_EXCEEDED: Response.LMQ_QUOTA_EXCEEDED,
}
# What RocketMQ's brokers call themselves when they send.
INNER_PRODUCERS: Final = "InnerProducerGroup_"


def send_message(context: ProduceContext, connection: Connection, request: Command) -> Command | None:
    """Requests 10, 310 and 320."""
    try:
        if request.code == Request.SEND_MESSAGE:
            header = SendMessage.decode(request.ext)
        else:
            header = SendMessage.decode_v2(request.ext)
        return _send(context, connection, request, header)
    except RequestError as error:
        return _refuse(context, request, error.code, error.remark)
    except WireError as error:
        return _refuse(context, request, Response.SYSTEM_ERROR, str(error))
    except Exception as error:
        if context.hooks:
            context.hooks.refused(request, Response.SYSTEM_ERROR, str(error))
        raise


def _send(context: ProduceContext, connection: Connection, request: Command, header: SendMessage) -> Command | None:
    if context.hooks:
        context.hooks.before(header, request)
    config = check_topic(context, header)
    topic = header.topic
    queue_id = header.queue_id
    if queue_id < 0:
        queue_id = random.randrange(config.write_queue_nums or 1)  # noqa: S311 - spreads load, keeps no secret
    properties = header.properties
    if "POP_CK\x01" in properties:
        properties = without(properties, Property.POP_CK)
    batch = header.batch or request.code == Request.SEND_BATCH_MESSAGE
    if context.fences.table:
        user = request.ext.get(ACCESS_KEY, "")
        if not batch:
            properties = context.fences.passed(properties, user) if "CMQ_FENCE\x01" in properties else properties
        elif b"CMQ_FENCE\x01" in request.body:
            request.body = context.fences.passed_batch(request.body, user)
    if topic.startswith(names.RETRY_PREFIX):
        if batch:
            raise RequestError(Response.MESSAGE_ILLEGAL, f"a batch cannot be sent to the retry topic {topic}")
        topic, queue_id, properties = _retry_or_dead_letter(context, header, queue_id, properties, request.version)
    if not batch and "_SYS_MSG_PRIORITY_\x01" in properties:
        queue_id, properties = _by_priority(config, topic, queue_id, properties)
    if config.attributes and not batch:
        _check_keys(config, properties)
    unique_id = find(properties, Property.UNIQ_KEY)
    if unique_id is None:
        unique_id = context.own.unique_ids.next(context.clock.now_ms())
        properties = f"UNIQ_KEY\x01{unique_id}\x02{properties}"
    message = AppendRequest(
        topic,
        queue_id,
        request.body,
        _with_marks(context, properties),
        flag=header.flag,
        sys_flag=header.sys_flag | MULTI_TAGS if config.topic_filter_type == MULTI_TAG else header.sys_flag,
        born_time_ms=header.born_timestamp,
        born_host=context.born.of(connection),
        reconsume_times=header.reconsume_times,
        # Most clients write WAIT=true into every message.
        wait="WAIT\x01false" not in properties or find(properties, Property.WAIT) != "false",
    )
    half = not batch and "TRAN_MSG\x01" in properties and _is_half(context, header, properties)
    if (context.topics.unsaved or context.groups.unsaved) and _must_settle(context, header, topic):
        act = partial(_put_settled, context, connection, request, message, queue_id, unique_id, batch, half)
        context.settling.park(act, len(request.body) + len(message.properties))
        return None
    return _put(context, connection, request, message, queue_id, unique_id, batch, half)


def _must_settle(context: ProduceContext, header: SendMessage, topic: str) -> bool:
    """A retry topic is of use to its group only."""
    group = retries.group_of(header.topic) if header.topic.startswith(names.RETRY_PREFIX) else ""
    return context.settling.holds(topic, group)


def _put_settled(
    context: ProduceContext,
    connection: Connection,
    request: Command,
    message: AppendRequest,
    queue_id: int,
    unique_id: str,
    batch: bool,
    half: bool,
    failure: str,
) -> None:
    """What is left to do when the tables are saved. `failure`: why they cannot be."""
    answer: Command | None
    try:
        context.settling.check(message.topic, failure)
        answer = _put(context, connection, request, message, queue_id, unique_id, batch, half)
    except RequestError as error:
        answer = _refuse(context, request, error.code, error.remark)
    except Exception as error:
        answer = _refuse(context, request, Response.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        connection.answer(request, answer)
        raise
    if answer is not None:
        connection.answer(request, answer)


def _put(
    context: ProduceContext,
    connection: Connection,
    request: Command,
    message: AppendRequest,
    queue_id: int,
    unique_id: str,
    batch: bool,
    half: bool,
) -> Command | None:
    """Into the log. The answer, unless disk or replicas have to keep a promise first."""
    if batch:
        result = context.store.put_batch(message)
    elif half:
        result = context.put_half(message)
    else:
        result = context.put(message)
    if context.store.must_wait and context.store.put_waiting(
        message, result, partial(_answer_later, context, connection, request, message, queue_id, unique_id, result)
    ):
        return None
    return _answer(context, request, message, queue_id, unique_id, result, result.status)


def _with_marks(context: ProduceContext, properties: str) -> str:
    """Where the message came in: region, trace switch and cluster. One that came here before has them already."""
    if "MSG_REGION\x01" in properties:
        for name in (Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER):
            properties = without(properties, name)
    if properties.endswith("\x02"):
        return properties + context.marks.properties
    return f"{properties}\x02{context.marks.properties}" if properties else context.marks.properties


def _by_priority(config: TopicConfig, topic: str, queue_id: int, properties: str) -> tuple[int, str]:
    """The queue of a message with a priority: the higher, the higher. Other kinds of messages cannot have one."""
    text = find(properties, Property.PRIORITY) or ""
    if not (text.isascii() and text.isdecimal() and len(text) <= PRIORITY_DIGITS_MAX):
        return queue_id, properties
    if _is_of_other_kind(properties):
        return queue_id, without(properties, Property.PRIORITY)
    if topic != config.topic_name:
        return queue_id, properties  # on its way to the dead letters
    return max(0, min(int(text), config.write_queue_nums - 1)), properties


def _is_of_other_kind(properties: str) -> bool:
    """Part of a transaction, delayed, or ordered."""
    if (find(properties, Property.TRAN_MSG) or "").lower() == "true":
        return True
    return any(find(properties, name) is not None for name in OTHER_KINDS)


def _check_keys(config: TopicConfig, properties: str) -> None:
    if config.attributes.get("cleanup.policy") == "COMPACTION" and find(properties, Property.KEYS) is None:
        raise RequestError(
            Response.MESSAGE_ILLEGAL, f"topic {config.topic_name} is compacted by key: set KEYS on the message"
        )


def _is_half(context: ProduceContext, header: SendMessage, properties: str) -> bool:
    """The first part of a transaction; a delayed copy for another try no longer is."""
    if (find(properties, Property.TRAN_MSG) or "").lower() != "true":
        return False
    return not (header.reconsume_times > 0 and context.delay_level_of(properties) > 0)


def _refuse(context: ProduceContext, request: Command, code: int, remark: str) -> Command:
    if context.hooks:
        context.hooks.refused(request, code, remark)
    return reply(request, code, remark, dict(context.marks.answer_ext))


def check_topic(context: ProduceContext, header: SendMessage) -> TopicConfig:
    """The configuration of the topic that may be sent to, made on demand; RequestError says why not."""
    settings = context.config()
    if settings.start_accept_send_ms and context.clock.now_ms() < settings.start_accept_send_ms:
        raise RequestError(
            Response.SYSTEM_ERROR,
            f"broker {settings.broker_name} takes messages from {settings.start_accept_send_ms} on "
            "(startAcceptSendRequestTimeStamp, ms since 1970)",
        )
    topic = header.topic
    config = context.topics.get(topic)
    if config is None:
        fault = names.topic_fault(topic)
        if fault:
            raise RequestError(Response.INVALID_PARAMETER, fault)
    elif config.order and not settings.writable:
        raise RequestError(
            Response.NO_PERMISSION,
            f"broker {settings.broker_name} is not writable (brokerPermission), and {topic} is an ordered topic",
        )
    if names.takes_no_sends(topic) and not _is_from_broker(context, header):
        raise RequestError(Response.NO_PERMISSION, f"sending to the system topic {topic} is forbidden")
    if config is None:
        config = _create_topic(context, header)
    if header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
        raise RequestError(
            Response.INVALID_PARAMETER,
            f"queue {header.queue_id} does not exist: topic {topic} has {config.read_queue_nums} read and "
            f"{config.write_queue_nums} write queues",
        )
    return config


def _is_from_broker(context: ProduceContext, header: SendMessage) -> bool:
    """A replica of RocketMQ that acts as the master of its group keeps its books of pops at another broker. Groups that
    have no such replica (enableRemoteEscape=false) take nothing of the kind."""
    is_of_pops = header.topic.startswith(f"{names.SYSTEM_PREFIX}REVIVE_LOG_")
    return is_of_pops and context.config().remote_escape_enabled and header.producer_group.startswith(INNER_PRODUCERS)


def _create_topic(context: ProduceContext, header: SendMessage) -> TopicConfig:
    topic = header.topic
    if topic.startswith(names.RETRY_PREFIX):
        retry_flag = UNIT_SUBSCRIPTION_FLAG if header.unit_mode else 0
        return context.topics.create_in_send_back(topic, 1, PERM_READ_WRITE, sys_flag=retry_flag)
    sys_flag = UNIT_FLAG if header.unit_mode else 0
    config = context.topics.create_in_send(topic, header.default_topic, header.default_topic_queue_nums, sys_flag)
    if config is None:
        raise RequestError(
            Response.TOPIC_NOT_EXIST,
            f"topic {topic} does not exist on broker {context.config().broker_name} and is not made on demand from "
            f"{header.default_topic}: create it, or set autoCreateTopicEnable=true",
        )
    return config


def _retry_or_dead_letter(
    context: ProduceContext, header: SendMessage, queue_id: int, properties: str, version: int
) -> tuple[str, int, str]:
    """Where a message that a consumer sends to its retry topic goes: topic, queue, properties."""
    name = retries.group_of(header.topic)
    group = context.groups.find(name)
    if group is None:
        raise RequestError(
            Response.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"consumer group {name} does not exist: create it, or set autoCreateSubscriptionGroup=true",
        )
    limit = retries.limit_of(group, version, header.max_reconsume_times)
    locked = context.holds_locks(name)
    target = retries.sent_to_retry_topic(name, header.reconsume_times, limit, locked)
    if target is None:
        return header.topic, queue_id, properties
    context.topics.create_in_send_back(target.topic, target.queues, PERM_READ_WRITE)
    context.stats.dead_letter(name, header.topic)
    return target.topic, 0, with_property(properties, Property.DELAY, retries.NO_DELAY)


def _answer_later(
    context: ProduceContext,
    connection: Connection,
    request: Command,
    message: AppendRequest,
    queue_id: int,
    unique_id: str,
    result: PutResult,
    status: int,
) -> None:
    connection.answer(request, _answer(context, request, message, queue_id, unique_id, result, status))


def _answer(
    context: ProduceContext,
    request: Command,
    message: AppendRequest,
    queue_id: int,
    unique_id: str,
    result: PutResult,
    status: int,
) -> Command:
    code = STATUS_CODES.get(status, Response.SYSTEM_ERROR)
    if status not in STORED:
        return _refuse(context, request, code, _remark(context, status, result))
    context.stats.sent(message.topic, message.queue_id, result.count, result.record_bytes, message.properties)
    ids = context.own.offset_ids(result)
    if context.hooks:
        context.hooks.stored(request, code, queue_id, ids, result)
    ext = {
        "queueId": str(queue_id),
        "transactionId": unique_id,
        "msgId": ids,
        "queueOffset": str(result.queue_offset),
    }
    if message.sys_flag & INNER_BATCH:
        # A producer then takes the id of the batch for the id of what it sent.
        ext["batchUniqId"] = unique_id
    if message.topic == names.TIMER_TOPIC:
        handle = context.recall_handle(message, context.config().broker_name, unique_id)
        if handle is not None:
            ext["recallHandle"] = handle
    ext.update(context.marks.answer_ext)
    return reply(request, code, None if status == PutStatus.OK else PUT_STATUS_NAMES[status], ext)


def _remark(context: ProduceContext, status: int, result: PutResult) -> str:
    if status == PutStatus.SERVICE_NOT_AVAILABLE:
        # One that waited for the disk was taken, so its result does not say why.
        return f"{result.remark or context.store.flags.refusal()}; {context.store.disk_use()}"
    if status == PutStatus.OS_PAGE_CACHE_BUSY:
        return f"[PC_SYNCHRONIZED]{result.remark}"
    return result.remark or PUT_STATUS_NAMES[status]


HANDLERS: Final = {
    Request.SEND_MESSAGE: Entry(send_message, "send"),
    Request.SEND_MESSAGE_V2: Entry(send_message, "send"),
    Request.SEND_BATCH_MESSAGE: Entry(send_message, "send"),
}
