"""Attacks on a broker's port."""

from __future__ import annotations

import base64
import contextlib
import time

from cometmq.wire.codes import Request
from cometmq.wire.command import JSON, ROCKETMQ, encode, request
from tests.attack.corpus import Target, attack
from tests.support.brokers import pull_request, send_request

# Equal modulo 2^61 - 1, which is what Python hashes integers by.
PRIME = 2**61 - 1


def colliding_keys(count: int) -> bytes:
    """Members of a JSON object whose integer keys have one hash."""
    return b",".join(b"%d:1" % (1 + PRIME * number) for number in range(count))


@attack("broker")
def heartbeat_with_colliding_integer_keys(target: Target) -> None:
    body = b'{"clientID":"x","a":{' + colliding_keys(target.size(80_000)) + b"}}"
    target.link().call(request(Request.HEART_BEAT, {}, body))


@attack("broker")
def heartbeat_with_many_groups(target: Target) -> None:
    groups = b",".join(b'{"groupName":"attack-%d","subscriptionDataSet":[]}' % i for i in range(target.size(50_000)))
    link = target.link()
    link.call(request(Request.HEART_BEAT, {}, b'{"clientID":"x","consumerDataSet":[' + groups + b"]}"))
    link.close()


@attack("broker")
def heartbeats_with_ever_new_groups(target: Target) -> None:
    """Each within the bounds, but all together one connection's; then it closes, and the broker stops."""
    link = target.link()
    for turn in range(target.size(200)):
        groups = b",".join(b'{"groupName":"a-%d-%d","subscriptionDataSet":[]}' % (turn, i) for i in range(200))
        producers = b",".join(b'{"groupName":"p-%d-%d"}' % (turn, i) for i in range(200))
        body = b'{"clientID":"x","consumerDataSet":[' + groups + b'],"producerDataSet":[' + producers + b"]}"
        link.call(request(Request.HEART_BEAT, {}, body))
    target.link().call(request(Request.HEART_BEAT, {}, body))
    link.close()


@attack("broker")
def heartbeat_with_empty_subscriptions(target: Target) -> None:
    count = target.size(1_200_000)
    link = target.link()
    for head, unit, tail in (
        (b'{"clientID":"x","consumerDataSet":[', b"{}", b"]}"),
        (b'{"clientID":"x","producerDataSet":[', b"{}", b"]}"),
        (b'{"clientID":"x","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[', b"{}", b"]}]}"),
        (b'{"clientID":"x","a":[', b"[]", b"]}"),
        (b'{"clientID":"x","a":[', b"{}", b"]}"),
    ):
        link.call(request(Request.HEART_BEAT, {}, head + (unit + b",") * count + unit + tail))


@attack("broker")
def subscriptions_with_a_megabyte_of_tags(target: Target) -> None:
    tags = [b"tag%06d" % number for number in range(target.size(640_000))]
    expression = b"||".join(tags)
    lists = b",".join(b'"%b"' % tag for tag in tags)
    link = target.link()
    for subscription in (
        b'{"topic":"HonestTopic","subString":"' + expression + b'"}',
        b'{"topic":"HonestTopic","subString":"x","tagsSet":[' + lists + b"]}",
        b'{"topic":"HonestTopic","subString":"x","codeSet":['
        + b",".join(b"%d" % (number << 16) for number in range(-32768, 32767)) + b"]}",
    ):
        body = b'{"clientID":"x","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[' + subscription + b"]}]}"
        link.call(request(Request.HEART_BEAT, {}, body))
    for number in range(20):
        text = expression[: 900 << 10].decode()
        link.call(pull_request("HonestTopic", 0, 1 << 40, group=f"g{number}", tags=text))


@attack("broker")
def locks_and_acks_by_the_hundred_thousand(target: Target) -> None:
    count = target.size(400_000)
    link = target.link()
    queues = b",".join(b'{"brokerName":"b","queueId":%d,"topic":"t"}' % number for number in range(count))
    for code in (Request.LOCK_BATCH_MQ, Request.UNLOCK_BATCH_MQ):
        link.call(request(code, {}, b'{"clientId":"c","consumerGroup":"g","mqSet":[' + queues + b"]}"))
    some = b",".join(b'{"brokerName":"b","queueId":%d,"topic":"t"}' % number for number in range(9_000))
    for turn in range(target.size(80)):
        body = b'{"clientId":"c","consumerGroup":"g%d","mqSet":[' % turn + some + b"]}"
        link.call(request(Request.LOCK_BATCH_MQ, {}, body))
    bits = base64.b64encode(b"\xff" * 65_536)
    acks = b",".join(b'{"c":"g","t":"HonestTopic","b":"%b"}' % bits for _ in range(target.size(80)))
    link.call(request(Request.BATCH_ACK_MESSAGE, {}, b'{"acks":[' + acks + b"]}"))
    acks = b",".join(b'{"c":"g","t":"HonestTopic","b":"AQ=="}' for _ in range(count))
    link.call(request(Request.BATCH_ACK_MESSAGE, {}, b'{"acks":[' + acks + b"]}"))


@attack("broker")
def topics_and_groups_by_the_list(target: Target) -> None:
    link = target.link()
    for count in (900, target.size(80_000)):
        topics = b",".join(b'{"topicName":"attack-%d"}' % number for number in range(count))
        link.call(request(Request.UPDATE_AND_CREATE_TOPIC_LIST, {}, b'{"topicConfigList":[' + topics + b"]}"))
        groups = b",".join(b'{"groupName":"attack-%d"}' % number for number in range(count))
        body = b'{"groupConfigList":[' + groups + b"]}"
        link.call(request(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body))


@attack("broker")
def settings_of_a_megabyte(target: Target) -> None:
    link = target.link()
    for text in (b"a=1\n", b"a\\\n", b"\\u0041="):
        link.call(request(Request.UPDATE_BROKER_CONFIG, {}, text * (target.size(8 << 20) // len(text))))


@attack("broker")
def headers_of_a_megabyte(target: Target) -> None:
    """Fields by the thousand in both forms, commas in a list, a name as long as a header may be."""
    long, groups = "x" * 900_000, "a," * 400_000
    link = target.link()
    for form in (JSON, ROCKETMQ):
        for command in (
            request(Request.QUERY_CORRECTION_OFFSET, {"filterGroups": groups, "compareGroup": "g", "topic": "T"}),
            request(Request.GET_MAX_OFFSET, {f"field-{number}": "1" for number in range(500)}),
            request(Request.QUERY_MESSAGE, {"topic": "HonestTopic", "key": long, "maxNum": "64"}),
            request(Request.UPDATE_AND_CREATE_TOPIC, {"topic": "T", "attributes": "+a=b," * 160_000}),
            request(Request.GET_ROUTEINFO_BY_TOPIC, {long[:32_000]: "1"}),
            send_request("HonestTopic", properties={"KEYS": "k " * 16_000}),
            pull_request(long),
            pull_request("HonestTopic", group=long),
        ):
            command.form = form
            for _ in range(target.size(16)):
                link.call(command)
    many = b",".join(b'"field-%d":"1"' % number for number in range(60_000))
    other = target.link()
    header = b'{"code":105,"extFields":{' + many + b"}}"
    other.write((len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
    other.answer()


@attack("broker")
def a_chunk_of_small_requests(target: Target) -> None:
    """One socket's worth of requests that are each a little work, from many peers in the same turn."""
    links = [target.link() for _ in range(target.size(320))]
    body = b'{"clientID":"x","producerDataSet":[' + b",".join(b'{"groupName":"p%d"}' % i for i in range(30)) + b"]}"
    for link in links:
        link.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            link.write(encode(request(Request.HEART_BEAT, {}, body)) * 200)
    for link in links:
        link.socket.settimeout(30)
        for _ in range(50):
            link.answer()


@attack("broker", growth_mib=200, enablePropertyFilter=True)
def parked_pulls_with_long_subscriptions(target: Target) -> None:
    """Each of another text, so that none can be shared; one peer, several connections."""
    for number in range(4):
        link = target.link()
        for count in range(target.size(2_400) // 4):
            tags = "||".join(f"t{number}-{count}-{tag}" for tag in range(900))
            link.send(pull_request("HonestTopic", 3, 0, group="g", tags=tags, suspend_ms=30_000))
        for count in range(target.size(2_400) // 4):
            text = f"a{count} = '{number}' OR " + " OR ".join(f"b = '{tag}'" for tag in range(300))
            link.send(
                pull_request(
                    "HonestTopic", 3, 0, group="g", tags=text, suspend_ms=30_000, expression_type="SQL92"
                )
            )
        time.sleep(0.2)


@attack("broker", growth_mib=200, pullThreadPoolQueueCapacity=2000)
def pulls_parked_until_nobody_else_can(target: Target) -> None:
    for _ in range(4):
        link = target.link()
        one = pull_request("HonestTopic", 3, 0, group="g", suspend_ms=30_000)
        for number in range(3_000):
            one.opaque = number
            link.send(one)
        time.sleep(0.1)


@attack("broker", enablePropertyFilter=True)
def filters_over_a_filled_queue(target: Target) -> None:
    sender = target.link()
    properties = {f"name-{number}": "x" * 40 for number in range(20)}
    for _ in range(target.size(16_000) // 100):
        sender.send(*(send_request("Filled", b"b", properties=properties) for _ in range(100)))
        for _ in range(100):
            sender.answer()
    expression = " OR ".join(f"name-{number % 20} = 'y{number}'".replace("-", "_") for number in range(8))
    links = [target.link() for _ in range(target.size(64))]
    for _ in range(3):
        for link in links:
            link.send(
                *(
                    pull_request("Filled", 0, 0, group="g", tags=expression, expression_type="SQL92", count=10_000)
                    for _ in range(30)
                )
            )
    for link in links:
        for _ in range(90):
            link.answer()


@attack("broker", enablePropertyFilter=True)
def expressions_that_are_hard_to_compile(target: Target) -> None:
    link = target.link()
    texts = [
        "(" * 1_900 + "a = 1" + ")" * 1_900,
        "(" * 60 + "a = 1" + ")" * 60 + " AND NOT b = 2" * 200,
        "NOT " * 900 + "a = 1",
        "a IN (" + ",".join(f"'{number}'" for number in range(600)) + ")",
        "a CONTAINS '" + "%_" * 1_900 + "'",
        "a = 1 AND " * 380 + "a = 1",
        "a BETWEEN " + "-" * 3_900 + "1 AND 2",
        "a = '" + "''" * 1_900 + "'",
        "a > " + "9" * 3_900,
        "a > 1e" + "9" * 3_900,
        "/*" * 1_900,
    ]
    for turn in range(target.size(64)):
        for text in texts:
            different = f"{text} OR b = {turn}"
            link.send(pull_request("HonestTopic", 0, 1 << 20, group="g", tags=different, expression_type="SQL92"))
    for _ in range(target.size(64) * len(texts)):
        link.answer()


@attack("broker", growth_mib=160)
def pulls_parked_by_the_ten_thousand(target: Target) -> None:
    """At the topic and queue of an honest client, so that each of its messages meets all of them."""
    for _ in range(4):
        link = target.link()
        one = pull_request("HonestTopic", 1, 0, group="g", suspend_ms=30_000, tags="never||again")
        link.write(encode(one) * (target.size(80_000) // 4))
    sender = target.link()
    for _ in range(20):
        sender.call(send_request("HonestTopic", queue_id=1, properties={"TAGS": "other"}))
    sender.call(send_request("HonestTopic", queue_id=1, properties={"TAGS": "never"}))


@attack("broker", growth_mib=160)
def pops_parked_by_the_ten_thousand(target: Target) -> None:
    for number in range(4):
        link = target.link()
        for row in range(target.size(160)):
            fields = {
                "consumerGroup": f"g-{number}-{row}", "topic": "HonestTopic", "queueId": "3", "maxMsgNums": "1",
                "invisibleTime": "60000", "pollTime": "30000", "bornTime": "0", "initMode": "0", "exp": "*",
            }  # fmt: skip
            link.write(encode(request(Request.POP_MESSAGE, fields)) * 250)
    time.sleep(1)


@attack("broker")
def messages_for_topics_of_the_broker(target: Target) -> None:
    link = target.link()
    record = b'{"t":"HonestTopic","c":"honest","q":0,"so":0,"pt":1,"it":1,"n":1000,"bn":"b"}'
    for topic in ("rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"):
        for _ in range(target.size(80)):
            answer = link.call(send_request(topic, record, properties={"TAGS": "ck"}))
            assert answer is not None
            assert answer.code == 16, answer.remark
