"""Checks `cometmq group` against a real cluster: settings, progress, moving."""

import time

import pytest

from cometmq.sync import Client as SyncClient
from cometmq.testing import SyncCluster
from tests.cli.conftest import Comet
from tests.compat.harness.processes import wait_until


def filled(comet: Comet, topic: str, count: int = 8) -> None:
    """A topic with two queues, and as many messages."""
    comet.good("topic", "create", topic, "--queues", "1")
    comet.good("send", topic, *[str(number) for number in range(count)])


def test_a_group_is_made_described_changed_and_deleted(comet: Comet) -> None:
    made = comet.good("group", "create", "GroupMade", "--retries", "3", "--no-broadcast", "-o", "json").json
    assert made["brokers"] == ["broker-a", "broker-b"]
    assert (made["retries_max"], made["enabled"], made["broadcast_allowed"]) == (3, True, False)
    changed = comet.good("group", "alter", "GroupMade", "--disable", "-o", "json").json
    assert (changed["enabled"], changed["retries_max"]) == (False, 3)
    assert comet.good("group", "alter", "GroupMade", "--enable", "-o", "json").json["enabled"] is True
    told = comet.good("group", "describe", "GroupMade", "-o", "json").json
    assert told["members"] == []
    assert told["retries_max"] == 3
    assert "GroupMade" in comet.good("group", "list").out
    comet.good("group", "delete", "GroupMade")
    assert "GroupMade" in comet.good("group", "list").out
    comet.good("group", "delete", "GroupMade", "--yes")
    assert "GroupMade" not in comet.good("group", "list").out


def test_seek_shows_its_plan_and_acts_with_yes(comet: Comet) -> None:
    filled(comet, "TopicSought")
    comet.good("group", "create", "GroupSought")
    plan = comet.good("group", "seek", "GroupSought", "TopicSought", "--to", "latest", "-o", "json")
    assert [(row["broker"], row["before"], row["after"]) for row in plan.json] == [
        ("broker-a", None, 4),
        ("broker-b", None, 4),
    ]
    assert "--yes" in plan.err
    assert comet.good("group", "lag", "GroupSought", "-o", "json").json["queues"] == []
    done = comet.good("group", "seek", "GroupSought", "TopicSought", "--to", "latest", "--yes")
    assert "read back as planned" in done.err
    lag = comet.good("group", "lag", "GroupSought", "-o", "json").json
    assert [(row["committed"], row["end"], row["behind"]) for row in lag["queues"]] == [(4, 4, 0)] * 2


@pytest.mark.parametrize(("place", "after"), [("earliest", 0), ("2", 2), ("-1h", 0), ("999", 4)])
def test_seek_knows_places_times_and_offsets(place: str, after: int, comet: Comet) -> None:
    topic = f"TopicPlaced{place.strip('-')}"
    filled(comet, topic)
    comet.good("group", "create", "GroupPlaced")
    ran = comet.good("group", "seek", "GroupPlaced", topic, "--to", place, "--yes", "-o", "json")
    assert [row["after"] for row in ran.json] == [after] * 2
    assert "read back as planned" in ran.err


def test_seek_goes_to_where_another_group_is(comet: Comet) -> None:
    filled(comet, "TopicFollowed")
    comet.good("group", "create", "GroupAhead")
    comet.good("group", "create", "GroupAfter")
    comet.good("group", "seek", "GroupAhead", "TopicFollowed", "--to", "3", "--yes")
    ran = comet.good("group", "seek", "GroupAfter", "TopicFollowed", "--to", "GroupAhead", "--yes", "-o", "json")
    assert [row["after"] for row in ran.json] == [3, 3]
    wrong = comet("group", "seek", "GroupAfter", "TopicFollowed", "--to", "yesterdayish")
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (6, "", 1)
    nobody = comet("group", "seek", "GroupNobodyMade", "TopicFollowed", "--to", "earliest", "--yes")
    assert (nobody.code, nobody.out, nobody.err.count("\n")) == (6, "", 1)
    assert "cometmq group create GroupNobodyMade" in nobody.err


def test_clone_lets_a_new_group_go_on_where_another_is(comet: Comet) -> None:
    filled(comet, "TopicCloned")
    comet.good("group", "create", "GroupSource")
    comet.good("group", "seek", "GroupSource", "TopicCloned", "--to", "1", "--yes")
    plan = comet.good("group", "clone", "GroupSource", "GroupClone", "-o", "json")
    assert [(row["before"], row["after"]) for row in plan.json] == [(None, 1)] * 2
    assert "GroupClone" not in comet.good("group", "list").out
    comet.good("group", "clone", "GroupSource", "GroupClone", "--yes")
    lag = comet.good("group", "lag", "GroupClone", "--topic", "TopicCloned", "-o", "json").json
    assert [row["committed"] for row in lag["queues"]] == [1, 1]


def test_a_group_can_be_told_to_pop_and_to_pull_again(comet: Comet) -> None:
    comet.good("topic", "create", "TopicPopped", "--queues", "1")
    comet.good("group", "create", "GroupPopping")
    for mode in ("pop", "pull"):
        told = comet.good("group", "mode", "GroupPopping", "TopicPopped", mode, "-o", "json").json
        assert (told["mode"], told["brokers"]) == (mode, ["broker-a", "broker-b"])
    assert comet("group", "mode", "GroupPopping", "TopicUnknown", "pop").code == 6


def test_lag_of_a_group_that_nobody_is_in_says_so(comet: Comet) -> None:
    filled(comet, "TopicBehind")
    comet.good("group", "create", "GroupBehind")
    comet.good("group", "seek", "GroupBehind", "TopicBehind", "--to", "earliest", "--yes")
    ran = comet.good("group", "lag", "GroupBehind")
    assert "8 behind in 2 queues, 0 members" in ran.err
    assert "nobody consumes" in ran.err
    whole = comet.good("group", "lag", "GroupBehind", "-o", "json").json
    assert set(whole) == {"group", "behind", "members", "idle", "advice", "queues"}
    assert whole["behind"] == 8
    assert comet("group", "lag", "GroupNobodyMade").code == 6


def test_the_wide_list_has_members_and_lag(comet: Comet) -> None:
    comet.good("group", "create", "GroupListed")
    row = next(row for row in comet.good("group", "list", "-o", "json").json if row["group"] == "GroupListed")
    assert row == {"group": "GroupListed", "members": 0, "model": None, "behind": 0, "topics": []}


def test_producers_are_listed_by_group_while_they_are_connected(comet: Comet, cluster: SyncCluster) -> None:
    comet.good("topic", "create", "TopicProduced", "--queues", "1")
    with SyncClient(cluster.namesrv) as client, client.producer("GroupProducing") as producer:
        producer.send("TopicProduced", b"x")
        # Its heartbeat goes out beside what it sends.
        wait_until(lambda: comet("group", "producers", "GroupProducing").code == 0, "the producer at the broker")
        (row,) = comet.good("group", "producers", "GroupProducing", "-o", "json").json
        assert set(row) == {"group", "client_id", "address", "language"}
        assert row["group"] == "GroupProducing"
        assert "GroupProducing" in comet.good("group", "producers").out
    missing = comet("group", "producers", "GroupNobodyMade")
    assert (missing.code, missing.out, missing.err.count("\n")) == (6, "", 1)


def test_seek_to_a_moment_goes_to_the_first_message_after_it(comet: Comet) -> None:
    filled(comet, "TopicTimed", 2)
    comet.good("group", "create", "GroupTimed")
    time.sleep(0.02)
    middle_ms = int(time.time() * 1000)
    time.sleep(0.02)
    comet.good("send", "TopicTimed", "late", "later")
    ran = comet.good("group", "seek", "GroupTimed", "TopicTimed", "--to", str(middle_ms), "-o", "json")
    assert sum(row["after"] for row in ran.json) == 2
