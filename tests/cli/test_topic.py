"""Checks `cometmq topic` against a real cluster of two brokers."""

import pytest

from cometmq.sync import Client as SyncClient
from cometmq.testing import SyncCluster
from tests.cli.conftest import Comet


def test_a_topic_is_made_on_every_broker_and_described_queue_by_queue(comet: Comet) -> None:
    made = comet.good("topic", "create", "TopicMade", "--queues", "3", "--kind", "NORMAL", "-o", "json").json
    assert made["topic"] == "TopicMade"
    assert made["queues"] == 6
    assert [on["broker"] for on in made["on"]] == ["broker-a", "broker-b"]
    comet.good("send", "TopicMade", "one", "two")
    told = comet.good("topic", "describe", "TopicMade", "-o", "json").json
    assert told["kind"] == "NORMAL"
    assert told["messages"] == 2
    assert len(told["queue_stats"]) == 6
    assert set(told["queue_stats"][0]) == {"broker", "queue", "begin", "end", "messages", "updated"}


def test_the_list_has_names_and_with_wide_output_their_places(comet: Comet) -> None:
    comet.good("topic", "create", "TopicListed", "--queues", "2")
    assert "TopicListed" in comet.good("topic", "list").out.splitlines()
    row = next(row for row in comet.good("topic", "list", "-o", "json").json if row["topic"] == "TopicListed")
    assert row == {
        "topic": "TopicListed",
        "kind": "UNSPECIFIED",
        "brokers": ["broker-a", "broker-b"],
        "queues": 4,
        "permissions": "rw",
        "ordered": False,
    }
    assert "PERMISSIONS" in comet.good("topic", "list", "-o", "wide").out
    assert "TBW102" not in comet.good("topic", "list").out
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in comet.good("topic", "list", "--system").out


def test_a_topic_can_get_more_queues_and_other_permissions(comet: Comet) -> None:
    comet.good("topic", "create", "TopicAltered", "--queues", "2")
    on = comet.good("topic", "alter", "TopicAltered", "--queues", "5", "--permissions", "r", "-o", "json").json["on"]
    assert [(one["write_queues"], one["read_queues"], one["permissions"]) for one in on] == [(5, 5, "r")] * 2
    nothing = comet("topic", "alter", "TopicAltered")
    assert (nothing.code, nothing.err.count("\n")) == (2, 1)
    assert "--queues" in nothing.err


def test_a_topic_gets_fewer_queues_by_a_plan_and_with_yes(comet: Comet) -> None:
    comet.good("topic", "create", "TopicNarrowed", "--queues", "4", "--broker", "broker-a")
    kept = comet.good("topic", "create", "TopicNarrowed", "--queues", "2", "--broker", "broker-a", "-o", "json")
    assert kept.json["queues"] == 4
    assert "cometmq topic narrow TopicNarrowed --queues 2" in kept.err
    refused = comet("topic", "alter", "TopicNarrowed", "--queues", "2")
    assert (refused.code, "topic narrow" in refused.err) == (2, True)
    plan = comet.good("topic", "narrow", "TopicNarrowed", "--queues", "2", "-o", "json")
    assert [(row["queue"], row["messages"], row["unread"]) for row in plan.json] == [(2, 0, {}), (3, 0, {})]
    assert "--yes" in plan.err
    assert comet.good("topic", "describe", "TopicNarrowed", "-o", "json").json["queues"] == 4
    done = comet.good("topic", "narrow", "TopicNarrowed", "--queues", "2", "--yes", "-o", "json").json
    assert [(on["write_queues"], on["read_queues"]) for on in done["on"]] == [(2, 2)]


def test_a_topic_that_a_group_has_not_read_is_not_narrowed_yet(comet: Comet) -> None:
    comet.good("topic", "create", "TopicUnread", "--queues", "3", "--broker", "broker-a")
    comet.good("send", "TopicUnread", *"abcdef")
    comet.good("group", "create", "slow")
    comet.good("group", "seek", "slow", "TopicUnread", "--to", "earliest", "--yes")
    left = comet("topic", "narrow", "TopicUnread", "--queues", "1", "--drain", "10ms", "--yes", "-o", "json")
    assert left.code == 1
    assert [row["unread"] for row in left.json] == [{"slow": 2}, {"slow": 2}]
    on = comet.good("topic", "describe", "TopicUnread", "-o", "json").json["on"]
    assert [(one["write_queues"], one["read_queues"]) for one in on] == [(1, 3)]


def test_update_gives_a_topic_to_one_more_broker_in_the_form_it_has(comet: Comet) -> None:
    comet.good("topic", "create", "TopicGrown", "--queues", "3", "--broker", "broker-a")
    ran = comet.good("topic", "update", "TopicGrown", "--broker", "broker-b", "-o", "json")
    assert {one["broker"]: one["write_queues"] for one in ran.json["on"]} == {"broker-a": 3, "broker-b": 3}
    assert "30 s" in ran.err


def test_a_topic_is_deleted_only_with_yes(comet: Comet) -> None:
    comet.good("topic", "create", "TopicGone", "--queues", "2")
    comet.good("send", "TopicGone", "x")
    plan = comet.good("topic", "delete", "TopicGone")
    assert plan.out == ""
    assert "4 queues, 1 messages" in plan.err
    assert "--yes" in plan.err
    assert "TopicGone" in comet.good("topic", "list").out
    done = comet.good("topic", "delete", "TopicGone", "--yes", "-o", "json").json
    assert done == {"topic": "TopicGone", "messages": 1, "deleted_from": ["broker-a", "broker-b"]}
    assert "TopicGone" not in comet.good("topic", "list").out


def test_the_route_names_brokers_and_addresses(comet: Comet, cluster: SyncCluster) -> None:
    comet.good("topic", "create", "TopicRouted", "--broker", "broker-b", "--queues", "1")
    (row,) = comet.good("topic", "route", "TopicRouted", "-o", "json").json
    assert row["broker"] == "broker-b"
    assert row["addresses"] == {"0": cluster.brokers[1].address}


def test_names_that_cannot_be_and_topics_that_are_not_there_are_one_line(comet: Comet) -> None:
    wrong = comet("topic", "create", "no good name")
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)
    missing = comet("topic", "describe", "TopicUnknown")
    assert (missing.code, missing.out, missing.err.count("\n")) == (6, "", 1)
    assert "cometmq topic create TopicUnknown" in missing.err
    nowhere = comet("topic", "create", "TopicNowhere", "--broker", "broker-z")
    assert nowhere.code == 6
    assert "broker-a" in nowhere.err


@pytest.mark.mission("FO-10")
def test_a_topic_grows_and_no_group_skips_what_comes_to_its_new_queues(comet: Comet, cluster: SyncCluster) -> None:
    grow = ("topic", "grow", "TopicSpread", "--sets", "broker-b", "--routes", "50ms", "-o", "json")
    comet.good("topic", "create", "TopicSpread", "--queues", "2", "--broker", "broker-a")
    comet.good("send", "TopicSpread", "one")
    comet.good("group", "create", "grown", "--broker", "broker-a")
    with SyncClient(cluster.namesrv) as client, client.admin() as admin:
        for queue in admin.topic_queues("TopicSpread"):
            admin.commit_offset("grown", queue, 1)
    planned = comet.good(*grow)
    assert "nothing was changed" in planned.err
    assert comet.good("topic", "describe", "TopicSpread", "-o", "json").json["brokers"] == ["broker-a"]
    grown = comet.good(*grow, "--yes").json
    assert (grown["new"], grown["queues"], grown["offsets"]) == (["broker-b"], 2, 2)
    on = comet.good("topic", "describe", "TopicSpread", "-o", "json").json["on"]
    assert [(one["broker"], one["permissions"]) for one in on] == [("broker-a", "rw"), ("broker-b", "rw")]
    lags = comet.good("group", "lag", "grown", "-o", "json").json["queues"]
    assert sorted((lag["broker"], lag["committed"]) for lag in lags) == [
        ("broker-a", 1), ("broker-a", 1), ("broker-b", 0), ("broker-b", 0)
    ]  # fmt: skip
    assert comet.good(*grow, "--yes").json["new"] == []


@pytest.mark.mission("FO-10")
def test_growing_goes_on_where_it_was_interrupted(comet: Comet) -> None:
    comet.good("topic", "create", "TopicHalfGrown", "--queues", "2", "--broker", "broker-a")
    comet.good("topic", "create", "TopicHalfGrown", "--queues", "2", "--broker", "broker-b", "--permissions", "r")
    grow = ("topic", "grow", "TopicHalfGrown", "--sets", "broker-b", "--routes", "50ms", "--yes", "-o", "json")
    assert comet.good(*grow).json["new"] == ["broker-b"]
    assert comet.good("topic", "describe", "TopicHalfGrown", "-o", "json").json["permissions"] == "rw"


def test_an_ordered_topic_does_not_grow_unless_it_is_said_what_breaks(comet: Comet) -> None:
    comet.good("topic", "create", "TopicOrderedGrown", "--kind", "FIFO", "--broker", "broker-a")
    refused = comet("topic", "grow", "TopicOrderedGrown", "--sets", "broker-b", "--yes")
    assert refused.code == 7
    assert "--breaks-key-order" in refused.err
    assert comet("topic", "grow", "TopicOrderedGrown", "--sets", "broker-x").code == 6
