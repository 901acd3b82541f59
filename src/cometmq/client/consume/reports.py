"""What a consumer tells the tools that ask: how it is doing (request 307, with settings by RocketMQ's names), and what
its handler says to one message (309)."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from cometmq.client.consume.delivery import is_fine
from cometmq.client.consume.handlers import Refused
from cometmq.client.consume.outcomes import EXCEPTION, NO_RESULT, Outcome, Verdict
from cometmq.client.consume.process_queue import Held, ProcessQueue
from cometmq.client.messages import sent_to
from cometmq.client.options import MIB, ConsumerOptions
from cometmq.wire.bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo, MessageQueue
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message import StoredMessage

if TYPE_CHECKING:
    from cometmq.client.consume.group_member import Member

CLIENT_VERSION: Final = "V5_5_0"


def running_info(member: "Member") -> ConsumerRunningInfo:
    now_s, now_ms = member.clock.monotonic(), member.clock.now_ms()
    table = {
        queue: held.info(member.offsets.read(queue) or 0, now_s, now_ms) for queue, held in member.queues.items()
    }
    return ConsumerRunningInfo(
        mq_table=table,
        properties=_properties(member),
        status_table={topic: member.delivery.figures.status(topic, now_s) for topic in member.subscribed},
        subscription_set=list(member.subscribed.values()),
    )


async def consume_directly(member: "Member", message: StoredMessage, broker_name: str) -> ConsumeMessageDirectlyResult:
    """Run the handler of a message now; nothing is committed and nothing sent back."""
    topic = sent_to(message.topic, wire_properties.decode(message.properties))
    lane = member.lanes.get(topic)
    if lane is None:
        return ConsumeMessageDirectlyResult(
            consume_result="CR_THROW_EXCEPTION", remark=f"no handler of topic {topic} in group {member.shown_group}"
        )
    began_s = member.clock.monotonic()
    queue = ProcessQueue(MessageQueue(broker_name, message.queue_id, message.topic), began_s)
    try:
        verdict = await member.call(lane.handler, queue, [Held(message)])
    except Refused as error:
        verdict = Verdict(EXCEPTION, Outcome.LATER, error=error)
    return ConsumeMessageDirectlyResult(
        auto_commit=lane.handler.auto_commit,
        consume_result=_direct_result(verdict),
        order=lane.handler.ordered,
        remark=repr(verdict.error) if verdict.error is not None else None,
        spent_time_ms=round((member.clock.monotonic() - began_s) * 1000),
    )


def _direct_result(verdict: Verdict) -> str:
    if verdict.label == EXCEPTION:
        return "CR_THROW_EXCEPTION"
    if verdict.label == NO_RESULT:
        return "CR_RETURN_NULL"
    if verdict.outcome is Outcome.ROLLBACK:
        return "CR_ROLLBACK"
    if verdict.outcome is Outcome.COMMIT:
        return "CR_COMMIT"
    return "CR_SUCCESS" if is_fine(verdict) else "CR_LATER"


def _properties(member: "Member") -> dict[str, str]:
    options = member.options
    properties = {
        "consumerGroup": member.group,
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in member.instance.nameservers.addresses),
        "PROP_CONSUME_TYPE": member.consume_type,
        "PROP_CLIENT_VERSION": CLIENT_VERSION,
        "PROP_CONSUMEORDERLY": _text(any(member.is_ordered(topic) for topic in member.subscribed)),
        "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
        "PROP_CONSUMER_START_TIMESTAMP": str(member.started_ms),
        "messageModel": member.message_model,
        "consumeFromWhere": member.start_from,
        "allocateMessageQueueStrategy": options.allocation.name,
        **{java: _text(value) for java, value in _java_settings(options).items()},
    }
    if isinstance(options.start, datetime):
        properties["consumeTimestamp"] = options.start.astimezone().strftime("%Y%m%d%H%M%S")
    return properties


def _java_settings(options: ConsumerOptions) -> dict[str, object]:
    return {
        "consumeThreadMin": options.concurrency,
        "consumeThreadMax": options.concurrency,
        "consumeConcurrentlyMaxSpan": options.prefetch_span,
        "pullThresholdForQueue": options.prefetch,
        "pullThresholdSizeForQueue": options.prefetch_bytes // MIB,
        "pullThresholdForTopic": -1 if options.prefetch_topic is None else options.prefetch_topic,
        "pullThresholdSizeForTopic": (
            -1 if options.prefetch_topic_bytes is None else options.prefetch_topic_bytes // MIB
        ),
        "pullInterval": round(options.pull_interval * 1000),
        "pullBatchSize": options.pull_batch,
        "pullBatchSizeInBytes": options.pull_batch_bytes,
        "postSubscriptionWhenPull": options.post_subscription,
        "maxReconsumeTimes": -1 if options.max_retries is None else options.max_retries,
        "suspendCurrentQueueTimeMillis": round(options.suspend * 1000),
        "consumeTimeout": round(options.consume_timeout / 60),
        "awaitTerminationMillisWhenShutdown": round(options.drain_timeout * 1000),
        "persistConsumerOffsetInterval": round(options.commit_interval * 1000),
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
