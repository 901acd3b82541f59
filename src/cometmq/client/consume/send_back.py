"""Back to the broker: messages that shall come again later, or never.

    request 36 to the master that stored the message: it goes through the delay topic to %RETRY%group, or to %DLQ%group
    if that fails, a copy is sent to %RETRY%group
    if that fails, too, the caller tries the handler again by itself

The client's own producer sends the copies, and the replies of handlers.
"""

import logging
from typing import TYPE_CHECKING, Final

from cometmq.client.codecs import bytes_codec
from cometmq.client.messages import sent_to
from cometmq.client.options import ProducerOptions
from cometmq.client.produce.outgoing import DELAY_LEVEL_MAX
from cometmq.client.produce.producer import Producer
from cometmq.errors import CometError
from cometmq.names import retry_topic
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.compression import decompress
from cometmq.wire.headers import SendMessageBack
from cometmq.wire.record import failure
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.failure import CAUSE_CHARS_MAX
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property
from cometmq.wire.record.sysflag import COMPRESSED

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance
    from cometmq.client.consume.failures import Cause

logger = logging.getLogger(__name__)

INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
RETRIES_MAX: Final = 16
FIRST_RETRY_LEVEL: Final = 3
BACK_LIMIT_S: Final = 5.0


async def inner_producer(instance: "Instance") -> Producer[bytes]:
    """The one that a client has for itself, started when it is first needed."""
    known = instance.producers.get(INNER_GROUP)
    if isinstance(known, Producer):
        return known
    producer = Producer(INNER_GROUP, bytes_codec, ProducerOptions(), instance=instance)
    await producer.start()
    return producer


async def send_back(
    instance: "Instance",
    group: str,
    queue: MessageQueue,
    message: StoredMessage,
    delay_level: int,
    retries_max: int | None,
    cause: "Cause | None",
) -> bool:
    """True when a broker has it. `delay_level` 0 lets the broker decide, -1 makes it a dead letter."""
    most = RETRIES_MAX if retries_max is None else retries_max
    properties = wire_properties.decode(message.properties)
    header = SendMessageBack(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=properties.get(Property.UNIQ_KEY),
        origin_topic=sent_to(message.topic, properties),
        unit_mode=instance.options.unit_mode,
        max_reconsume_times=most,
        failure_cause=cause.text[:CAUSE_CHARS_MAX] if cause is not None else None,
        failure_type=cause.kind if cause is not None else None,
        failure_consumer=instance.client_id if cause is not None else None,
    )
    try:
        address = await instance.master(instance.host(queue), queue.topic)
        command = instance.request(Request.CONSUMER_SEND_MSG_BACK, header.encode())
        await instance.ask(address, command, BACK_LIMIT_S)
    except CometError as error:
        logger.warning(
            "fail send back group=%s topic=%s broker=%s queue=%d offset=%d cause=%s",
            group, queue.topic, queue.broker_name, queue.queue_id, message.queue_offset, error,
        )  # fmt: skip
        return await send_copy(instance, group, message, message.reconsume_times + 1, most, cause)
    return True


async def send_copy(
    instance: "Instance",
    group: str,
    message: StoredMessage,
    reconsume_times: int,
    retries_max: int,
    cause: "Cause | None",
) -> bool:
    """A copy to the group's retry topic, as one that was tried so often; beyond the limit the broker makes it a dead
    letter."""
    properties = wire_properties.decode(message.properties)
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, properties.get(Property.UNIQ_KEY, ""))
    if not properties[Property.ORIGIN_MESSAGE_ID]:
        del properties[Property.ORIGIN_MESSAGE_ID]
    properties[Property.RETRY_TOPIC] = sent_to(message.topic, properties)
    properties[Property.RECONSUME_TIME] = str(reconsume_times)
    properties[Property.MAX_RECONSUME_TIMES] = str(retries_max)
    properties[Property.DELAY] = str(min(FIRST_RETRY_LEVEL + message.reconsume_times, DELAY_LEVEL_MAX))
    properties.pop(Property.TRAN_MSG, None)
    if cause is not None:
        failure.mark(properties, cause.text, cause.kind, instance.client_id, instance.clock.now_ms())
    try:
        body = decompress(message.body, message.sys_flag) if message.sys_flag & COMPRESSED else message.body
        producer = await inner_producer(instance)
        await producer.send_record(retry_topic(group), body, properties, flag=message.flag)
    except CometError as error:
        logger.warning("fail retry copy group=%s offset=%d cause=%s", group, message.queue_offset, error)
        return False
    return True
