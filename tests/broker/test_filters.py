"""Tag filters, and the place of property filters."""

import pytest

from cometmq.broker import filters
from cometmq.broker.filters import Subscription
from cometmq.errors import RequestError
from cometmq.wire.bodies import SubscriptionData
from cometmq.wire.hashing import java_string_hash


@pytest.mark.parametrize("expression", ["*", "", None])
def test_everything_needs_no_test(expression: str | None) -> None:
    assert Subscription(SubscriptionData(topic="T", sub_string=expression)).matches is None
    parsed = filters.parse("T", expression, None, 3)
    assert parsed.matches is None
    assert (parsed.data.sub_string, parsed.version, parsed.topic) == ("*", 3, "T")


def test_tags_are_compared_by_their_java_hash() -> None:
    matches = filters.parse("T", " TagA || TagB||", "TAG", 1).matches

    assert matches is not None
    assert matches(java_string_hash("TagA"))
    assert matches(java_string_hash("TagB"))
    assert not matches(java_string_hash("TagC"))
    assert not matches(0)


def test_tags_with_equal_hashes_both_pass() -> None:
    assert java_string_hash("Aa") == java_string_hash("BB")
    matches = filters.parse("T", "Aa", "TAG", 1).matches

    assert matches is not None
    assert matches(java_string_hash("BB"))


def test_the_codes_of_the_client_count() -> None:
    matches = Subscription(SubscriptionData(topic="T", sub_string="A", code_set={-7})).matches

    assert matches is not None
    assert matches(-7)
    assert not matches(java_string_hash("A"))


def test_codes_that_a_client_left_out_are_computed() -> None:
    matches = Subscription(SubscriptionData(topic="T", sub_string="A || B")).matches

    assert matches is not None
    assert matches(java_string_hash("B"))


def test_class_filter_mode_lets_all_pass() -> None:
    assert Subscription(SubscriptionData(topic="T", sub_string="A", class_filter_mode=True)).matches is None


@pytest.mark.parametrize("expression", ["||", " || ", "|| ||"])
def test_an_expression_without_tag_is_refused_in_a_pull_and_matches_nothing_in_a_heartbeat(expression: str) -> None:
    with pytest.raises(RequestError, match="no tag in it") as caught:
        filters.parse("T", expression, "TAG", 1)
    assert caught.value.code == 23

    matches = Subscription(SubscriptionData(topic="T", sub_string=expression)).matches
    assert matches is not None
    assert not matches(0)


def test_a_property_expression_is_kept_as_it_is() -> None:
    parsed = filters.parse("T", "a > 1", "SQL92", 5)

    assert not parsed.is_tag
    assert (parsed.data.sub_string, parsed.data.expression_type) == ("a > 1", "SQL92")
    with pytest.raises(RequestError, match="is empty") as caught:
        filters.parse("T", "", "SQL92", 5)
    assert caught.value.code == 23


def test_what_can_be_served() -> None:
    for tag in ("TAG", "", None):
        assert filters.fault_of(tag, False) is None
    switched_off = filters.fault_of("SQL92", False)
    assert switched_off is not None
    assert switched_off[0] == 1
    assert "enablePropertyFilter=true" in switched_off[1]
    assert filters.fault_of("SQL92", True) is None
    unknown = filters.fault_of("XPATH", True)
    assert unknown is not None
    assert unknown[0] == 23
    assert "XPATH" in unknown[1]
