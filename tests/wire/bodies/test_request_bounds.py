"""What a server takes in one body: refused before it is decoded, with count and limit."""

import zlib

import pytest

from cometmq.errors import WireError
from cometmq.wire.bodies import HeartbeatData, LockBatchRequest, RegisterBrokerBody, TopicRoute
from cometmq.wire.bodies.base import REQUEST_BYTES_MAX
from cometmq.wire.bodies.register import TOPICS_MAX

CONFIG = b'{"attributes":{"+a":"}\\""},"perm":6,"readQueueNums":4,"topicName":"t","writeQueueNums":4}'


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b'{"clientID":"' + b"x" * REQUEST_BYTES_MAX + b'"}', "bytes"),
        (b'{"consumerDataSet":[' + b"{}," * 5_000 + b"{}]}", "objects"),
        (b'{"a":[' + b"[]," * 10_001 + b"[]]}", "lists"),
        (b'{"a":[' + b"1," * 100_001 + b"1]}", "entries"),
    ],
)
def test_a_body_that_is_too_much_is_refused(body: bytes, what: str) -> None:
    with pytest.raises(WireError, match=f"{what}, at most .* are allowed in one request"):
        HeartbeatData.decode_request(body)
    assert HeartbeatData.decode(body).without_sub is False, "who reads its own files has no such bound"


def test_thousands_of_queues_are_taken() -> None:
    body = b",".join(b'{"brokerName":"b","queueId":%d,"topic":"t"}' % number for number in range(4_000))
    assert len(LockBatchRequest.decode_request(b'{"mqSet":[' + body + b"]}").mq_set) == 4_000


def large(*entries: bytes) -> bytes:
    pad = b'"filterServerList":[],'
    table = b",".join(entries)
    return b"{" + pad + b'"topicConfigSerializeWrapper":{"dataVersion":{"counter":7},"topicConfigTable":{%b}}}' % table


def test_a_large_registration_is_read_like_a_small_one() -> None:
    entries = [b'"topic-%d": %b' % (number, CONFIG) for number in range(5_000)]
    body = large(*entries)
    assert RegisterBrokerBody.decode_large(body) == RegisterBrokerBody.decode(body)
    assert RegisterBrokerBody.decode_large(large()) == RegisterBrokerBody.decode(large())


@pytest.mark.parametrize("entry", [b'"a":0', b'"a":[]', b'"a":{"b":{"c":{}}}', b'"a":{', b'"a":' + CONFIG[:-1]])
def test_a_large_registration_with_something_else_is_refused(entry: bytes) -> None:
    entries = [b'"topic-%d":%b' % (number, CONFIG) for number in range(5_000)]
    with pytest.raises(WireError):
        RegisterBrokerBody.decode_large(large(*entries, entry))


def test_a_registration_of_too_many_topics_is_refused() -> None:
    with pytest.raises(WireError, match=f"more than {TOPICS_MAX} topics"):
        RegisterBrokerBody.decode_large(large(*(b'"%d":{}' % number for number in range(TOPICS_MAX + 1))))


def test_a_registration_that_inflates_to_too_much_is_refused_early() -> None:
    with pytest.raises(WireError, match="inflates to more than"):
        RegisterBrokerBody.decode_large(zlib.compress(bytes(100 << 20)), compressed=True)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b'{"brokerDatas":[{"brokerName":"../x","brokerAddrs":{0:"h:1"}}]}', "broker name"),
        (b'{"brokerDatas":[{"brokerName":"a","cluster":"a/b","brokerAddrs":{0:"h:1"}}]}', "cluster name"),
        (b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{0:"h\\n:1"}}]}', "address"),
        (b'{"queueDatas":[{"brokerName":"a","writeQueueNums":2147483647}]}', "2147483647 queues"),
        (b'{"queueDatas":[{"brokerName":"a","readQueueNums":-1}]}', "-1 queues"),
        (b'{"orderTopicConf":"a:999999999"}', "over 262144 queues"),
        (b'{"orderTopicConf":"a:' + b"9" * 5_000 + b'"}', "over 262144 queues"),
        (b'{"brokerDatas":[' + b"{}," * 10_001 + b"{}]}", "at most 10000"),
    ],
)
def test_a_route_that_nobody_can_use_is_refused(body: bytes, word: str) -> None:
    with pytest.raises(WireError, match=word):
        TopicRoute.decode_answer(body)
