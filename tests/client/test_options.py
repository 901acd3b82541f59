"""Defaults, and that every one of them is a keyword argument."""

import dataclasses
import inspect
from typing import Any, get_type_hints

import pytest

from cometmq.broker.admin.settings import load
from cometmq.client.client import Client
from cometmq.client.options import (
    MIB,
    ClientKeywords,
    ClientOptions,
    ConsumerKeywords,
    ConsumerOptions,
    ProducerKeywords,
    ProducerOptions,
    StartFrom,
)
from cometmq.errors import ConfigError
from cometmq.names import AUTO_CREATE_TOPIC


@pytest.mark.mission("SK-05")
def test_the_defaults_of_a_producer_are_rocketmqs() -> None:
    producer = Client("127.0.0.1:1").producer("pg")
    options = producer.options
    assert options.template_topic_queues == 4  # defaultTopicQueueNums
    assert options.timeout == 3.0  # sendMsgTimeout
    assert options.compress_over == 4096  # compressMsgBodyOverHowmuch
    assert (options.compression, options.compression_level) == ("zlib", 5)
    assert (options.retries, options.retries_soon) == (2, 2)  # retryTimesWhenSendFailed, ...AsyncFailed
    assert options.retry_unconfirmed is False  # retryAnotherBrokerWhenNotStoreOK
    assert options.max_message_bytes == 4 * 1024 * 1024  # maxMessageSize
    assert options.template_topic == AUTO_CREATE_TOPIC == "TBW102"  # createTopicKey
    assert options.latency_faults is False  # sendLatencyEnable
    assert options.retry_codes == {17, 14, 1, 2, 16, 204, 205, 1500}  # retryResponseCodes
    assert (options.batch_delay, options.batch_bytes, options.buffer_bytes) == (0.01, 32_768, 32 * 1024 * 1024)
    assert (options.max_in_flight, options.max_in_flight_bytes) == (1024, 100 * 1024 * 1024)
    client = producer.instance.options
    assert client.vip_channel is False  # vipChannelEnabled
    assert (client.call_timeout, client.route_refresh, client.heartbeat_interval) == (3.0, 30.0, 30.0)


@pytest.mark.mission("SK-05", "SK-06")
@pytest.mark.parametrize(
    ("options", "keywords"),
    [(ProducerOptions, ProducerKeywords), (ConsumerOptions, ConsumerKeywords), (ClientOptions, ClientKeywords)],
)
def test_every_option_is_a_keyword_argument(options: Any, keywords: Any) -> None:
    fields = {field.name for field in dataclasses.fields(options)} - {"namesrv"}
    assert set(get_type_hints(keywords)) == fields
    hints = get_type_hints(options)
    assert {name: hints[name] for name in fields} == get_type_hints(keywords)


@pytest.mark.mission("SK-05")
def test_keywords_reach_the_producer() -> None:
    given: dict[str, Any] = {
        it.name: _other(it.default) for it in dataclasses.fields(ProducerOptions) if it.name != "compression"
    }
    producer = Client("127.0.0.1:1", vip_channel=True).producer("pg", **given)
    assert {name: getattr(producer.options, name) for name in given} == given
    assert producer.instance.options.vip_channel is True
    assert "options" in inspect.signature(Client.producer).parameters


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, frozenset):
        return frozenset({99})
    if isinstance(value, tuple):
        return ("T",)
    return "Other" if isinstance(value, str) else value


@pytest.mark.mission("SK-06")
def test_the_defaults_of_a_consumer_are_rocketmqs() -> None:
    consumer = Client("127.0.0.1:1").push_consumer("cg")
    options = consumer.options
    assert options.concurrency == 20  # consumeThreadMin, consumeThreadMax
    assert options.prefetch == 1000  # pullThresholdForQueue
    assert options.prefetch_bytes == 100 * MIB  # pullThresholdSizeForQueue
    assert (options.prefetch_topic, options.prefetch_topic_bytes) == (None, None)  # pullThreshold...ForTopic -1
    assert options.prefetch_span == 2000  # consumeConcurrentlyMaxSpan
    assert (options.pull_interval, options.pull_batch, options.pull_batch_bytes) == (0, 32, 262_144)
    assert options.consume_timeout == 15 * 60  # consumeTimeout
    assert options.post_subscription is False  # postSubscriptionWhenPull
    assert (options.poll_hold, options.poll_timeout) == (15.0, 30.0)
    assert (options.lock_timeout, options.lock_interval, options.lock_expiry) == (1.0, 20.0, 30.0)
    assert (options.rebalance_interval, options.rebalance_retry, options.first_pull_delay) == (20.0, 1.0, 0.5)
    assert (options.commit_interval, options.error_delay, options.suspend) == (5.0, 1.0, 1.0)
    assert options.max_retries is None  # maxReconsumeTimes -1
    assert (options.start, options.broadcast, options.allocation.name) == (StartFrom.LAST, False, "AVG")
    assert consumer.instance.options.idle_timeout == 120.0  # clientChannelMaxIdleTimeSeconds
    assert consumer.instance.options.close_on_timeout is True  # clientCloseSocketIfTimeout
    assert (consumer.instance.options.calls_max, consumer.instance.options.oneway_max) == (65_535, 65_535)

    async def handle(message: object) -> None: ...

    consumer.subscribe("T", handle)  # consumeMessageBatchMaxSize 1: one, and not in a list


@pytest.mark.mission("SK-06")
def test_keywords_reach_the_consumer() -> None:
    given: dict[str, Any] = {
        it.name: _other(it.default)
        for it in dataclasses.fields(ConsumerOptions)
        if it.name not in ("start", "allocation", "executor", "offsets_dir", "prefetch_topic", "prefetch_topic_bytes")
    }
    given["suspend"] = 2.0
    given["bad_records"] = "block"
    consumer = Client("127.0.0.1:1").push_consumer("cg", **given)
    assert {name: getattr(consumer.options, name) for name in given} == given
    assert Client("127.0.0.1:1").consumer("cg", "T", **given).options == consumer.options


@pytest.mark.mission("SK-06")
def test_the_transport_keys_of_a_broker_conf_are_read_without_error() -> None:
    keys = {
        "serverWorkerThreads": "8",
        "serverSelectorThreads": "3",
        "serverCallbackExecutorThreads": "0",
        "serverOnewaySemaphoreValue": "256",
        "serverAsyncSemaphoreValue": "64",
        "serverSocketSndBufSize": "0",
        "serverSocketRcvBufSize": "0",
        "serverChannelMaxIdleTimeSeconds": "120",
        "clientOnewaySemaphoreValue": "65535",
        "clientAsyncSemaphoreValue": "65535",
        "clientChannelMaxIdleTimeSeconds": "120",
        "clientCloseSocketIfTimeout": "true",
    }
    shown = load(keys).texts()
    assert {key: shown[key] for key in keys} == keys


@pytest.mark.mission("CC-01")
@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("concurrency", 0, "1 to"),
        ("prefetch", 0, "65535"),
        ("prefetch", 65_536, "65535"),
        ("prefetch_bytes", 1025 * MIB, str(1024 * MIB)),
        ("prefetch_span", 65_536, "65535"),
        ("prefetch_topic", 0, "6553500"),
        ("prefetch_topic_bytes", 1, "1048576"),
        ("pull_interval", 66, "65.535"),
        ("pull_batch", 1025, "1024"),
        ("suspend", 31, "30"),
        ("max_retries", -1, "0 to"),
        ("poll_hold", 30.0, "poll_timeout"),
        ("lock_expiry", 60, "59"),
        ("lock_interval", 30.0, "lock_expiry"),
        ("consume_timeout", 0, "more than 0"),
        ("commit_interval", 0, "more than 0"),
        ("drain_timeout", -1, "0 to"),
        ("first_pull_delay", -1, "0 to"),
        ("rebalance_retry", 21, "0 to 20"),
    ],
)
def test_consumer_options_out_of_range_name_the_limit(name: str, value: object, limit: str) -> None:
    with pytest.raises(ConfigError, match=name) as refusal:
        ConsumerOptions(**{name: value})  # type: ignore[arg-type]
    assert limit in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("retries", -1),
        ("batch_delay", 31),
        ("batch_bytes", 3 << 20),
        ("compression", "gzip"),
        ("compression_level", 10),
        ("max_in_flight", 0),
        ("template_topic_queues", 0),
    ],
)
def test_options_out_of_range_say_what_is_allowed(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        ProducerOptions(**{name: value})  # type: ignore[arg-type]


def test_keys_of_an_account_belong_together_and_are_not_shown() -> None:
    with pytest.raises(ConfigError, match="secret_key"):
        ClientOptions(access_key="ak")
    with pytest.raises(ConfigError, match="namespace"):
        ClientOptions(namespace="a", namespace_v2="b")
    with pytest.raises(ConfigError, match="call_timeout"):
        ClientOptions(call_timeout=0)
    assert "hidden" not in repr(ClientOptions(access_key="ak", secret_key="hidden", security_token="hidden"))
