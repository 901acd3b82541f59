"""Members of consumer and producer groups: who hears of what, who expires, what a group subscribes to."""

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.filters import Subscription
from cometmq.broker.tables.sessions import Consumers, Member, Notice, Producers
from cometmq.wire.bodies import ConsumerData, SubscriptionData
from tests.broker.assembly import FakeLink


def member(link: FakeLink, client_id: str = "client", seen_ms: int = 0) -> Member:
    return Member(link, client_id, 0, 513, seen_ms)


def consumer(*topics: str, group: str = "g", version: int = 1, model: str = "CLUSTERING") -> ConsumerData:
    subscriptions = [SubscriptionData(topic=topic, sub_string="*", sub_version=version) for topic in topics]
    return ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=subscriptions,
    )


def new_consumers() -> Consumers:
    config = BrokerConfig()
    return Consumers(lambda: config)


def links_of(notice: Notice | None) -> list[str]:
    return sorted(link.peer_text for link in notice.links) if notice is not None else []


ONE, TWO = FakeLink("192.0.2.1:1"), FakeLink("192.0.2.2:2")


def test_a_newcomer_and_all_members_hear_of_it() -> None:
    consumers = new_consumers()

    assert links_of(consumers.register(consumer("T"), member(ONE, "one"), notify=True)) == [ONE.peer_text]
    joined = consumers.register(consumer("T"), member(TWO, "two"), notify=True)
    assert joined is not None
    assert joined.group == "g"
    assert links_of(joined) == [ONE.peer_text, TWO.peer_text]
    assert consumers.table["g"].client_ids() == ["one", "two"]


def test_a_heartbeat_without_news_is_no_change() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE), notify=True)

    assert consumers.register(consumer("T"), member(ONE, seen_ms=30_000), notify=True) is None
    assert consumers.table["g"].members[ONE].seen_ms == 30_000


def test_broadcasting_groups_and_groups_that_do_not_want_it_hear_nothing() -> None:
    consumers = new_consumers()

    broadcast = consumer("T", group="b", model="BROADCASTING")
    assert consumers.register(broadcast, member(ONE), notify=True) is None
    assert consumers.register(consumer("T", group="quiet"), member(ONE), notify=False) is None
    consumers.register(consumer("T", group="quiet"), member(TWO), notify=False)
    assert consumers.on_close(ONE) == []


def test_topics_that_come_and_go_are_changes_but_newer_versions_are_not() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE), notify=True)
    group = consumers.table["g"]

    assert consumers.register(consumer("T", version=2), member(ONE), notify=True) is None
    assert group.subscriptions["T"].version == 2
    assert consumers.register(consumer("T", version=1), member(ONE), notify=True) is None
    assert group.subscriptions["T"].version == 2

    assert links_of(consumers.register(consumer("T", "U"), member(ONE), notify=True)) == [ONE.peer_text]
    assert links_of(consumers.register(consumer("U"), member(ONE), notify=True)) == [ONE.peer_text]
    assert sorted(group.subscriptions) == ["U"]


def test_the_last_heartbeat_of_any_member_says_what_the_group_is() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE, "one"), notify=True)
    other = consumer("U")
    other.consume_from_where = "CONSUME_FROM_FIRST_OFFSET"
    consumers.register(other, member(TWO, "two"), notify=True)

    group = consumers.table["g"]
    assert sorted(group.subscriptions) == ["U"]
    assert group.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"


def test_a_heartbeat_without_subscriptions_keeps_those_that_are_known() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE), notify=True)

    assert consumers.register(consumer(), member(ONE), notify=True, with_subscriptions=False) is None
    assert sorted(consumers.table["g"].subscriptions) == ["T"]


def test_another_client_id_on_the_same_connection_takes_its_place() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE, "old"), notify=True)

    assert consumers.register(consumer("T"), member(ONE, "new"), notify=True) is None
    assert consumers.table["g"].client_ids() == ["new"]


def test_a_client_that_reconnects_is_listed_once() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE, "same"), notify=True)
    consumers.register(consumer("T"), member(TWO, "same"), notify=True)
    assert consumers.table["g"].client_ids() == ["same"]

    consumers.on_close(ONE)
    assert consumers.table["g"].client_ids() == ["same"]


def test_who_closes_leaves_every_group_and_the_rest_hear_of_it() -> None:
    consumers = new_consumers()
    for group in ("g", "h"):
        consumers.register(consumer("T", group=group), member(ONE, "one"), notify=True)
        consumers.register(consumer("T", group=group), member(TWO, "two"), notify=True)
    consumers.register(consumer("T", group="alone"), member(ONE, "one"), notify=True)

    notices = consumers.on_close(ONE)

    assert [notice.group for notice in notices] == ["g", "h"]
    assert all(links_of(notice) == [TWO.peer_text] for notice in notices)
    assert consumers.get("alone") is None
    assert consumers.on_close(ONE) == []


def test_who_unregisters_leaves_one_group() -> None:
    consumers = new_consumers()
    for group in ("g", "h"):
        consumers.register(consumer("T", group=group), member(ONE, "one"), notify=True)
    consumers.register(consumer("T"), member(TWO, "two"), notify=True)

    assert links_of(consumers.unregister("g", ONE)) == [TWO.peer_text]
    assert consumers.unregister("g", ONE) is None
    assert consumers.unregister("unknown", ONE) is None
    assert consumers.table["h"].client_ids() == ["one"]
    assert consumers.unregister("h", ONE) is None
    assert consumers.get("h") is None


def test_a_member_is_silent_for_more_than_two_minutes_before_it_expires() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE, "one", seen_ms=0), notify=True)
    consumers.register(consumer("T"), member(TWO, "two", seen_ms=5), notify=True)

    assert consumers.expire(120_000) == []
    assert consumers.expire(120_001) == [ONE]
    assert consumers.table["g"].client_ids() == ["two"]


def test_expiry_in_one_group_leaves_the_others_to_the_closing_connection() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T", group="left"), member(ONE, "one", seen_ms=0), notify=True)
    consumers.register(consumer("T", group="kept"), member(ONE, "one", seen_ms=100_000), notify=True)
    consumers.register(consumer("T", group="kept"), member(TWO, "two", seen_ms=100_000), notify=True)

    assert consumers.expire(130_000) == [ONE]
    assert consumers.get("left") is None
    assert [notice.group for notice in consumers.on_close(ONE)] == ["kept"]


def test_a_fingerprint_asks_for_the_full_form_when_it_changed_or_nothing_is_known() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE), notify=True)
    group = consumers.table["g"]

    assert not group.take_fingerprint(11, short=False)
    assert not group.take_fingerprint(11, short=True)
    assert group.take_fingerprint(12, short=False)
    assert not group.take_fingerprint(12, short=True)

    consumers.register(consumer(group="new"), member(ONE), notify=True, with_subscriptions=False)
    assert consumers.table["new"].take_fingerprint(11, short=True)


def test_subscribers_of_a_topic_are_groups_with_a_live_member() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T", "U", group="b"), member(ONE), notify=True)
    consumers.register(consumer("T", group="a"), member(ONE), notify=True)

    assert consumers.subscribers("T") == ["a", "b"]
    assert consumers.subscribers("U") == ["b"]
    consumers.on_close(ONE)
    assert consumers.subscribers("T") == []


def test_a_consumer_that_only_pulls_is_visible_for_ten_minutes() -> None:
    consumers = new_consumers()
    pulled = Subscription(SubscriptionData(topic="T", sub_string="A"))
    consumers.note_pull("g", "T", pulled, 1_000)

    assert consumers.find_subscription("g", "T") is pulled
    assert consumers.find_subscription("g", "U") is None
    consumers.expire(601_000)
    assert consumers.find_subscription("g", "T") is pulled
    consumers.expire(601_001)
    assert consumers.find_subscription("g", "T") is None


def test_a_heartbeat_says_more_than_a_pull() -> None:
    consumers = new_consumers()
    consumers.note_pull("g", "T", Subscription(SubscriptionData(topic="T", sub_string="A")), 0)
    consumers.register(consumer("T"), member(ONE), notify=True)

    found = consumers.find_subscription("g", "T")
    assert found is consumers.table["g"].subscriptions["T"]


def test_members_are_found_by_client_id() -> None:
    consumers = new_consumers()
    consumers.register(consumer("T"), member(ONE, "one"), notify=True)

    found = consumers.find_member("g", "one")
    assert found is not None
    assert found.link is ONE
    assert consumers.find_member("g", "two") is None
    assert consumers.find_member("h", "one") is None


def test_postponed_notices_are_sent_once_and_only_the_last_of_a_group() -> None:
    consumers = new_consumers()
    first = consumers.register(consumer("T"), member(ONE, "one"), notify=True)
    second = consumers.register(consumer("T"), member(TWO, "two"), notify=True)
    assert first is not None
    assert second is not None
    consumers.postpone(first)
    consumers.postpone(second)

    assert consumers.take_postponed() == [second]
    assert consumers.take_postponed() == []


def test_a_producer_is_found_by_client_id_until_its_last_group_is_gone() -> None:
    producers = Producers()
    producers.register("p", member(ONE, "one"))
    producers.register("q", member(ONE, "one"))
    assert producers.find("one") is ONE

    producers.unregister("p", ONE)
    producers.unregister("p", ONE)
    assert producers.find("one") is ONE
    assert "p" not in producers.table
    producers.on_close(ONE)
    assert producers.find("one") is None
    assert producers.table == {}


def test_the_close_of_an_old_connection_does_not_hide_the_new_one() -> None:
    producers = Producers()
    producers.register("p", member(ONE, "same"))
    producers.register("p", member(TWO, "same"))

    producers.on_close(ONE)
    assert producers.find("same") is TWO


def test_producers_expire_after_two_minutes_of_silence() -> None:
    producers = Producers()
    producers.register("p", member(ONE, "one", seen_ms=0))
    producers.register("p", member(TWO, "two", seen_ms=0))
    producers.register("p", member(TWO, "two", seen_ms=10_000))

    assert producers.expire(120_000) == []
    assert producers.expire(120_001) == [ONE]
    assert list(producers.table["p"]) == [TWO]


def test_connections_of_a_producer_group_are_picked_in_turn() -> None:
    producers = Producers()
    producers.register("p", member(ONE, "one"))
    producers.register("p", member(TWO, "two"))

    picked = [producers.pick("p") for _ in range(4)]
    assert picked[0] is not picked[1]
    assert picked[:2] == picked[2:]
    assert producers.pick("unknown") is None


@pytest.mark.parametrize("rounds", range(3))
def test_a_connection_that_takes_data_is_preferred_and_a_closed_one_avoided(rounds: int) -> None:
    producers = Producers()
    closed, full, ready = FakeLink("c", is_open=False), FakeLink("f", is_writable=False), FakeLink("r")
    for link in (closed, full, ready):
        producers.register("p", member(link, link.peer_text))
    for _ in range(rounds):
        producers.pick("p")
    assert producers.pick("p") is ready

    producers.on_close(ready)
    assert producers.pick("p") is full
    producers.on_close(full)
    assert producers.pick("p") is None
