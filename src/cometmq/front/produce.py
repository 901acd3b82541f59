"""Sends, the ends of transactions, and recalls.

    SendMessage       checks, the queue, then the broker's ordinary send; the producer's group is the topic
    EndTransaction    tells the broker, and does not wait for it
    RecallMessage     the broker's recall

Several messages of one request are sent one after the other and have an entry each; RocketMQ stores them as one batch
with one entry. The first message that cannot be refuses the whole request before anything is sent.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from cometmq.errors import WireError
from cometmq.front import checks
from cometmq.front.backend import BrokerQueues, Limits, Topic
from cometmq.front.call import Call
from cometmq.front.deliver import LITE_TOPIC, type_of
from cometmq.front.halves import Place
from cometmq.front.refusals import Refused, code_of, status
from cometmq.names import DLQ_PREFIX, RETRY_PREFIX
from cometmq.wire.codes import Request, Response, Version
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.headers import EndTransaction, RecallMessage
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.properties import Property, encode_text
from cometmq.wire.record.sysflag import COMPRESSED, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

PERM_WRITE: Final = 2
MESSAGES_MAX: Final = 1_000
ENDS: Final = {pb.COMMIT: TRANSACTION_COMMIT, pb.ROLLBACK: TRANSACTION_ROLLBACK}
DELAY_TYPES: Final = ("DELAY", "MIXED")
_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = (1 << 64) - 1


def send_message(call: Call, request: pb.SendMessageRequest) -> None:
    messages = request.messages
    if not messages or len(messages) > MESSAGES_MAX:
        text = f"the request has {len(messages)} messages, 1 to {MESSAGES_MAX} are allowed"
        raise Refused(pb.MESSAGE_CORRUPTED, text)
    name = checks.topic_of(messages[0].topic)
    desk = call.desk
    limits = desk.backend.limits()
    now_ms = desk.backend.now_ms()
    topic = desk.backend.topic(name)
    prepared: list[tuple[dict[str, str], pb.Message]] = []
    for message in messages:
        if message.topic.name != name:
            raise Refused(pb.MESSAGE_CORRUPTED, "the request has messages of several topics")
        prepared.append((_properties(message, name, limits, now_ms), message))
    if topic is None:
        # RocketMQ: 40014, because an unknown topic has an unknown type.
        raise Refused(pb.TOPIC_NOT_FOUND, f"topic {name} does not exist: create it")
    is_free = name.startswith((RETRY_PREFIX, DLQ_PREFIX)) or not limits.check_message_types
    if not is_free and topic.message_type != "MIXED":
        for properties, _ in prepared:
            kind = type_of(properties)
            if kind != topic.message_type:
                text = f"topic {name} takes messages of type {topic.message_type}, this one is {kind}"
                raise Refused(pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
    queues = [it for it in topic.brokers if it.perm & PERM_WRITE and it.write > 0]
    if not queues:
        raise Refused(pb.FORBIDDEN, f"topic {name} has no queue that may be written")
    sends = [_send(call, name, queues, properties, message, len(prepared)) for properties, message in prepared]
    if len(sends) == 1:
        call.ask(call.check(sends[0]), partial(_sent, broker=sends[0].ext["n"]))
        return
    for command in sends:
        call.check(command)
    _send_next(call, sends, [])


def _send(
    call: Call, name: str, queues: list[BrokerQueues], properties: dict[str, str], message: pb.Message, count: int
) -> Command:
    system = message.system_properties
    broker, queue_id = _queue(name, queues, properties if count == 1 else {})
    sys_flag = COMPRESSED if system.body_encoding == pb.GZIP else 0
    if Property.TRAN_MSG in properties:
        sys_flag |= TRANSACTION_PREPARED
    try:
        text = encode_text(properties)
    except WireError as error:
        raise Refused(pb.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from None
    born = system.born_timestamp
    ext = {
        "a": name,
        "b": name,
        "c": "",
        "d": "0",
        "e": str(queue_id),
        "f": str(sys_flag),
        "g": str(born.seconds * 1000 + born.nanos // 1_000_000),
        "h": "0",
        "i": text,
        "j": str(system.delivery_attempt),
        "k": "false",
        "m": "false",
        "n": broker,
    }
    return Command(Request.SEND_MESSAGE_V2, 0, Version.V5_5_0, 0, 0, None, ext, message.body, 0)


def _queue(name: str, queues: list[BrokerQueues], properties: dict[str, str]) -> tuple[str, int]:
    """By message group or lite topic; else any."""
    key = properties.get(Property.SHARDING_KEY) or properties.get(LITE_TOPIC)
    if len(queues) == 1:
        only = queues[0]
        number = consistent(key, only.write) if key else random.randrange(only.write)  # noqa: S311 - spreads load
        return only.broker, number
    places = [(it.broker, number) for it in sorted(queues, key=_name) for number in range(it.write)]
    if key:
        return places[consistent(key, len(places))]
    return random.choice(places)  # noqa: S311 - spreads load


def _name(queues: BrokerQueues) -> str:
    return queues.broker


def consistent(key: str, buckets: int) -> int:
    """The bucket of a key: jump consistent hash of Java's hash of the text, as RocketMQ's fronts choose."""
    state = java_string_hash(key) & _MASK
    bucket, following = 0, 0
    while following < buckets:
        bucket = following
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((bucket + 1) * (float(1 << 31) / float((state >> 33) + 1)))
    return bucket


# One message


def _properties(message: pb.Message, topic: str, limits: Limits, now_ms: int) -> dict[str, str]:
    """What is stored with a message. Raises Refused for what may not be."""
    system = message.system_properties
    size = len(message.body)
    if size == 0:
        raise Refused(pb.MESSAGE_BODY_EMPTY, "the message has no body")
    if size > limits.body_bytes_max > 0:
        text = f"the body has {size} bytes, at most {limits.body_bytes_max} are allowed (maxMessageSize)"
        raise Refused(pb.MESSAGE_BODY_TOO_LARGE, text)
    properties: dict[str, str] = {}
    length = 0
    user = message.user_properties
    if user:
        if len(user) > checks.USER_PROPERTIES_MAX:
            text = f"the message has {len(user)} properties, at most {checks.USER_PROPERTIES_MAX} are allowed"
            raise Refused(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
        for name, value in user.items():
            checks.check_user_property(name, value)
            length += len(name.encode()) + len(value.encode())
            properties[name] = value
    if system.HasField("tag"):
        tag = system.tag
        checks.check_tag(tag)
        length += len(tag.encode())
        properties[Property.TAGS] = tag
    if system.keys:
        for key in system.keys:
            checks.check_key(key)
        keys = " ".join(system.keys)
        length += len(keys.encode())
        properties[Property.KEYS] = keys
    if length > checks.PROPERTIES_BYTES_MAX:
        text = f"properties, tag and keys have {length} bytes, at most {checks.PROPERTIES_BYTES_MAX} are allowed"
        raise Refused(pb.MESSAGE_PROPERTIES_TOO_LARGE, text)
    message_id = system.message_id
    if not message_id.strip():
        raise Refused(pb.ILLEGAL_MESSAGE_ID, "the message has no id")
    properties[Property.UNIQ_KEY] = message_id
    properties[Property.PGROUP] = topic
    properties[Property.RECONSUME_TIME] = str(system.delivery_attempt)
    born = system.born_timestamp
    properties[Property.BORN_TIMESTAMP] = str(born.seconds * 1000 + born.nanos // 1_000_000)
    if system.born_host:
        properties[Property.BORN_HOST] = system.born_host
    if system.message_type == pb.TRANSACTION or system.HasField("orphaned_transaction_recovery_duration"):
        _add_transaction(system, properties)
    if system.HasField("delivery_timestamp"):
        at = system.delivery_timestamp
        deliver_ms = at.seconds * 1000 + at.nanos // 1_000_000
        if deliver_ms - now_ms > limits.delay_ms_max > 0:
            text = f"the message is due in {deliver_ms - now_ms} ms, at most {limits.delay_ms_max} are allowed"
            raise Refused(pb.ILLEGAL_DELIVERY_TIME, text)
        properties[Property.TIMER_DELIVER_MS] = str(deliver_ms)
    if system.HasField("message_group"):
        checks.check_message_group(system.message_group)
        properties[Property.SHARDING_KEY] = system.message_group
    if system.HasField("priority"):
        properties[Property.PRIORITY] = str(system.priority)
    if system.HasField("lite_topic"):
        raise Refused(pb.ILLEGAL_LITE_TOPIC, "lite topics are not built")
    if system.HasField("trace_context"):
        properties[Property.TRACE_CONTEXT] = system.trace_context
    for value in (message_id, system.born_host, system.trace_context):
        if checks.has_control(value):
            raise Refused(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, "id, born host or trace has a control character in it")
    return properties


def _add_transaction(system: pb.SystemProperties, properties: dict[str, str]) -> None:
    if system.message_type == pb.TRANSACTION:
        properties[Property.TRAN_MSG] = "true"
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if seconds > checks.RECOVERY_S_MAX:
            text = f"the recovery time is {seconds} s, at most {checks.RECOVERY_S_MAX} are allowed"
            raise Refused(pb.BAD_REQUEST, text)
        properties[Property.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)


# Answers


def _sent(call: Call, response: Command, *, broker: str) -> None:
    entry = _entry(call, response, 0, broker)
    call.answer(pb.SendMessageResponse(status=entry.status, entries=[entry]))


def _send_next(call: Call, sends: list[Command], done: list[pb.SendResultEntry]) -> None:
    if len(done) < len(sends):
        call.ask(sends[len(done)], partial(_one_sent, sends=sends, done=done))
        return
    codes = {entry.status.code for entry in done}
    whole = done[0].status if len(codes) == 1 else status(pb.MULTIPLE_RESULTS)
    call.answer(pb.SendMessageResponse(status=whole, entries=done))


def _one_sent(call: Call, response: Command, *, sends: list[Command], done: list[pb.SendResultEntry]) -> None:
    done.append(_entry(call, response, len(done), sends[len(done)].ext["n"]))
    _send_next(call, sends, done)


def _entry(call: Call, response: Command, number: int, broker: str) -> pb.SendResultEntry:
    """Of one message. A half is remembered for its end."""
    ext = response.ext
    if response.code != Response.SUCCESS:
        return pb.SendResultEntry(status=status(code_of(response.code), response.remark or ""))
    transaction_id = ext.get("transactionId", "")
    message: pb.Message = call.request.messages[number]
    system = message.system_properties
    entry = pb.SendResultEntry(
        status=status(pb.OK),
        message_id=system.message_id,
        transaction_id=transaction_id,
        offset=int(ext.get("queueOffset", "0")),
    )
    handle = ext.get("recallHandle")
    if handle:
        entry.recall_handle = handle
    if system.message_type == pb.TRANSACTION:
        place = decode_offset_id(ext.get("msgId", "")).physical_offset
        call.desk.halves.put(message.topic.name, transaction_id, Place(broker, entry.offset, place, False))
    return entry


# Transactions and recalls


def end_transaction(call: Call, request: pb.EndTransactionRequest) -> None:
    topic = checks.topic_of(request.topic)
    if not request.transaction_id.strip():
        raise Refused(pb.INVALID_TRANSACTION_ID, "the transaction id is blank")
    call.check(new_request(Request.SEND_MESSAGE, {"topic": topic}))
    place = call.desk.halves.take(topic, request.transaction_id)
    if place is None:
        text = f"transaction {request.transaction_id[:80]} is not known: it has ended, or will be asked for"
        raise Refused(pb.INTERNAL_SERVER_ERROR, text)
    header = EndTransaction(
        producer_group=topic,
        tran_state_table_offset=place.queue_offset,
        commit_log_offset=place.physical_offset,
        commit_or_rollback=ENDS.get(request.resolution, 0),
        msg_id=request.message_id,
        transaction_id=request.transaction_id,
        from_transaction_check=request.source == pb.SOURCE_SERVER_CHECK,
        topic=topic,
        broker_name=place.broker or None,
    )
    command = call.check(new_request(Request.END_TRANSACTION, header.encode()))
    command.version = Version.V5_5_0
    call.desk.link_of(call.connection).ask(command, call.desk.ignore)
    call.answer(pb.EndTransactionResponse(status=status(pb.OK)))


def recall_message(call: Call, request: pb.RecallMessageRequest) -> None:
    name = checks.topic_of(request.topic)
    topic: Topic | None = call.desk.backend.topic(name)
    if topic is None:
        raise Refused(pb.TOPIC_NOT_FOUND, f"topic {name} does not exist: create it")
    if topic.message_type not in DELAY_TYPES:
        text = f"topic {name} takes messages of type {topic.message_type}: only delayed ones are recalled"
        raise Refused(pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
    command = new_request(Request.RECALL_MESSAGE, RecallMessage(name, request.recall_handle, name).encode())
    call.ask(call.check(command), _recalled)


def _recalled(call: Call, response: Command) -> None:
    if response.code != Response.SUCCESS:
        raise Refused(code_of(response.code), response.remark or "")
    call.answer(pb.RecallMessageResponse(status=status(pb.OK), message_id=response.ext.get("msgId", "")))
