"""What all typed bodies have in common: leniency like Java's, and Java's form on the wire."""

import re
from typing import Any

import msgspec
import pytest

from cometmq.errors import WireError
from cometmq.wire import bodies
from cometmq.wire.bodies import (
    Body,
    Connection,
    ConsumerData,
    DataVersion,
    HeartbeatData,
    MessageQueue,
    RegisterBrokerBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRoute,
    UserInfo,
    decode_list,
    encode_list,
)
from cometmq.wire.fastjson.dialect import loads
from cometmq.wire.fastjson.writer import _write  # the form that STANDARD_FORM stands in for

CLASSES = sorted(
    (kind for kind in vars(bodies).values() if isinstance(kind, type) and issubclass(kind, Body) and kind is not Body),
    key=lambda kind: kind.__name__,
)


def ids(kind: type) -> str:
    return kind.__name__


@pytest.mark.parametrize("kind", CLASSES, ids=ids)
def test_an_empty_object_is_a_body_of_defaults(kind: type[Body]) -> None:
    assert kind.decode(b"{}") == (kind() if kind is not bodies.TopicConfigAndMapping else kind(TopicConfig()))


@pytest.mark.parametrize("kind", CLASSES, ids=ids)
def test_null_members_count_as_missing_and_unknown_ones_not_at_all(kind: type[Body]) -> None:
    nulls = ",".join(f'"{name}":null' for name in kind.__struct_encode_fields__)
    assert kind.decode(f'{{{nulls},"unheardOf":{{"a":[null,1]}}}}'.encode()) == kind.decode(b"{}")


@pytest.mark.parametrize("kind", CLASSES, ids=ids)
def test_members_are_written_in_alphabetical_order_without_nulls(kind: type[Body]) -> None:
    written = kind.decode(b"{}").encode()
    names = list(loads(written))
    assert names == sorted(names)
    assert b"null" not in written
    assert b" " not in written
    assert kind.decode(written) == kind.decode(b"{}")


@pytest.mark.parametrize("kind", CLASSES, ids=ids)
@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"5", b'"x"', b"{", b'{"a":', b"\xff", b'{"x":' + b"[" * 100_000]
)
def test_what_is_no_object_is_refused(kind: type[Body], data: bytes) -> None:
    if kind is RegisterBrokerBody and not data:
        assert kind.decode(data) == kind()  # a registration without a body has no topics
        return
    with pytest.raises(WireError):
        kind.decode(data)


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind.STANDARD_FORM], ids=ids)
def test_msgspec_writes_these_as_the_writer_would(kind: type[Body]) -> None:
    full = {"attributes": {"k/é": "v\n"}, "topic": 'T"', "topicName": "T", "counter": 2**63 - 1, "perm": -1}
    known = {name: value for name, value in full.items() if name in kind.__struct_encode_fields__}
    for value in (kind(), msgspec.convert(known, kind)):
        members = dict(zip(kind.__struct_encode_fields__, msgspec.structs.astuple(value), strict=True))
        parts: list[bytes] = []
        _write(dict(sorted(members.items())), parts, b"", False)
        assert value.encode() == b"".join(parts)


def test_a_value_of_the_wrong_type_is_named() -> None:
    with pytest.raises(WireError, match=re.escape("TopicConfig: Expected `int` <= 2147483647 - at `$.perm`")):
        TopicConfig.decode(b'{"perm":2147483648}')
    with pytest.raises(WireError, match=re.escape("$.clientID")):
        HeartbeatData.decode(b'{"clientID":{}}')


@pytest.mark.parametrize("text", [b"1e999999", b"9" * 5_000, b"1.5", b'"x"', b'"9223372036854775808"', b"{}", b"[]"])
def test_numbers_that_fit_no_field_are_refused(text: bytes) -> None:
    with pytest.raises(WireError):
        DataVersion.decode(b'{"counter":' + text + b"}")


@pytest.mark.parametrize("text", [b"7", b'"7"', b"7.0"])
def test_numbers_may_come_as_text(text: bytes) -> None:
    assert DataVersion.decode(b'{"counter":' + text + b"}").counter == 7


def test_java_defaults_of_a_group_are_not_zero() -> None:
    group = SubscriptionGroupConfig.decode(b'{"groupName":"g","retryMaxTimes":null}')
    assert (group.retry_max_times, group.retry_queue_nums, group.consume_timeout_minute) == (16, 1, 15)
    assert group.consume_enable
    assert group.consume_broadcast_enable
    assert group.consume_from_min_enable
    assert group.notify_consumer_ids_changed_enable
    assert group.which_broker_when_consume_slowly == 1
    assert group.group_retry_policy.type == "CUSTOMIZED"
    assert group.subscription_data_set is None


def test_retry_policies_have_their_own_defaults() -> None:
    data = b'{"groupRetryPolicy":{"type":0,"exponentialRetryPolicy":{},"customizedRetryPolicy":{}}}'
    policy = SubscriptionGroupConfig.decode(data).group_retry_policy
    assert policy.type == "EXPONENTIAL"
    assert policy.exponential_retry_policy is not None
    assert policy.exponential_retry_policy.max == 7_200_000
    assert policy.customized_retry_policy is not None
    assert len(policy.customized_retry_policy.next) == 18


def test_code_sets_may_hold_text() -> None:
    data = SubscriptionData.decode(b'{"codeSet":["65",66,"-2147483648"],"tagsSet":["A","B"],"topic":"T"}')
    assert data.code_set == {65, 66, -(2**31)}
    assert data.encode() == (
        b'{"classFilterMode":false,"codeSet":[-2147483648,65,66],"expressionType":"TAG","subVersion":0,'
        b'"tagsSet":["A","B"],"topic":"T"}'
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [(b'"CONSUME_POP"', "CONSUME_POP"), (b"1", "CONSUME_PASSIVELY"), (b'"NEW"', None), (b"9", None), (b"-1", None)],
)
def test_an_enum_is_its_name_its_ordinal_or_unknown(written: bytes, read: str | None) -> None:
    data = b'{"consumerDataSet":[{"groupName":"g","consumeType":' + written + b"}]}"
    (consumer,) = HeartbeatData.decode(data).consumer_data_set
    assert consumer.consume_type == read
    assert (b"consumeType" in consumer.encode()) == (read is not None)


def test_ordinals_follow_java() -> None:
    consumer = ConsumerData.decode(b'{"messageModel":0,"consumeFromWhere":4}')
    assert consumer.message_model == "BROADCASTING"
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert Connection.decode(b'{"language":9}').language == "GO"
    assert TopicConfig.decode(b'{"topicFilterType":1}').topic_filter_type == "MULTI_TAG"
    assert TopicConfig.decode(b'{"topicFilterType":"NEW"}').topic_filter_type == "SINGLE_TAG"


def test_shared_objects_are_resolved() -> None:
    path = "$.topicConfigSerializeWrapper.topicConfigTable.RMQ\\\\_A.attributes"
    text = (
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"RMQ_A":{"topicName":"RMQ_A","attributes":{"k":"v"}},'
        f'"B":{{"topicName":"B","attributes":{{"$ref":"{path}"}}}}}}}}}}'
    )
    topics = RegisterBrokerBody.decode(text.encode()).topics.topic_config_table
    assert topics["B"].attributes == {"k": "v"}
    assert b"$ref" not in RegisterBrokerBody.decode(text.encode()).encode()


def test_a_heartbeat_of_references_does_not_grow_without_bound() -> None:
    subscriptions = ",".join(['{"topic":"T"}'] * 2_000)
    copies = ",".join(['{"$ref":"$.consumerDataSet[0]"}'] * 2_000)
    text = f'{{"consumerDataSet":[{{"groupName":"g","subscriptionDataSet":[{subscriptions}]}},{copies}]}}'
    with pytest.raises(WireError, match="references multiply"):
        HeartbeatData.decode(text.encode())


def test_equal_queues_are_one_key_and_queues_sort() -> None:
    queues = [MessageQueue("b", 1, "T"), MessageQueue("a", 2, "T"), MessageQueue("b", 1, "T")]
    assert len({*queues}) == 2
    assert [queue.queue_id for queue in sorted(queues)] == [2, 1, 1]


def test_defaults_are_not_shared() -> None:
    first: Any = TopicRoute()
    first.broker_datas.append(None)
    assert TopicRoute().broker_datas == []


def test_lists_of_bodies() -> None:
    users = [UserInfo("bob", user_type="Super"), UserInfo("amy")]
    written = encode_list(users)
    assert written == b'[{"userType":"Super","username":"bob"},{"username":"amy"}]'
    assert decode_list(UserInfo, written) == users
    for data in (b"{}", b"[5]", b"x"):
        with pytest.raises(WireError):
            decode_list(UserInfo, data)
