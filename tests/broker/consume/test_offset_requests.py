"""Offsets as consumers, operators and replicas see them."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.consume.offset_requests import HANDLERS, clone, commit, correct, dump, query, reset
from cometmq.broker.tables.sessions import Member
from cometmq.errors import RequestError
from cometmq.wire.bodies import (
    ConsumerData,
    ConsumerOffsetTable,
    CorrectionOffsets,
    MessageQueue,
    ResetOffsets,
    SubscriptionData,
)
from cometmq.wire.codes import Language, Request, Response
from cometmq.wire.command import Command
from cometmq.wire.headers import HeaderError, OffsetResponse
from tests.broker.assembly import Assembly, FakeLink, ask
from tests.broker.consume.test_clients import golden_requests
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker

LINK = FakeLink()
I64_MAX = 2**63 - 1


def broker_with(group: str = "g", topic: str = "T", queues: int = 4, **settings: Any) -> Assembly:
    broker = Assembly(**settings)
    broker.add_topic(topic, queues)
    broker.groups.find(group)
    return broker


def do_commit(broker: Assembly, offset: int, queue_id: int = 0, group: str = "g", topic: str = "T") -> Command:
    ext: dict[str, Any] = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    return commit(broker.for_offsets, LINK, ask(Request.UPDATE_CONSUMER_OFFSET, **ext))


def ask_offset(broker: Assembly, queue_id: int = 0, **ext: Any) -> int:
    request = ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=queue_id, **ext)
    return OffsetResponse.decode(query(broker.for_offsets, LINK, request).ext).offset


def do_reset(broker: Assembly, language: int = 0, **ext: Any) -> dict[int, int]:
    whole: dict[str, Any] = {"topic": "T", "group": "g", "timestamp": -1, "isForce": True} | ext
    response = reset(broker.for_offsets, LINK, ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, language=language, **whole))
    assert response.code == Response.SUCCESS
    table = ResetOffsets.decode(response.body).offset_table
    assert all(queue == MessageQueue("broker-a", queue.queue_id, "T") for queue in table)
    return {queue.queue_id: offset for queue, offset in table.items()}


def code_of(call: Any, *args: Any, **ext: Any) -> int:
    with pytest.raises(RequestError) as caught:
        call(*args, **ext)
    return caught.value.code


def test_a_commit_is_found_again() -> None:
    broker = broker_with()

    assert do_commit(broker, 25).code == Response.SUCCESS
    assert ask_offset(broker) == 25
    assert do_commit(broker, 3).remark is None
    assert ask_offset(broker) == 3


def test_recorded_commits_and_queries() -> None:
    recorded = golden_requests(Request.UPDATE_CONSUMER_OFFSET)[0]
    broker = broker_with(recorded.ext["consumerGroup"], recorded.ext["topic"])
    assert commit(broker.for_offsets, LINK, recorded).code == Response.SUCCESS

    asked = golden_requests(Request.QUERY_CONSUMER_OFFSET)[1]
    assert asked.ext["queueId"] == recorded.ext["queueId"]
    assert query(broker.for_offsets, LINK, asked).ext == {"offset": "25"}


@pytest.mark.parametrize(
    ("ext", "code"),
    [
        ({"consumerGroup": "unknown"}, Response.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "Unknown"}, Response.TOPIC_NOT_EXIST),
        ({"queueId": -1}, Response.INVALID_PARAMETER),
        ({"queueId": 65_536}, Response.INVALID_PARAMETER),
        ({"queueId": "x"}, Response.INVALID_PARAMETER),
        ({"commitOffset": ""}, Response.INVALID_PARAMETER),
    ],
)
def test_a_commit_for_what_does_not_exist_is_refused(ext: dict[str, Any], code: int) -> None:
    broker = broker_with()
    whole: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 5} | ext

    assert code_of(commit, broker.for_offsets, LINK, ask(Request.UPDATE_CONSUMER_OFFSET, **whole)) == code
    assert broker.offsets.groups() == []


def test_a_commit_does_not_make_a_group() -> None:
    broker = Assembly()
    broker.add_topic("T")

    assert code_of(do_commit, broker, 1) == Response.SUBSCRIPTION_GROUP_NOT_EXIST
    assert broker.groups.get("g") is None


def test_a_commit_without_queue_names_the_field() -> None:
    with pytest.raises(HeaderError, match="queueId") as caught:
        commit(broker_with().for_offsets, LINK, ask(15, consumerGroup="g", topic="T", commitOffset=1))
    assert caught.value.code == Response.INVALID_PARAMETER


def test_a_group_without_offset_starts_at_zero_only_while_the_whole_queue_is_there_and_in_memory() -> None:
    broker = broker_with()
    broker.store.bounds = {("T", 0): (0, 10), ("T", 1): (5, 10), ("T", 2): (10, 10), ("T", 3): (0, 10)}
    broker.store.cold = {("T", 3, 0)}

    assert ask_offset(broker, 0) == 0
    assert code_of(ask_offset, broker, 1) == Response.QUERY_NOT_FOUND
    assert code_of(ask_offset, broker, 2) == Response.QUERY_NOT_FOUND
    assert code_of(ask_offset, broker, 3) == Response.QUERY_NOT_FOUND
    assert code_of(ask_offset, broker, 0, setZeroIfNotFound=False) == Response.QUERY_NOT_FOUND
    assert ask_offset(broker, 0, setZeroIfNotFound=True) == 0


async def test_a_queue_that_never_had_a_message_begins_at_zero_whatever_the_rule_of_the_group(tmp_path: Path) -> None:
    """Else the client asks for the end in a second question, and skips what is stored between the two."""
    async with running_broker(tmp_path, enableLmq=True) as broker, Peer.of(broker) as peer:
        add_topic(broker, "T", 2)

        async def asked(topic: str, queue_id: int, **ext: object) -> str:
            fields: dict[str, object] = {"consumerGroup": "new", "topic": topic, "queueId": queue_id, **ext}
            answer = await peer.call(Request.QUERY_CONSUMER_OFFSET, **fields)
            return answer.ext.get("offset", f"code {answer.code}")

        assert broker.store.queues.find("T", 0) is None
        assert [await asked("T", 0), await asked("T", 1), await asked("%LMQ%T", 0)] == ["0", "0", "0"]
        assert await asked("T", 0, setZeroIfNotFound=False) == f"code {Response.QUERY_NOT_FOUND}"
        assert await asked("Unknown", 0) == f"code {Response.QUERY_NOT_FOUND}"
        await peer.send("T")
        assert [await asked("T", 0), await asked("T", 1)] == ["0", "0"]


def test_asking_needs_neither_group_nor_topic() -> None:
    request = ask(Request.QUERY_CONSUMER_OFFSET, consumerGroup="no", topic="No", queueId=0)
    assert code_of(query, Assembly().for_offsets, LINK, request) == Response.QUERY_NOT_FOUND


def test_a_stored_offset_wins_over_every_rule() -> None:
    broker = broker_with()
    broker.store.bounds[("T", 0)] = (0, 10)
    do_commit(broker, 7)

    assert ask_offset(broker, setZeroIfNotFound=False) == 7


def test_a_server_side_reset_holds_against_commits_until_a_pull_takes_it() -> None:
    broker = broker_with(queues=2)
    broker.store.bounds = {("T", 0): (2, 10), ("T", 1): (0, 20)}
    broker.store.by_time = {("T", 0, 1000): 5, ("T", 1, 1000): 6}
    do_commit(broker, 9)

    assert do_reset(broker, timestamp=1000) == {0: 5, 1: 6}
    refused = do_commit(broker, 10)
    assert (refused.code, refused.remark) == (Response.SUCCESS, "Offset has been previously reset")
    assert ask_offset(broker) == 5

    assert broker.offsets.take_reset("g", "T", 0) == 5
    assert do_commit(broker, 6).remark is None
    assert ask_offset(broker) == 6
    assert ask_offset(broker, 1) == 6


def test_a_negative_time_resets_to_the_end() -> None:
    broker = broker_with(queues=1)
    broker.store.bounds[("T", 0)] = (2, 10)

    assert do_reset(broker, timestamp=-1) == {0: 10}


def test_one_queue_can_be_reset_to_an_offset_within_its_bounds() -> None:
    broker = broker_with()
    broker.store.bounds[("T", 1)] = (2, 10)

    assert do_reset(broker, queueId=1, offset=2) == {1: 2}
    assert do_reset(broker, queueId=1, offset=11) == {1: 11}
    assert do_reset(broker, queueId=1, offset=-1) == {1: 10}
    for outside in (1, 12, -2):
        assert code_of(do_reset, broker, queueId=1, offset=outside) == Response.SYSTEM_ERROR
    assert code_of(do_reset, broker, queueId=4) == Response.SYSTEM_ERROR
    assert not broker.offsets.has_reset("g", "T", 0)


def test_a_reset_needs_a_master_a_topic_and_a_group() -> None:
    assert code_of(do_reset, broker_with(broker_id=1)) == Response.SYSTEM_ERROR
    assert code_of(do_reset, broker_with(), topic="Unknown") == Response.TOPIC_NOT_EXIST
    assert code_of(do_reset, broker_with(), group="unknown") == Response.SUBSCRIPTION_GROUP_NOT_EXIST
    assert code_of(do_reset, broker_with(queues=0)) == Response.SYSTEM_ERROR


def test_the_recorded_reset_is_answered_with_raw_object_keys() -> None:
    (recorded,) = golden_requests(Request.INVOKE_BROKER_TO_RESET_OFFSET)
    broker = broker_with(recorded.ext["group"], recorded.ext["topic"])

    body = reset(broker.for_offsets, LINK, recorded).body
    assert body.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"GoldenNormalW"}:0,')


def join(broker: Assembly, link: FakeLink, *topics: str, version: int = 513) -> None:
    subscriptions = [SubscriptionData(topic=topic, sub_string="*") for topic in topics]
    data = ConsumerData(group_name="g", message_model="CLUSTERING", subscription_data_set=subscriptions)
    broker.consumers.register(data, Member(link, link.peer_text, 0, version, 0), notify=True)


def test_without_server_side_reset_the_members_are_told() -> None:
    broker = broker_with(queues=2, reset_offsets_on_server=False)
    broker.store.bounds = {("T", 0): (0, 10), ("T", 1): (0, 10)}
    broker.store.by_time = {("T", 0, 1000): 4, ("T", 1, 1000): 8}
    do_commit(broker, 6, 0)
    do_commit(broker, 6, 1)
    one, two = FakeLink("one:1"), FakeLink("two:2")
    join(broker, one, "T")
    join(broker, two, "T")

    assert do_reset(broker, timestamp=1000, isForce=False) == {0: 4, 1: 6}, "without force only back"
    assert do_reset(broker, timestamp=1000, isForce=True) == {0: 4, 1: 8}
    assert do_reset(broker, timestamp=-1, isForce=True) == {0: 10, 1: 10}

    assert len(one.sent) == len(two.sent) == 3
    told = one.sent[0]
    assert (told.code, told.is_oneway) == (Request.RESET_CONSUMER_CLIENT_OFFSET, True)
    assert (told.ext["topic"], told.ext["group"], told.ext["timestamp"]) == ("T", "g", "1000")
    assert told.body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:4,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:6}}'
    )
    assert broker.offsets.query("g", "T", 0) == 6, "the members commit, not the broker"


def test_a_request_from_cpp_is_passed_on_in_its_own_form() -> None:
    broker = broker_with(queues=1, reset_offsets_on_server=False)
    do_commit(broker, 6)
    link = FakeLink()
    join(broker, link, "T")
    do_reset(broker, language=Language.CPP, timestamp=0)

    assert link.sent[0].body == b'{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"T"}]}'


def test_telling_members_needs_offsets_members_and_their_version() -> None:
    broker = broker_with(queues=1, reset_offsets_on_server=False)
    assert code_of(do_reset, broker) == Response.SYSTEM_ERROR
    do_commit(broker, 6)
    assert code_of(do_reset, broker) == Response.CONSUMER_NOT_ONLINE
    new, old = FakeLink("new:1"), FakeLink("old:2")
    join(broker, new, "T")
    join(broker, old, "T", version=27)
    assert code_of(do_reset, broker) == Response.SYSTEM_ERROR
    assert new.sent == []
    assert code_of(do_reset, broker, topic="Unknown") == Response.TOPIC_NOT_EXIST


def do_clone(broker: Assembly, **ext: Any) -> None:
    request = ask(Request.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="h", **ext)
    assert clone(broker.for_offsets, LINK, request).code == Response.SUCCESS


def test_all_topics_of_a_group_are_cloned_or_one() -> None:
    broker = broker_with()
    broker.add_topic("U")
    do_commit(broker, 5)
    do_commit(broker, 6, topic="U")
    broker.offsets.commit("g", "Deleted", 0, 7, "client")

    do_clone(broker, topic="U")
    assert broker.offsets.topics_of_group("h") == ["U"]
    do_clone(broker, topic="")
    assert broker.offsets.topics_of_group("h") == ["T", "U"]
    assert broker.offsets.query("h", "T", 0) == 5


def test_topics_outside_the_live_subscription_are_cloned_only_offline() -> None:
    broker = broker_with()
    broker.add_topic("U")
    do_commit(broker, 5)
    do_commit(broker, 6, topic="U")
    join(broker, FakeLink(), "U")

    do_clone(broker, offline=False)
    assert broker.offsets.topics_of_group("h") == ["U"]
    do_clone(broker, offline=True)
    assert broker.offsets.topics_of_group("h") == ["T", "U"]


def corrected(broker: Assembly, **ext: Any) -> dict[int, int]:
    request = ask(Request.QUERY_CORRECTION_OFFSET, compareGroup="own", topic="T", **ext)
    return CorrectionOffsets.decode(correct(broker.for_offsets, LINK, request).body).correction_offsets


def test_the_slowest_other_group_is_found_and_nothing_is_removed() -> None:
    broker = Assembly()
    broker.store.bounds[("T", 0)] = (3, 100)
    for group, offset in (("own", 20), ("a", 30), ("b", 25), ("too-old", 2), ("left-out", 10)):
        broker.offsets.commit(group, "T", 0, offset, "client")

    assert corrected(broker) == {0: 10}
    assert corrected(broker, filterGroups="left-out,own") == {0: I64_MAX}, "the asking group is the slowest"
    assert "left-out" in broker.offsets.groups()
    assert corrected(Assembly()) == {}


def test_a_replica_gets_all_offsets() -> None:
    broker = broker_with()
    do_commit(broker, 5)
    do_commit(broker, 6, 3)

    async def main() -> Command:
        return await dump(broker.for_offsets, LINK, ask(Request.GET_ALL_CONSUMER_OFFSET))

    table = ConsumerOffsetTable.decode(run(main()).body)
    assert table.offset_table == {"T@g": {0: 5, 3: 6}}
    assert table.data_version == broker.offsets.data_version


def test_every_request_of_the_family_has_an_entry() -> None:
    assert set(HANDLERS) == {14, 15, 43, 222, 314, 308}
    assert HANDLERS[15].family == HANDLERS[14].family == "consumer"
