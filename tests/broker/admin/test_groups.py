"""Consumer groups as operators, tools and replicas see them."""

from typing import Any

import pytest

from cometmq.broker.admin.groups import HANDLERS, delete, get, list_all, update, update_forbidden, update_list
from cometmq.errors import RequestError
from cometmq.wire.bodies import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupTable,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from tests.broker.admin.test_topics import done, refusal
from tests.broker.assembly import Assembly, FakeLink, ask
from tests.broker.consume.test_clients import golden_requests

LINK = FakeLink()


def create(broker: Assembly, **fields: Any) -> Command:
    body = SubscriptionGroupConfig(**fields)
    return done(update(broker.for_lists, LINK, ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)))


def test_a_group_is_created_and_saved_before_the_answer() -> None:
    broker = Assembly()

    assert create(broker, group_name="g", retry_max_times=3).code == Response.SUCCESS
    assert broker.groups.table["g"].retry_max_times == 3
    assert broker.settled_count == 1


def test_the_recorded_creation_keeps_every_member() -> None:
    (recorded,) = golden_requests(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    broker = Assembly()
    assert done(update(broker.for_lists, LINK, recorded)).code == Response.SUCCESS

    answer = get(broker.for_lists, LINK, ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="wire_group"))
    assert answer.body == recorded.body


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"group_name": ""}, 29, "blank"),
        ({"group_name": "g" * 121}, 29, "at most 120"),
        ({"group_name": "a b"}, 29, "characters other than"),
        ({"group_name": "g", "retry_queue_nums": 65_537}, 29, "retryQueueNums of group g is 65537, at most 65536"),
        ({"group_name": "g", "attributes": {"+colour": "red"}}, 1, "is not known"),
    ],
)
def test_a_bad_group_is_refused_with_the_reason(fields: dict[str, Any], code: int, said: str) -> None:
    broker = Assembly()
    refused = refusal(create, broker, **fields)

    assert refused.code == code
    assert said in refused.remark
    assert broker.groups.data_version.counter == 0


def test_a_list_is_all_or_none() -> None:
    broker = Assembly()

    def create_all(*names: str) -> Command:
        body = SubscriptionGroupList(group_config_list=[SubscriptionGroupConfig(group_name=name) for name in names])
        return done(update_list(broker.for_lists, LINK, ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body)))

    assert refusal(create_all, "a", "b b").code == Response.INVALID_PARAMETER
    assert broker.groups.get("a") is None
    assert create_all("a", "b").code == Response.SUCCESS
    assert broker.groups.get("b") is not None
    assert create_all().code == Response.SUCCESS


def remove(broker: Assembly, **ext: Any) -> Command:
    return done(delete(broker.for_lists, LINK, ask(Request.DELETE_SUBSCRIPTIONGROUP, groupName="g", **ext)))


def test_deleting_a_group_keeps_its_offsets_unless_asked() -> None:
    broker = Assembly()
    broker.groups.find("g")
    broker.offsets.commit("g", "T", 0, 5, "client")

    assert remove(broker).code == Response.SUCCESS
    assert broker.groups.get("g") is None
    assert broker.offsets.query("g", "T", 0) == 5

    assert remove(broker, cleanOffset=True).code == Response.SUCCESS
    assert broker.offsets.query("g", "T", 0) == -1


def test_asking_for_a_group_makes_it_where_that_is_allowed() -> None:
    broker = Assembly()
    asked = ask(Request.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")

    body = get(broker.for_lists, LINK, asked).body
    assert SubscriptionGroupConfig.decode(body) == SubscriptionGroupConfig(group_name="g")

    broker = Assembly(auto_create_group=False)
    assert refusal(get, broker.for_lists, LINK, asked).code == Response.SUBSCRIPTION_GROUP_NOT_EXIST


def listed(broker: Assembly, **ext: Any) -> tuple[SubscriptionGroupTable, int]:
    answer = list_all(broker.for_lists, LINK, ask(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, **ext))
    response = answer if isinstance(answer, Command) else done(answer)
    return SubscriptionGroupTable.decode(response.body), int(response.ext["totalGroupNum"])


def test_the_whole_table_and_pages_of_it() -> None:
    broker = Assembly()
    broker.groups.allow_reading("TOOLS_CONSUMER", "T", False)
    table, total = listed(broker)
    assert table.subscription_group_table == broker.groups.table
    assert table.forbidden_table == {"TOOLS_CONSUMER": {"T": 4}}
    assert total == 8

    version = table.data_version.encode().decode()
    first, _ = listed(broker, groupSeq=0, dataVersion=version, maxGroupNum=5)
    rest, _ = listed(broker, groupSeq=5, dataVersion=version, maxGroupNum=5)
    assert [*first.subscription_group_table, *rest.subscription_group_table] == sorted(broker.groups.table)
    assert first.forbidden_table == {}, "only of the groups on the page"
    assert rest.forbidden_table == {"TOOLS_CONSUMER": {"T": 4}}

    again, _ = listed(broker, groupSeq=5, dataVersion="", maxGroupNum=5)
    assert again == first


def test_a_table_of_many_groups_is_answered_whole() -> None:
    broker = Assembly()
    broker.groups.update([SubscriptionGroupConfig(group_name=f"g{number}") for number in range(2_100)])

    table, total = listed(broker)
    assert len(table.subscription_group_table) == total == 2_108


def forbid(broker: Assembly, **ext: Any) -> bool | None:
    asked = ask(Request.UPDATE_AND_GET_GROUP_FORBIDDEN, group="g", topic="T", **ext)
    response = done(update_forbidden(broker.for_lists, LINK, asked))
    assert (response.code, response.remark) == (Response.SUCCESS, "")
    body = GroupForbidden.decode(response.body)
    assert (body.group, body.topic) == ("g", "T")
    return body.readable


def test_a_group_is_barred_from_a_topic_and_let_again() -> None:
    broker = Assembly()

    assert forbid(broker) is True
    assert broker.settled_count == 0
    assert forbid(broker, readable=False) is False
    assert forbid(broker) is False
    assert not broker.groups.may_read("g", "T")
    assert forbid(broker, readable=True) is True
    assert broker.settled_count == 2


def test_a_body_that_is_not_a_group_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        done(update(Assembly().for_lists, LINK, ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b"{")))
    assert caught.value.code == Response.SYSTEM_ERROR


def test_every_request_of_the_family_has_an_entry() -> None:
    assert set(HANDLERS) == {200, 225, 207, 201, 352, 353}
