"""Bodies with more than one form on the wire, or with forms of their own."""

import zlib

import pytest

from cometmq.errors import WireError
from cometmq.wire.bodies import (
    AclInfo,
    AclPolicy,
    BatchAck,
    BatchAckRequest,
    BrokerConsumeStats,
    BrokerData,
    BrokerMemberGroup,
    BrokerMembers,
    BrokerStatsData,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeStats,
    CorrectionOffsets,
    DataVersion,
    HaStatus,
    MessageQueue,
    PolicyEntry,
    QueryAssignmentResponse,
    QueueAssignment,
    QueueMapping,
    QueueMappingItem,
    RegisterBrokerBody,
    ResetOffsets,
    TopicConfig,
    TopicConfigAndMapping,
    TopicConfigTable,
    TopicRoute,
)
from cometmq.wire.bodies import register as register_module
from cometmq.wire.codes import Version

QUEUE = MessageQueue("b-a", 0, "T")
RAW_KEY = b'{"brokerName":"b-a","queueId":0,"topic":"T"}'
TEXT_KEY = b'"{\\"brokerName\\":\\"b-a\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}"'


@pytest.mark.parametrize("key", [RAW_KEY, TEXT_KEY, b' { "topic":"T", "queueId":"0","brokerName":"b-a","x":1}'])
def test_a_queue_as_key_is_read_raw_and_as_text(key: bytes) -> None:
    assert ResetOffsets.decode(b'{"offsetTable":{' + key + b":5}}").offset_table == {QUEUE: 5}
    stats = ConsumeStats.decode(b'{"offsetTable":{' + key + b':{"brokerOffset":9}}}')
    assert stats.offset_table[QUEUE].broker_offset == 9
    status = ConsumerStatus.decode(b'{"consumerTable":{"cid":{' + key + b':5}},"messageQueueTable":{' + key + b":6}}")
    assert status.consumer_table == {"cid": {QUEUE: 5}}
    assert status.message_queue_table == {QUEUE: 6}
    running = ConsumerRunningInfo.decode(b'{"mqTable":{' + key + b':{"droped":true}},"mqPopTable":{' + key + b":{}}}")
    assert running.mq_table[QUEUE].dropped
    assert not running.mq_pop_table[QUEUE].dropped


@pytest.mark.parametrize("key", [b"5", b'"T"', b'"{"', b'{"queueId":"x"}', b'"[]"'])
def test_a_key_that_is_no_queue_is_refused(key: bytes) -> None:
    with pytest.raises(WireError):
        ResetOffsets.decode(b'{"offsetTable":{' + key + b":5}}")


def test_a_queue_as_key_is_written_raw_without_blanks() -> None:
    assert ResetOffsets({QUEUE: 5}).encode() == b'{"offsetTable":{' + RAW_KEY + b":5}}"
    assert ConsumerStatus(consumer_table={"cid": {QUEUE: 5}}).encode() == (
        b'{"consumerTable":{"cid":{' + RAW_KEY + b':5}},"messageQueueTable":{}}'
    )


def test_cpp_consumers_get_and_send_an_array_of_offsets() -> None:
    written = ResetOffsets({QUEUE: 5}).encode_for_cpp()
    assert written == b'{"offsetTable":[{"brokerName":"b-a","offset":5,"queueId":0,"topic":"T"}]}'
    assert ResetOffsets.decode(written) == ResetOffsets({QUEUE: 5})
    with pytest.raises(WireError):
        ResetOffsets.decode(b'{"offsetTable":[5]}')


def test_statistics_of_a_broker_hold_statistics_by_queue() -> None:
    data = (
        b'{"brokerAddr":"a:1","consumeStatsList":[{"g":[{"consumeTps":0.0,"offsetTable":{' + RAW_KEY + b":"
        b'{"brokerOffset":3,"consumerOffset":1,"lastTimestamp":0,"pullOffset":2}}}]}],"totalDiff":2,'
        b'"totalInflightDiff":1}'
    )
    stats = BrokerConsumeStats.decode(data)
    assert stats.consume_stats_list[0]["g"][0].offset_table[QUEUE].pull_offset == 2
    assert stats.encode() == data
    for wrong in (b'{"consumeStatsList":{}}', b'{"consumeStatsList":[{"g":[5]}]}', b'{"consumeStatsList":[[]]}'):
        with pytest.raises(WireError):
            BrokerConsumeStats.decode(wrong)


def test_a_table_that_is_no_map_is_refused() -> None:
    for data in (b'{"offsetTable":5}', b'{"offsetTable":"x"}'):
        with pytest.raises(WireError):
            ConsumeStats.decode(data)
    with pytest.raises(WireError, match="consumerTable is not an object"):
        ConsumerStatus.decode(b'{"consumerTable":5}')


BATCH_ACK = (
    b'{"acks":[{"b":"AQI=","c":"g","it":60000,"pt":1700000000000,"q":1,"r":"0","rq":2,"so":100,"t":"T"}],'
    b'"brokerName":"b-a"}'
)


def test_a_batch_ack_names_offsets_by_bits() -> None:
    request = BatchAckRequest.decode(BATCH_ACK)
    assert request.acks[0].offsets() == [100, 109]
    assert request.encode() == BATCH_ACK
    request.acks[0].set_offsets([100, 107, 108, 131])
    assert request.acks[0].offsets() == [100, 107, 108, 131]
    assert request.acks[0].bit_set == b"\x81\x01\x00\x80"
    assert BatchAck().offsets() == []


def test_a_batch_ack_may_use_long_names() -> None:
    long = (
        BATCH_ACK.replace(b'"b":', b'"bitSet":')
        .replace(b'"c":', b'"consumerGroup":')
        .replace(b'"it"', b'"invisibleTime"')
    )
    long = long.replace(b'"pt"', b'"popTime"').replace(b'"q"', b'"queueId"').replace(b'"r"', b'"retry"')
    long = long.replace(b'"rq"', b'"reviveQueueId"').replace(b'"so"', b'"startOffset"').replace(b'"t"', b'"topic"')
    assert BatchAckRequest.decode(long) == BatchAckRequest.decode(BATCH_ACK)


@pytest.mark.parametrize("acks", [b"5", b"[5]", b'[{"b":"!"}]', b'[{"b":"' + b"A" * 100_000 + b'"}]'])
def test_a_batch_ack_that_is_none_is_refused(acks: bytes) -> None:
    with pytest.raises(WireError):
        BatchAckRequest.decode(b'{"acks":' + acks + b"}")


def test_no_assignment_is_told_from_an_empty_one() -> None:
    assert QueryAssignmentResponse.decode(b"{}").message_queue_assignments is None
    assert QueryAssignmentResponse.decode(b'{"messageQueueAssignments":null}').message_queue_assignments is None
    assert QueryAssignmentResponse.decode(b'{"messageQueueAssignments":[]}').message_queue_assignments == []
    written = QueryAssignmentResponse([QueueAssignment(QUEUE, "PULL")]).encode()
    assert written == b'{"messageQueueAssignments":[{"messageQueue":' + RAW_KEY + b',"mode":"PULL"}]}'


def test_a_static_topic_carries_its_mapping_in_place() -> None:
    mapping = QueueMapping(
        bname="b", curr_id_map={0: 1}, hosted_queues={0: [QueueMappingItem(bname="b", gen=1)]}, topic="T"
    )
    both = TopicConfigAndMapping(TopicConfig(topic_name="T", attributes={"order": "x"}), mapping)
    written = both.encode()
    assert written.startswith(
        b'{"attributes":{"order":"x"},"mappingDetail":{"bname":"b","currIdMap":{0:1},"dirty":false,"epoch":0,'
        b'"hostedQueues":{0:[{"bname":"b",'
    )
    assert TopicConfigAndMapping.decode(written) == both
    quoted = written.replace(b"{0:", b'{"0":')
    assert TopicConfigAndMapping.decode(quoted) == both


def test_forms_that_only_examples_show() -> None:
    assert CorrectionOffsets({0: 2**63 - 1}).encode() == b'{"correctionOffsets":{0:9223372036854775807}}'
    assert BrokerMemberGroup(BrokerMembers({0: "a:1"}, "b-a", "c1")).encode() == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"a:1"},"brokerName":"b-a","cluster":"c1"}}'
    )
    assert BrokerStatsData().encode().startswith(b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{')
    assert HaStatus().encode().startswith(b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,')
    assert ConsumeMessageDirectlyResult(consume_result="CR_LATER", spent_time_ms=12).encode() == (
        b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"spentTimeMills":12}'
    )
    assert ConsumeMessageDirectlyResult.decode(b'{"consumeResult":4}').consume_result == "CR_THROW_EXCEPTION"
    acl = AclInfo([AclPolicy([PolicyEntry(["Pub"], "Allow", "Topic:*", ["10.0.0.1"])], "Custom")], "User:bob")
    assert acl.encode() == (
        b'{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"Topic:*",'
        b'"sourceIps":["10.0.0.1"]}],"policyType":"Custom"}],"subject":"User:bob"}'
    )
    assert AclInfo.decode(acl.encode()) == acl


def test_a_route_keeps_optional_members_out_until_they_are_set() -> None:
    route = TopicRoute([BrokerData("b/é", {1: "a:2", 0: "a:1"}, "c1", zone_name="z")], order_topic_conf="b:4")
    assert route.encode(standard=True) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"a:1","1":"a:2"},"brokerName":"b\\/\\u00E9","cluster":"c1",'
        b'"enableActingMaster":false,"zoneName":"z"}],"filterServerTable":{},"orderTopicConf":"b:4","queueDatas":[]}'
    )
    assert TopicRoute.decode(route.encode(standard=True)) == route


TOPICS = TopicConfigTable(
    data_version=DataVersion(3, 1, 1_700_000_000_000),
    topic_config_table={
        "A": TopicConfig(topic_name="A", attributes={"message.type": "FIFO", "k": "with blanks"}),
        "B": TopicConfig(topic_name="B", perm=4, read_queue_nums=1, write_queue_nums=2, topic_filter_type="MULTI_TAG"),
    },
    topic_queue_mapping_info_map={"A": QueueMapping(topic="A", curr_id_map={0: 1}, total_queues=1)},
)


class TestRegistration:
    def test_the_compressed_form_reads_back(self) -> None:
        body = RegisterBrokerBody(["f:1"], TOPICS)
        packed = body.encode_compressed()
        assert packed[:2] == b"\x78\xda"
        assert RegisterBrokerBody.decode(packed, compressed=True) == body

    def test_mappings_travel_from_version_413_on(self) -> None:
        body = RegisterBrokerBody([], TOPICS)
        packed = body.encode_compressed(version=Version.V5_0_0 - 1)
        read = RegisterBrokerBody.decode(packed, version=Version.V5_0_0 - 1, compressed=True)
        assert read.topics.topic_queue_mapping_info_map == {}
        assert read.topics.topic_config_table == TOPICS.topic_config_table
        with pytest.raises(WireError, match="bytes wanted at"):
            RegisterBrokerBody.decode(packed, version=Version.V5_0_0, compressed=True)

    def test_bytes_of_the_compressed_form(self) -> None:
        topics = TopicConfigTable(DataVersion(1, 0, 2), {"T": TopicConfig(topic_name="T", perm=7)})
        inflated = zlib.decompress(RegisterBrokerBody([], topics).encode_compressed())
        version, topic = b'{"counter":1,"stateVersion":0,"timestamp":2}', b"T 16 16 7 SINGLE_TAG {}"
        assert inflated == (
            len(version).to_bytes(4, "big") + version + b"\0\0\0\1" + len(topic).to_bytes(4, "big") + topic
            + b"\0\0\0\2[]" + b"\0\0\0\0"
        )  # fmt: skip

    def test_a_topic_text_may_lack_attributes(self) -> None:
        unit = b"T 4 8 6 SINGLE_TAG"
        data = b"\0\0\0\2{}" + b"\0\0\0\1" + len(unit).to_bytes(4, "big") + unit + b"\0\0\0\2[]"
        read = RegisterBrokerBody.decode(zlib.compress(data), version=407, compressed=True)
        assert read.topics.topic_config_table == {
            "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8)
        }

    def test_very_old_brokers_send_the_table_alone(self) -> None:
        data = b'{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"topicName":"T"}}}'
        read = RegisterBrokerBody.decode(data, version=36)
        assert read.topics.data_version == DataVersion(1)
        assert read.topics.topic_config_table == {"T": TopicConfig(topic_name="T")}

    def test_no_body_is_an_empty_table(self) -> None:
        assert RegisterBrokerBody.decode(b"") == RegisterBrokerBody([], TopicConfigTable())

    @pytest.mark.parametrize(
        "inflated",
        [
            b"",
            b"\0\0\0\2{}",
            b"\0\0\0\2{}\0\0\0\1\xff\xff\xff\xff",
            b"\0\0\0\2{}\x7f\xff\xff\xff",
            b"\0\0\0\2{}\0\0\0\1\0\0\0\4T 4 ",
            b"\0\0\0\2{}\0\0\0\1\0\0\0\x12T x 8 6 SINGLE_TAG\0\0\0\2[]",
            b"\0\0\0\2{}\0\0\0\1\0\0\0\x14T 4 8 6 SINGLE_TAG {\0\0\0\2[]",
            b"\0\0\0\2{}\0\0\0\1\0\0\0\1\xff\0\0\0\2[]",
            b"\0\0\0\2{}\0\0\0\0\0\0\0\2{}",
            b"\0\0\0\2[]\0\0\0\0\0\0\0\2[]",
        ],
    )
    def test_a_broken_compressed_form_is_refused(self, inflated: bytes) -> None:
        with pytest.raises(WireError):
            RegisterBrokerBody.decode(zlib.compress(inflated), version=407, compressed=True)

    def test_a_negative_length_is_refused_as_such(self) -> None:
        inflated = b"\0\0\0\2{}\0\0\0\1\xff\xff\xff\xfc"
        with pytest.raises(WireError, match="-4 bytes wanted at 14 of 14"):
            RegisterBrokerBody.decode(zlib.compress(inflated), version=407, compressed=True)

    def test_bytes_that_are_no_zlib_stream_are_refused(self) -> None:
        packed = RegisterBrokerBody([], TOPICS).encode_compressed()
        with pytest.raises(WireError, match="not a zlib stream"):
            RegisterBrokerBody.decode(b"{}", compressed=True)
        with pytest.raises(WireError, match="the zlib stream is cut"):
            RegisterBrokerBody.decode(packed[:-8], compressed=True)

    def test_inflating_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(register_module, "INFLATED_BYTES_MAX", 1_000)
        with pytest.raises(WireError, match="inflates to more than 1000 bytes"):
            RegisterBrokerBody.decode(zlib.compress(b"x" * 100_000), compressed=True)
