"""Topics as operators, tools and replicas see them."""

from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cometmq.broker.admin.topics import (
    HANDLERS,
    delete,
    get,
    get_subscription,
    list_all,
    list_consumed,
    list_consumers,
    list_system,
    refuse_static,
    update,
    update_list,
)
from cometmq.broker.produce import send
from cometmq.broker.tables.sessions import Member
from cometmq.errors import RequestError
from cometmq.wire.bodies import (
    ConsumerData,
    GroupList,
    GroupSubscriptionData,
    SubscriptionData,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.headers import SendMessage
from tests.broker.assembly import Assembly, FakeLink, ask
from tests.broker.consume.test_clients import golden_requests
from tests.broker.tables.test_topics import GOLDEN, golden_topics
from tests.support.aio import run

LINK = FakeLink()


def done(awaitable: Awaitable[Command]) -> Command:
    async def main() -> Command:
        return await awaitable

    return run(main())


def create(broker: Assembly, topic: str = "T", **ext: Any) -> Command:
    whole: dict[str, Any] = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    } | ext  # fmt: skip
    return done(update(broker.for_lists, LINK, ask(Request.UPDATE_AND_CREATE_TOPIC, **whole)))


def refusal(call: Any, *args: Any, **ext: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        call(*args, **ext)
    return caught.value


def test_a_topic_is_created_told_and_saved_before_the_answer() -> None:
    broker = Assembly()

    assert create(broker, attributes="+message.type=FIFO", order=True, topicSysFlag=1).code == Response.SUCCESS

    assert broker.topics.get("T") == TopicConfig(
        topic_name="T", read_queue_nums=8, write_queue_nums=8, topic_sys_flag=1, order=True,
        attributes={"message.type": "FIFO"},
    )  # fmt: skip
    assert broker.registered == ["T"]
    assert broker.settled_count == 1
    assert broker.topics.data_version.counter == 1


def test_an_unchanged_topic_is_success_without_a_new_version() -> None:
    broker = Assembly()
    create(broker)
    create(broker)

    assert broker.topics.data_version.counter == 1
    create(broker, perm=4)
    assert broker.topics.data_version.counter == 2


@pytest.mark.parametrize("recorded", golden_requests(Request.UPDATE_AND_CREATE_TOPIC), ids=lambda r: r.ext["topic"])
def test_recorded_creations_succeed(recorded: Command) -> None:
    broker = Assembly()

    assert done(update(broker.for_lists, LINK, recorded)).code == Response.SUCCESS
    made = broker.topics.get(recorded.ext["topic"])
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (8, 8, 6)


@pytest.mark.parametrize(
    ("ext", "code", "said"),
    [
        ({"topic": "a b"}, 29, "characters other than"),
        ({"topic": ""}, 29, "blank"),
        ({"topic": "t" * 128}, 29, "at most 127"),
        ({"topic": "../../etc"}, 29, "characters other than"),
        ({"topic": "TBW102"}, 29, "conflict with system topic"),
        ({"topic": "broker-a"}, 29, "conflict with system topic"),
        ({"topic": "rmq_sys_mine"}, 29, "conflict with system topic"),
        ({"attributes": "+message.type=MIXED"}, 29, "enableMixedMessageType=true"),
        ({"attributes": "+colour=red"}, 1, "is not known"),
        ({"attributes": "colour"}, 1, "neither"),
        ({"topicFilterType": "NO_TAG"}, 1, "SINGLE_TAG and MULTI_TAG"),
        ({"readQueueNums": -1}, 29, "readQueueNums of topic T is -1, allowed are 0 to 65536"),
        ({"writeQueueNums": 2_000_000_000}, 29, "writeQueueNums of topic T is 2000000000"),
        ({"perm": 16}, 29, "perm of topic T is 16"),
    ],
)
def test_a_bad_topic_is_refused_with_the_reason(ext: dict[str, Any], code: int, said: str) -> None:
    broker = Assembly()
    refused = refusal(create, broker, **ext)

    assert refused.code == code
    assert said in refused.remark
    assert broker.topics.data_version.counter == 0


def test_switches_let_system_topics_and_mixed_topics_pass() -> None:
    broker = Assembly(protect_system_topics=False, mixed_message_type_enabled=True)

    create(broker, "TBW102", attributes="+message.type=MIXED")
    assert broker.topics.table["TBW102"].attributes == {"message.type": "MIXED"}


@pytest.mark.mission("TO-04")
def test_system_topics_are_those_of_the_java_broker_and_closed_to_clients() -> None:
    broker = Assembly(**GOLDEN)
    java = golden_topics("clean").topic_config_table
    system = {name: topic for name, topic in java.items() if not name.startswith(("Golden", "%RETRY%"))}
    assert broker.topics.table == system

    for name in system:
        assert refusal(create, broker, name, readQueueNums=3).code == Response.INVALID_PARAMETER
        doomed = ask(Request.DELETE_TOPIC_IN_BROKER, topic=name)
        refused = refusal(lambda request: done(delete(broker.for_lists, LINK, request)), doomed)
        assert refused.code == Response.INVALID_PARAMETER
    closed = {name for name in system if _send_code(broker, name) == Response.NO_PERMISSION}
    assert closed == {
        "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
        # RocketMQ takes messages for these, and believes what is in them.
        "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_SYNC_BROKER_MEMBER_broker-golden",
    }  # fmt: skip
    assert broker.topics.table == system


def _send_code(broker: Assembly, topic: str) -> int:
    ext = {
        "producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
    }  # fmt: skip
    try:
        parts = SimpleNamespace(config=lambda: broker.config, clock=broker.clock, topics=broker.topics)
        send.check_topic(cast(Any, parts), SendMessage.decode(ext))
    except RequestError as error:
        return error.code
    return Response.SUCCESS


def update_many(broker: Assembly, *topics: TopicConfig) -> Command:
    body = TopicConfigList(topic_config_list=list(topics))
    return done(update_list(broker.for_lists, LINK, ask(Request.UPDATE_AND_CREATE_TOPIC_LIST, body)))


def test_a_list_changes_what_is_different_and_leaves_the_rest() -> None:
    broker = Assembly()
    update_many(broker, TopicConfig(topic_name="A"), TopicConfig(topic_name="B", attributes={"+message.type": "FIFO"}))
    assert broker.topics.table["B"].attributes == {"message.type": "FIFO"}
    assert broker.topics.data_version.counter == 1
    broker.registered.clear()

    update_many(broker, TopicConfig(topic_name="A"), TopicConfig(topic_name="B", perm=4))
    assert broker.registered == ["B"]
    assert broker.topics.table["B"].attributes == {"message.type": "FIFO"}
    update_many(broker, TopicConfig(topic_name="A"))
    assert broker.topics.data_version.counter == 2


def test_a_list_with_a_bad_topic_changes_nothing() -> None:
    broker = Assembly()
    for bad in (TopicConfig(topic_name="a b"), TopicConfig(topic_name="B", attributes={"+colour": "red"})):
        refusal(update_many, broker, TopicConfig(topic_name="A"), bad)
    assert broker.topics.get("A") is None


def test_static_topics_are_refused_clearly() -> None:
    refused = refusal(refuse_static, Assembly().for_lists, LINK, ask(Request.UPDATE_AND_CREATE_STATIC_TOPIC))

    assert refused.code == Response.REQUEST_CODE_NOT_SUPPORTED
    assert "no static topics" in refused.remark
    assert "updateTopic" in refused.remark


def remove(broker: Assembly, topic: str) -> Command:
    return done(delete(broker.for_lists, LINK, ask(Request.DELETE_TOPIC_IN_BROKER, topic=topic)))


def test_deleting_a_topic_removes_its_offsets_its_queues_and_its_pop_retries() -> None:
    broker = Assembly()
    for name in ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%h_T", "%RETRY%g"):
        broker.add_topic(name)
    broker.offsets.commit("g", "T", 0, 5, "client")
    broker.offsets.commit("g", "%RETRY%g_T", 0, 5, "client")

    assert remove(broker, "T").code == Response.SUCCESS

    assert broker.store.deleted == ["T", "%RETRY%g+T", "%RETRY%g_T"]
    assert broker.offsets.groups() == []
    assert broker.topics.get("T") is None
    assert broker.topics.get("%RETRY%h_T") is not None, "group h has no offsets for T"
    assert broker.topics.get("%RETRY%g") is not None
    assert broker.settled_count == 1


def test_pop_retry_topics_stay_where_that_is_asked_for() -> None:
    broker = Assembly(clear_retry_topic_with_topic=False)
    broker.add_topic("T")
    broker.add_topic("%RETRY%g_T")
    broker.offsets.commit("g", "T", 0, 5, "client")
    remove(broker, "T")

    assert broker.topics.get("%RETRY%g_T") is not None


def test_deleting_an_unknown_topic_is_success_and_a_bad_name_is_not() -> None:
    broker = Assembly()

    assert remove(broker, "Unknown").code == Response.SUCCESS
    for name in ("", " ", "../x", "TBW102"):
        assert refusal(remove, broker, name).code == Response.INVALID_PARAMETER
    assert broker.store.deleted == ["Unknown"]


def listed(broker: Assembly, **ext: Any) -> tuple[TopicConfigTable, int]:
    answer = list_all(broker.for_lists, LINK, ask(Request.GET_ALL_TOPIC_CONFIG, **ext))
    response = answer if isinstance(answer, Command) else done(answer)
    return TopicConfigTable.decode(response.body), int(response.ext["totalTopicNum"])


def test_the_whole_table_for_those_who_do_not_ask_by_page() -> None:
    broker = Assembly()
    table, total = listed(broker)

    assert table.topic_config_table == broker.topics.table
    assert table.data_version == broker.topics.data_version
    assert total == len(broker.topics.table)


def test_pages_join_to_the_whole_table() -> None:
    broker = Assembly()
    names = sorted(broker.topics.table)
    version, seen = "", list[str]()
    while len(seen) < len(names):
        page, total = listed(broker, topicSeq=len(seen), dataVersion=version, maxTopicNum=4)
        seen += list(page.topic_config_table)
        version = page.data_version.encode().decode()
        assert total == len(names)
    assert seen == names

    broker.add_topic("AAA")
    page, _ = listed(broker, topicSeq=8, dataVersion=version, maxTopicNum=4)
    assert next(iter(page.topic_config_table)) == "AAA", "another version starts over"
    page, _ = listed(broker, topicSeq=0, dataVersion="nonsense")
    assert len(page.topic_config_table) == len(names) + 1


def test_a_page_has_at_most_two_thousand_topics() -> None:
    broker = Assembly()
    broker.topics.update([TopicConfig(topic_name=f"T{number}") for number in range(2_100)])

    assert len(listed(broker, topicSeq=0, maxTopicNum=100_000)[0].topic_config_table) == 2_000
    table, total = listed(broker)
    assert len(table.topic_config_table) == total > 2_100


def test_the_recorded_question_gets_the_recorded_form() -> None:
    (recorded,) = golden_requests(Request.GET_TOPIC_CONFIG)
    broker = Assembly()
    broker.add_topic("GoldenNormalW")

    assert get(broker.for_lists, LINK, recorded).body == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"GoldenNormalW","topicSysFlag":0,"writeQueueNums":4}'
    )
    assert refusal(get, Assembly().for_lists, LINK, recorded).code == Response.TOPIC_NOT_EXIST


def test_system_topics_are_listed_with_the_brokers_own() -> None:
    body = list_system(Assembly().for_lists, LINK, ask(Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body
    names = TopicList.decode(body).topic_list

    assert {"TBW102", "broker-a", "DefaultCluster", "CHECKPOINT_TOPIC"} <= set(names)


def test_who_consumes_a_topic_and_what_a_group_consumes() -> None:
    broker = Assembly()
    subscription = SubscriptionData(topic="T", sub_string="A")
    data = ConsumerData(group_name="live", subscription_data_set=[subscription])
    broker.consumers.register(data, Member(FakeLink(), "one", 0, 513, 0), notify=True)
    broker.offsets.commit("offline", "T", 0, 1, "client")
    broker.offsets.commit("offline", "U", 0, 1, "client")

    body = list_consumers(broker.for_lists, LINK, ask(Request.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")).body
    assert GroupList.decode(body).group_list == ["live", "offline"]

    body = list_consumed(broker.for_lists, LINK, ask(Request.QUERY_TOPICS_BY_CONSUMER, group="offline")).body
    assert TopicList.decode(body) == TopicList(topic_list=["T", "U"], broker_addr="192.0.2.1:10911")

    asked = ask(Request.QUERY_SUBSCRIPTION_BY_CONSUMER, group="live", topic="T")
    found = GroupSubscriptionData.decode(get_subscription(broker.for_lists, LINK, asked).body)
    assert found == GroupSubscriptionData("live", subscription, "T")
    asked = ask(Request.QUERY_SUBSCRIPTION_BY_CONSUMER, group="offline", topic="T")
    assert get_subscription(broker.for_lists, LINK, asked).body == b'{"group":"offline","topic":"T"}'


def test_every_request_of_the_family_has_an_entry() -> None:
    assert set(HANDLERS) == {17, 18, 215, 21, 351, 300, 343, 345, 305, 513}
    assert {entry.family for entry in HANDLERS.values()} == {"admin"}
