"""Heartbeats, goodbyes, connection lists and notices, as a client sees them."""

import json
from typing import Any

import pytest

from cometmq.broker.consume.clients import (
    HANDLERS,
    all_producers,
    check_client_config,
    connection_closed,
    consumer_connections,
    expire_clients,
    heartbeat,
    list_consumers,
    producer_connections,
    tell_postponed,
    unregister,
)
from cometmq.errors import RequestError
from cometmq.wire.bodies import (
    CheckClientConfig,
    Connection,
    ConsumerConnection,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
    ProducerConnection,
    ProducerData,
    ProducerTable,
    SubscriptionData,
)
from cometmq.wire.codes import Language, Request, Response
from cometmq.wire.command import Command, decode
from cometmq.wire.headers import HeartbeatResponse
from tests.broker.assembly import Assembly, FakeLink, ask
from tests.support.aio import run
from tests.support.golden import golden_frames

# As client-go writes them: codes as text, no fingerprint, nulls.
GO_HEARTBEAT = json.dumps({
    "clientID": "192.0.2.7@4711",
    "producerDataSet": [{"groupName": "go_p"}],
    "consumerDataSet": [{
        "groupName": "go_c",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{
            "classFilterMode": False, "topic": "T", "subString": "A || B", "tagsSet": ["A", "B"],
            "codeSet": ["65", "66"], "subVersion": 1_700_000_000_000_000_000, "expressionType": "TAG",
        }],
        "unitMode": False,
    }],
}).encode()  # fmt: skip


def consumer(group: str = "g", *topics: str, model: str = "CLUSTERING", **fields: Any) -> ConsumerData:
    subscriptions = [SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics or ("T",)]
    return ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=subscriptions,
        **fields,
    )


def beat(broker: Assembly, link: FakeLink, client_id: str, *consumers: ConsumerData, **fields: Any) -> bool:
    """Send a heartbeat; whether the client is asked for its full form."""
    body = HeartbeatData(client_id=client_id, consumer_data_set=list(consumers), **fields)
    response = heartbeat(broker.for_members, link, ask(Request.HEART_BEAT, body))
    assert isinstance(response, Command)
    assert response.code == Response.SUCCESS
    ext = HeartbeatResponse.decode(response.ext)
    assert ext.supports_heartbeat_v2
    return ext.subscription_changed


def client_ids(broker: Assembly, group: str) -> list[str]:
    request = ask(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    response = list_consumers(broker.for_members, FakeLink(), request)
    return ConsumerList.decode(response.body).consumer_id_list


def connections(broker: Assembly, group: str) -> ConsumerConnection:
    request = ask(Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
    return ConsumerConnection.decode(consumer_connections(broker.for_members, FakeLink(), request).body)


def golden_requests(code: int) -> list[Command]:
    frames = [
        bytes.fromhex(f["frame_hex"]) for f in golden_frames() if (f["request_code"], f["kind"]) == (code, "request")
    ]
    return [decode(frame, 4, len(frame)) for frame in frames]


@pytest.mark.mission("CG-01")
def test_after_a_heartbeat_the_client_is_listed_with_all_it_said() -> None:
    broker, link = Assembly(), FakeLink("192.0.2.7:4000")

    heartbeat(broker.for_members, link, ask(Request.HEART_BEAT, GO_HEARTBEAT, language=Language.GO, version=317))

    assert client_ids(broker, "go_c") == ["192.0.2.7@4711"]
    listed = connections(broker, "go_c")
    assert listed.connection_set == [Connection("192.0.2.7:4000", "192.0.2.7@4711", "GO", 317)]
    assert listed.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert listed.consume_type == "CONSUME_PASSIVELY"
    assert listed.message_model == "CLUSTERING"
    assert listed.subscription_table["T"].code_set == {65, 66}
    assert listed.subscription_table["T"].sub_version == 1_700_000_000_000_000_000


@pytest.mark.mission("CG-01")
@pytest.mark.parametrize("recorded", golden_requests(Request.HEART_BEAT), ids=lambda request: f"form{request.form}")
def test_recorded_heartbeats_register_their_producers(recorded: Command) -> None:
    broker, link = Assembly(), FakeLink("192.0.2.2:4000")

    response = heartbeat(broker.for_members, link, recorded)
    assert isinstance(response, Command)

    assert response.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    client_id = HeartbeatData.decode(recorded.body).client_id
    request = ask(Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="CLIENT_INNER_PRODUCER")
    listed = ProducerConnection.decode(producer_connections(broker.for_members, link, request).body)
    assert listed.connection_set == [Connection("192.0.2.2:4000", client_id, "JAVA", 513)]


@pytest.mark.parametrize(
    "recorded", golden_requests(Request.UNREGISTER_CLIENT), ids=lambda request: request.ext["producerGroup"]
)
def test_recorded_goodbyes_unregister(recorded: Command) -> None:
    broker, link = Assembly(), FakeLink()
    group = recorded.ext["producerGroup"]
    beat(broker, link, recorded.ext["clientID"], producer_data_set=[ProducerData(group_name=group)])
    assert group in broker.producers.table

    assert unregister(broker.for_members, link, recorded).code == Response.SUCCESS
    assert broker.producers.table == {}


def test_joining_and_leaving_are_told_to_all_members() -> None:
    broker = Assembly()
    one, two = FakeLink("one:1"), FakeLink("two:2")

    beat(broker, one, "one", consumer())
    assert one.notices() == ["g"]
    beat(broker, two, "two", consumer())
    assert one.notices() == ["g", "g"]
    assert two.notices() == ["g"]
    assert sorted(client_ids(broker, "g")) == ["one", "two"]

    connection_closed(broker.for_members, two)
    assert one.notices() == ["g", "g", "g"]
    assert client_ids(broker, "g") == ["one"]


def test_a_notice_is_one_way() -> None:
    broker, link = Assembly(), FakeLink()
    beat(broker, link, "one", consumer())

    (notice,) = link.sent
    (recorded,) = {frozenset(request.ext) for request in golden_requests(Request.NOTIFY_CONSUMER_IDS_CHANGED)}
    assert notice.is_oneway
    assert frozenset(notice.ext) == recorded


def test_goodbye_to_a_group_is_told_to_the_others() -> None:
    broker = Assembly()
    one, two = FakeLink("one:1"), FakeLink("two:2")
    beat(broker, one, "one", consumer())
    beat(broker, two, "two", consumer())
    one.sent.clear()

    unregister(broker.for_members, two, ask(Request.UNREGISTER_CLIENT, clientID="two", consumerGroup="g"))

    assert one.notices() == ["g"]
    assert two.notices() == ["g"], "only of its own joining"


def test_a_member_that_cannot_be_written_to_does_not_keep_the_notice_from_others() -> None:
    broker = Assembly()
    dead, alive = FakeLink("dead:1"), FakeLink("alive:2")
    beat(broker, dead, "dead", consumer())
    dead.is_open = False

    beat(broker, alive, "alive", consumer())

    assert alive.notices() == ["g"]


def test_nobody_is_told_where_the_broker_or_the_group_does_not_want_it() -> None:
    broker, link = Assembly(notify_consumer_changes=False), FakeLink()
    beat(broker, link, "one", consumer())
    assert link.sent == []

    broker.set(notify_consumer_changes=True)
    quiet = broker.groups.find("quiet")
    assert quiet is not None
    quiet.notify_consumer_ids_changed_enable = False
    beat(broker, link, "one", consumer("quiet"))
    beat(broker, link, "one", consumer("b", model="BROADCASTING"))
    assert link.sent == []


def test_notices_can_be_collected() -> None:
    broker, link = Assembly(notify_consumer_changes_at_once=False), FakeLink()
    beat(broker, link, "one", consumer())
    beat(broker, link, "one", consumer("g", "T", "U"))
    assert link.sent == []

    tell_postponed(broker.for_members)
    assert link.notices() == ["g"]
    tell_postponed(broker.for_members)
    assert link.notices() == ["g"]


def test_the_first_heartbeat_makes_group_and_retry_topic() -> None:
    broker = Assembly()
    beat(broker, FakeLink(), "one", consumer(unit_mode=True))

    retry = broker.topics.get("%RETRY%g")
    assert retry is not None
    assert (retry.read_queue_nums, retry.perm, retry.topic_sys_flag, retry.order) == (1, 6, 2, False)
    assert broker.groups.get("g") is not None
    assert broker.registered == ["%RETRY%g"]


def test_the_retry_topic_of_a_group_that_subscribes_an_ordered_topic_is_ordered() -> None:
    broker = Assembly()
    broker.add_topic("Ordered", order=True)
    beat(broker, FakeLink(), "one", consumer("g", "Ordered"))
    assert broker.topics.is_ordered("%RETRY%g")

    # The short form does not say what is subscribed, so it changes nothing.
    beat(broker, FakeLink(), "one", ConsumerData(group_name="g"), heartbeat_fingerprint=5, without_sub=True)
    assert broker.topics.is_ordered("%RETRY%g")


def test_a_group_that_may_not_exist_is_passed_over_in_silence() -> None:
    broker, link = Assembly(auto_create_group=False), FakeLink()
    beat(broker, link, "one", consumer("unknown"), consumer("TOOLS_CONSUMER"), producer_data_set=[ProducerData("p")])

    assert broker.consumers.get("unknown") is None
    assert broker.topics.get("%RETRY%unknown") is None
    assert client_ids(broker, "TOOLS_CONSUMER") == ["one"]
    assert "p" in broker.producers.table


def test_pull_consumers_are_passed_over_where_they_are_rejected() -> None:
    broker, link = Assembly(reject_pull_consumers=True), FakeLink()
    puller = consumer("puller")
    puller.consume_type = "CONSUME_ACTIVELY"
    beat(broker, link, "one", puller, consumer("pusher"))

    assert sorted(broker.consumers.table) == ["pusher"]


def test_the_second_form_asks_for_subscriptions_only_when_they_changed() -> None:
    broker, link = Assembly(), FakeLink()
    assert beat(broker, link, "one", consumer()), "the first form is always answered with changed"
    # What the Java broker does: 0, the fingerprint of the first form, was stored.
    assert beat(broker, link, "one", consumer(), heartbeat_fingerprint=11)

    assert not beat(broker, link, "one", consumer(), heartbeat_fingerprint=11)
    short = ConsumerData(group_name="g", consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING")
    assert not beat(broker, link, "one", short, heartbeat_fingerprint=11, without_sub=True)
    assert broker.consumers.find_subscription("g", "T") is not None
    assert beat(broker, link, "one", consumer("g", "U"), heartbeat_fingerprint=12)


def test_a_short_heartbeat_to_a_restarted_broker_asks_for_subscriptions() -> None:
    broker, link = Assembly(), FakeLink()
    short = ConsumerData(group_name="g", consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING")

    assert beat(broker, link, "one", short, heartbeat_fingerprint=11, without_sub=True)
    assert client_ids(broker, "g") == ["one"]
    assert not beat(broker, link, "one", consumer(), heartbeat_fingerprint=11)


def test_each_group_of_a_client_is_refreshed_on_its_own() -> None:
    broker, link = Assembly(), FakeLink()
    beat(broker, link, "one", consumer("kept"), consumer("left"), producer_data_set=[ProducerData("p")])
    broker.clock.advance(100)
    beat(broker, link, "one", consumer("kept"))
    broker.clock.advance(21)

    expire_clients(broker.for_members)

    assert sorted(broker.consumers.table) == ["kept"]
    assert broker.producers.table == {}
    assert link.closed_because == "no heartbeat"


def test_a_silent_client_is_closed_after_two_minutes_without_notice_to_the_rest() -> None:
    broker = Assembly()
    silent, lively = FakeLink("silent:1"), FakeLink("lively:2")
    beat(broker, silent, "silent", consumer())
    beat(broker, lively, "lively", consumer())
    broker.clock.advance(119)
    beat(broker, lively, "lively", consumer())
    lively.sent.clear()

    broker.clock.advance(1)
    expire_clients(broker.for_members)
    assert silent.is_open
    broker.clock.advance(0.001)
    expire_clients(broker.for_members)
    assert (silent.closed_because, lively.closed_because) == ("no heartbeat", None)
    assert client_ids(broker, "g") == ["lively"]
    assert lively.notices() == []


def test_producers_are_not_kept_where_nobody_would_ask_for_them() -> None:
    broker, link = Assembly(register_producers=False, reject_transactions=True), FakeLink()
    beat(broker, link, "one", producer_data_set=[ProducerData(group_name="p")])
    assert broker.producers.table == {}

    broker.set(reject_transactions=False)
    beat(broker, link, "one", producer_data_set=[ProducerData(group_name="p")])
    assert "p" in broker.producers.table


def test_all_producers_are_listed_with_the_wall_time_of_their_last_heartbeat() -> None:
    broker, link = Assembly(), FakeLink("192.0.2.2:4000")
    broker.clock.advance(5)
    beat(broker, link, "one", producer_data_set=[ProducerData(group_name="p")])
    seen_ms = broker.clock.now_ms()
    broker.clock.advance(60)

    body = all_producers(broker.for_members, link, ask(Request.GET_ALL_PRODUCER_INFO)).body
    (listed,) = ProducerTable.decode(body).data["p"]
    assert (listed.client_id, listed.remote_ip, listed.language) == ("one", "/192.0.2.2:4000", "JAVA")
    assert listed.last_update_timestamp == seen_ms


@pytest.mark.parametrize(
    ("handler", "field", "code"),
    [
        (list_consumers, "consumerGroup", Response.SYSTEM_ERROR),
        (consumer_connections, "consumerGroup", Response.CONSUMER_NOT_ONLINE),
        (producer_connections, "producerGroup", Response.SYSTEM_ERROR),
    ],
)
def test_asking_for_a_group_that_nobody_is_in(handler: Any, field: str, code: int) -> None:
    ext: Any = {field: "nobody"}
    with pytest.raises(RequestError, match="nobody") as caught:
        handler(Assembly(), FakeLink(), ask(1, **ext))
    assert caught.value.code == code


def test_a_heartbeat_without_client_id_or_body_is_refused() -> None:
    with pytest.raises(RequestError, match="clientID") as caught:
        heartbeat(Assembly().for_members, FakeLink(), ask(Request.HEART_BEAT, b"{}"))
    assert caught.value.code == Response.INVALID_PARAMETER
    for body in (b"", b"[", b"[]"):
        with pytest.raises(RequestError) as caught:
            heartbeat(Assembly().for_members, FakeLink(), ask(Request.HEART_BEAT, body))
        assert caught.value.code == Response.SYSTEM_ERROR


def test_a_client_asks_whether_its_filters_can_be_served() -> None:
    broker = Assembly()

    def check(expression_type: str | None, text: str | None = "a > 5") -> int:
        data = SubscriptionData(topic="T", expression_type=expression_type, sub_string=text)
        asked = ask(Request.CHECK_CLIENT_CONFIG, CheckClientConfig(subscription_data=data))
        try:
            return run(check_client_config(broker.for_members, FakeLink(), asked)).code
        except RequestError as error:
            return error.code

    assert check("TAG") == Response.SUCCESS
    assert check(None) == Response.SUCCESS
    assert check("SQL92") == Response.SYSTEM_ERROR
    broker.set(property_filter_enabled=True)
    assert check("SQL92") == Response.SUCCESS
    for wrong in ("a >", "", None):
        assert check("SQL92", wrong) == Response.SUBSCRIPTION_PARSE_FAILED
    assert check("XPATH") == Response.SUBSCRIPTION_PARSE_FAILED


def test_the_recorded_question_about_a_property_filter_gets_the_recorded_answer() -> None:
    (recorded,) = golden_requests(Request.CHECK_CLIENT_CONFIG)

    with pytest.raises(RequestError) as caught:
        run(check_client_config(Assembly().for_members, FakeLink(), recorded))
    assert caught.value.code == 1


def test_every_request_of_the_family_has_an_entry() -> None:
    assert set(HANDLERS) == {34, 35, 46, 38, 203, 204, 328}
    assert HANDLERS[34].family == "heartbeat"
