"""Defaults, and that every one of them is a keyword argument."""

import dataclasses
import inspect
from typing import Any, get_type_hints

import pytest

from cometmq.client.client import Client
from cometmq.client.options import ClientKeywords, ClientOptions, ProducerKeywords, ProducerOptions
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


@pytest.mark.mission("SK-05")
@pytest.mark.parametrize(
    ("options", "keywords"), [(ProducerOptions, ProducerKeywords), (ClientOptions, ClientKeywords)]
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
