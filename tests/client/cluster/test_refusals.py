"""Refusals as exceptions: what a caller learns of code 16."""

import pytest

from cometmq.client.cluster.refusals import refused
from cometmq.errors import AccessDenied, BrokerError
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply, request
from tests.support.clusters import refuse, scripted_cluster

NOTHING = "User:alice has no permission to access {} from 10.1.2.3, no matched policies."
DENIED = "User:alice has no permission to access {} from 10.1.2.3, the decision is deny."


def answer(remark: str, code: int = 16) -> Command:
    return reply(request(1, {}), code, remark)


@pytest.mark.mission("AC-17")
@pytest.mark.parametrize(
    ("asked", "resource", "actions"),
    [
        (Request.SEND_MESSAGE_V2, "Topic:orders", ("Pub",)),
        (Request.PULL_MESSAGE, "Topic:orders", ("Sub",)),
        (Request.PULL_MESSAGE, "Group:billing", ("Sub",)),
        (request(Request.QUERY_CONSUMER_OFFSET, {"topic": "t", "consumerGroup": "g"}), "Topic:t", ("Sub", "Get")),
        (request(Request.UPDATE_AND_CREATE_TOPIC, {"topic": "orders"}), "Topic:orders", ("Create",)),
        (request(Request.AUTH_CREATE_USER, {}), "Cluster:DefaultCluster", ("Update",)),
        (Request.HEART_BEAT, "Topic:orders", ()),
        (999_999, "Topic:orders", ()),
    ],
)
def test_what_is_missing_is_user_resource_and_action(
    asked: Command | int, resource: str, actions: tuple[str, ...]
) -> None:
    error = refused(answer(NOTHING.format(resource)), "broker-a", asked)
    assert isinstance(error, AccessDenied)
    assert (error.user, error.resource, error.actions, error.code) == ("alice", resource, actions, 16)
    assert f"cometmq acl grant alice {resource} {actions[0] if actions else 'ACTION'}" in str(error)


@pytest.mark.mission("AC-17")
def test_what_is_denied_is_explained() -> None:
    error = refused(answer(DENIED.format("Topic:orders")), "broker-a", Request.SEND_MESSAGE_V2)
    assert "cometmq acl explain alice Pub Topic:orders --from 10.1.2.3" in str(error)


@pytest.mark.mission("AC-17")
def test_no_grant_is_proposed_where_there_are_none() -> None:
    error = refused(answer(NOTHING.format("Cluster:name server")), "name server 10.0.0.1:9876", Request.PUT_KV_CONFIG)
    assert isinstance(error, AccessDenied)
    assert "acl grant" not in str(error)
    assert "Super users" in str(error)


@pytest.mark.mission("AC-17")
def test_wrong_keys_no_keys_and_disabled_users_are_told_apart() -> None:
    signed = request(Request.SEND_MESSAGE_V2, {"AccessKey": "bob"})
    wrong = refused(answer("check signature failed."), "broker-a", signed)
    assert isinstance(wrong, AccessDenied)
    assert (wrong.user, wrong.resource) == ("bob", "")
    assert "there is no user bob, or the secret key is not its password" in str(wrong)
    assert "COMETMQ_ACCESS_KEY" in str(refused(answer("username cannot be null."), "broker-a", signed))
    assert "cometmq user enable bob" in str(refused(answer("User:bob is disabled."), "broker-a", signed))
    assert "there is no user bob" in str(refused(answer("User:bob is not found."), "broker-a", signed))


@pytest.mark.mission("AC-17")
def test_a_broker_that_is_closed_to_all_is_no_matter_of_access() -> None:
    for remark in ("the broker[10.0.0.1] sending message is forbidden", "", "User:" + "x" * 5_000):
        error = refused(answer(remark), "broker-a", Request.SEND_MESSAGE_V2)
        assert type(error) is BrokerError
    assert type(refused(answer(NOTHING.format("Topic:t"), 1), "broker-a", 10)) is BrokerError


@pytest.mark.mission("AC-17")
async def test_a_refused_send_keeps_user_and_resource_in_its_story() -> None:
    async with (
        scripted_cluster("a") as cluster,
        cluster.client(access_key="alice", secret_key="sk") as client,
        client.producer("pg") as producer,
    ):
        cluster["a"].answers = [refuse(16, NOTHING.format("Topic:T"))]
        with pytest.raises(AccessDenied) as denied:
            await producer.send("T", b"x")
        assert (denied.value.user, denied.value.resource, denied.value.actions) == ("alice", "Topic:T", ("Pub",))
        assert "sending to topic T failed after 3 attempts" in str(denied.value)
