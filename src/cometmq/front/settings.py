"""What a client's settings become: the server fills in what it decides."""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration

from cometmq.front.backend import Backend
from cometmq.front.checks import group_of, topic_of
from cometmq.front.refusals import Refused
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.bodies.groups import RETRY_DELAYS_MS
from cometmq.wire.grpc import messages_pb2 as pb

TOPICS_MAX: Final = 1_000
RECEIVE_BATCH: Final = 32
PRODUCER_FIRST_MS: Final = 10
PRODUCER_LAST_MS: Final = 1_000
BACKOFF_MULTIPLIER: Final = 2.0


def complete(backend: Backend, given: pb.Settings) -> pb.Settings:
    """Raises Refused for what cannot be served."""
    kept = pb.Settings()
    kept.CopyFrom(given)
    limits = backend.limits()
    kept.metric.on = False
    if given.HasField("publishing"):
        if len(given.publishing.topics) > TOPICS_MAX:
            raise Refused(pb.BAD_REQUEST, f"{len(given.publishing.topics)} topics, at most {TOPICS_MAX} are allowed")
        for topic in given.publishing.topics:
            topic_of(topic)
        kept.client_type = pb.PRODUCER
        kept.publishing.max_body_size = limits.body_bytes_max
        kept.publishing.validate_message_type = limits.check_message_types
        policy = kept.backoff_policy
        policy.max_attempts = limits.producer_attempts_max
        policy.exponential_backoff.initial.CopyFrom(duration_of(PRODUCER_FIRST_MS))
        policy.exponential_backoff.max.CopyFrom(duration_of(PRODUCER_LAST_MS))
        policy.exponential_backoff.multiplier = BACKOFF_MULTIPLIER
        return kept
    if given.client_type not in (pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER):
        name = pb.ClientType.Name(given.client_type) if given.client_type in pb.ClientType.values() else "unknown"
        raise Refused(pb.UNRECOGNIZED_CLIENT_TYPE, f"clients of type {name} are not served")
    if len(given.subscription.subscriptions) > TOPICS_MAX:
        count = len(given.subscription.subscriptions)
        raise Refused(pb.BAD_REQUEST, f"{count} subscriptions, at most {TOPICS_MAX} are allowed")
    for entry in given.subscription.subscriptions:
        topic_of(entry.topic)
    group = backend.group(group_of(given.subscription.group))
    if group is None:
        text = f"consumer group {given.subscription.group.name} does not exist: create it"
        raise Refused(pb.ILLEGAL_CONSUMER_GROUP, text)
    subscription = kept.subscription
    subscription.fifo = group.consume_message_orderly
    subscription.receive_batch_size = RECEIVE_BATCH
    subscription.long_polling_timeout.CopyFrom(duration_of(limits.poll_ms_max))
    kept.backoff_policy.CopyFrom(_policy(group))
    return kept


def _policy(group: SubscriptionGroupConfig) -> pb.RetryPolicy:
    policy = pb.RetryPolicy(max_attempts=group.retry_max_times + 1)
    given = group.group_retry_policy
    exponential, customized = given.exponential_retry_policy, given.customized_retry_policy
    if given.type == "EXPONENTIAL":
        initial, most, multiplier = 5_000, 7_200_000, 2
        if exponential is not None:
            initial, most, multiplier = exponential.initial, exponential.max, exponential.multiplier
        policy.exponential_backoff.initial.CopyFrom(duration_of(initial))
        policy.exponential_backoff.max.CopyFrom(duration_of(most))
        policy.exponential_backoff.multiplier = float(multiplier)
    else:
        delays = customized.next if customized is not None and customized.next else RETRY_DELAYS_MS
        policy.customized_backoff.next.extend(duration_of(it) for it in delays)
    return policy


def duration_of(ms: int) -> Duration:
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
