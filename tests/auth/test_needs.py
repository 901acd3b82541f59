"""Needs: those of RocketMQ 5.5.0 as recorded, except where CometMQ asks for more, which is listed here."""

from typing import Any

import pytest

from cometmq.auth.needs import NEEDS, UnreadableNeeds
from cometmq.nameserver.handlers import HANDLERS as NAMESERVER_HANDLERS
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, request
from cometmq.wire.headers import admin
from tests.support.auth_vectors import vectors
from tests.support.served import CODES

CLUSTER_GET = [("Cluster:DefaultCluster", ["Get"])]
CLUSTER_UPDATE = [("Cluster:DefaultCluster", ["Update"])]
TOPICS_LIST = [("Topic:*", ["List"])]
GROUPS_LIST = [("Group:*", ["List"])]
# Codes for which 5.5.0 asks nothing although they show or change something; most ask in its development branch.
STRICTER: dict[int, Any] = {
    Request.SEND_REPLY_MESSAGE: [("Topic:T", ["Pub"])],
    Request.SEND_REPLY_MESSAGE_V2: [("Topic:T", ["Pub"])],
    Request.LITE_PULL_MESSAGE: [("Topic:T", ["Sub"]), ("Group:G", ["Sub"])],
    Request.POP_LITE_MESSAGE: [("Group:G", ["Sub"]), ("Topic:T", ["Sub"])],
    Request.UPDATE_AND_CREATE_STATIC_TOPIC: [("Topic:T", ["Create"])],
    Request.GET_ALL_TOPIC_CONFIG: TOPICS_LIST,
    Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: TOPICS_LIST,
    Request.GET_TIMER_METRICS: TOPICS_LIST,
    Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GROUPS_LIST,
    Request.GET_COLD_DATA_FLOW_CTR_INFO: GROUPS_LIST,
    Request.GET_ALL_MESSAGE_REQUEST_MODE: TOPICS_LIST + GROUPS_LIST,
    **dict.fromkeys(
        (
            Request.GET_BROKER_CONFIG, Request.GET_BROKER_RUNTIME_INFO, Request.GET_ALL_CONSUMER_OFFSET,
            Request.GET_ALL_DELAY_OFFSET, Request.GET_TIMER_CHECK_POINT, Request.GET_BROKER_HA_STATUS,
            Request.GET_BROKER_EPOCH_CACHE, Request.GET_NAMESRV_CONFIG, Request.CONTROLLER_GET_METADATA_INFO,
            Request.CONTROLLER_GET_SYNC_STATE_DATA, Request.GET_CONTROLLER_CONFIG,
        ),
        CLUSTER_GET,
    ),
    **dict.fromkeys(
        (
            Request.UPDATE_BROKER_CONFIG, Request.CLEAN_EXPIRED_CONSUMEQUEUE, Request.CLEAN_UNUSED_TOPIC,
            Request.DELETE_EXPIRED_COMMITLOG, Request.SET_COMMITLOG_READ_MODE, Request.SWITCH_TIMER_ENGINE,
            Request.POP_ROLLBACK, Request.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            Request.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, Request.UPDATE_NAMESRV_CONFIG, Request.UPDATE_CONTROLLER_CONFIG,
        ),
        CLUSTER_UPDATE,
    ),
}  # fmt: skip
# These say in their body what they are about; the recorded requests have none, and 5.5.0 does not look.
IN_BODY = frozenset(
    (
        Request.CHECK_CLIENT_CONFIG, Request.QUERY_ASSIGNMENT, Request.BATCH_ACK_MESSAGE,
        Request.SET_MESSAGE_REQUEST_MODE, Request.UPDATE_AND_CREATE_TOPIC_LIST,
        Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    )
)  # fmt: skip
FOREIGN_RETRIES = {
    (Request.PULL_MESSAGE, "%RETRY%OTHER"): [("Group:OTHER", ["Sub"]), ("Group:G", ["Sub"])],
    (Request.LITE_PULL_MESSAGE, "%RETRY%G"): [("Group:G", ["Sub"])],
}


def of(vector: dict[str, Any]) -> Command:
    return request(vector["code"], dict(vector["ext"]), (vector["body"] or "").encode())


def said(command: Command) -> list[tuple[str, list[str]]]:
    needs = NEEDS[command.code](command, "DefaultCluster")
    return [(need.resource, sorted(need.actions)) for need in needs]


@pytest.mark.mission("AC-03")
@pytest.mark.parametrize(
    "vector", [v for v in vectors("needs") if v["code"] in NEEDS], ids=lambda v: f"{v['name']}-{len(v['ext'])}"
)
def test_a_request_needs_what_rocketmq_asks_for_or_more(vector: dict[str, Any]) -> None:
    code, recorded = vector["code"], vector["needs"]
    if isinstance(recorded, str) or (code in IN_BODY and not vector["body"]):
        with pytest.raises(UnreadableNeeds):
            said(of(vector))
        return
    theirs = [(need["resource"], sorted(need["any_of"])) for need in recorded]
    topic = vector["ext"].get("topic")
    expected = FOREIGN_RETRIES.get((code, topic)) or STRICTER.get(code, theirs)
    assert said(of(vector)) == expected
    if expected != theirs:
        assert not theirs or (code, topic) in FOREIGN_RETRIES, "only ever more than RocketMQ asks for"


@pytest.mark.mission("AC-03")
def test_every_request_that_a_server_answers_has_a_row() -> None:
    served = {*CODES, *NAMESERVER_HANDLERS, Request.GET_ROUTEINFO_BY_TOPIC}
    assert served - NEEDS.keys() == set()


@pytest.mark.parametrize("code", [code for code in admin.REQUESTS if code in NEEDS and code not in IN_BODY])
def test_a_row_looks_at_fields_that_the_request_has(code: int) -> None:
    """A need of a field that the header does not have would be a need of null for everybody."""
    names = [field.encode_name for field in __import__("msgspec").structs.fields(admin.REQUESTS[code])]
    command = request(code, dict.fromkeys(names, "X"))
    assert "null" not in str(NEEDS[code](command, "DefaultCluster"))
