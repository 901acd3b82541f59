"""Bodies that real programs sent: they decode, and encode to the same bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from cometmq.wire.bodies import (
    Body,
    CheckClientConfig,
    ClusterInfo,
    ConsumerList,
    ConsumerOffsetTable,
    ConsumeStats,
    DelayOffsetTable,
    HeartbeatData,
    LockBatchRequest,
    LockBatchResponse,
    RegisterBrokerBody,
    ResetOffsets,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TimerCounts,
    TopicConfigAndMapping,
    TopicConfigTable,
    TopicList,
    TopicRoute,
    TopicStats,
    TransactionCounts,
)
from cometmq.wire.command import decode
from cometmq.wire.fastjson.dialect import loads
from tests.support.golden import golden_frames, golden_store

REQUESTS: dict[int, type[Body]] = {
    34: HeartbeatData,
    41: LockBatchRequest,
    42: LockBatchRequest,
    46: CheckClientConfig,
    103: RegisterBrokerBody,
    200: SubscriptionGroupConfig,
}
RESPONSES: dict[int, type[Body]] = {
    38: ConsumerList,
    41: LockBatchResponse,
    105: TopicRoute,
    106: ClusterInfo,
    202: TopicStats,
    206: TopicList,
    208: ConsumeStats,
    222: ResetOffsets,
    351: TopicConfigAndMapping,
}
# Requests whose bodies are messages, not JSON.
MESSAGES = {10, 11, 12, 39, 310, 320, 361}


def json_bodies() -> list[tuple[dict[str, Any], bytes]]:
    rows = []
    for row in golden_frames():
        frame = bytes.fromhex(row["frame_hex"])
        body = decode(frame, 4, len(frame)).body
        if body and row["request_code"] not in MESSAGES:
            rows.append((row, body))
    return rows


@pytest.mark.parametrize(
    ("row", "body"), json_bodies(), ids=[f"{row['request_code']}-{row['kind']}" for row, _ in json_bodies()]
)
def test_a_recorded_body_is_reproduced(row: dict[str, Any], body: bytes) -> None:
    kind = (REQUESTS if row["kind"] == "request" else RESPONSES)[row["request_code"]]
    value = kind.decode(body)
    written = value.encode(standard=True) if isinstance(value, TopicRoute) else value.encode()
    assert written == body
    assert kind.decode(written) == value


def config_file(name: str) -> Path:
    return golden_store("clean") / "config" / name


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TopicConfigTable, "topics.json"),
        (SubscriptionGroupTable, "subscriptionGroup.json"),
        (ConsumerOffsetTable, "consumerOffset.json"),
        (DelayOffsetTable, "delayOffset.json"),
        (TransactionCounts, "transactionMetrics"),
        (TimerCounts, "timermetrics"),
    ],
)
def test_a_config_file_of_a_java_broker_keeps_its_meaning(kind: type[Body], name: str) -> None:
    tree = loads(config_file(name).read_bytes())
    value = kind.decode(config_file(name).read_bytes())
    assert kind.decode(value.encode()) == value
    written = loads(value.encode())
    assert {member: written[member] for member in written if member in tree} == {
        member: tree[member] for member in tree if member in written
    }
    assert tree.keys() - written.keys() <= {"groupTopicMap"}


def test_the_standard_route_is_standard_json_and_the_other_has_bare_numbers() -> None:
    (body,) = {body for row, body in json_bodies() if row["request_code"] == 105}
    route = TopicRoute.decode(body)
    assert json.loads(route.encode(standard=True))["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    assert b'"brokerAddrs":{0:"127.0.0.1:10911"}' in route.encode()
    assert TopicRoute.decode(route.encode()) == route
