"""What a group wants of a topic, in the form in which it is tested.

A tag filter is a set of hash codes: `A || B` becomes {hash("A"), hash("B")}, and a queue entry carries the hash of its
message's tag. Equal hashes of different tags pass here; the client compares the texts. Everything is `*`, an empty
expression, or none.

`matches` is the whole test for whoever reads queues: None lets all pass, else it is asked with the hash code of an
entry. A property filter (SQL92) cannot be tested that way, it needs the properties of the message; such a subscription
has `is_tag` False, and `fault_of` says whether this broker can serve it. See propertyfilters.py and sql/

Class filters, for which RocketMQ once compiled source that a client sent, let everything pass; nothing is run.
"""

from collections.abc import Callable
from typing import Final

from cometmq.broker.sql import TYPE as SQL92
from cometmq.errors import RequestError
from cometmq.wire.bodies import SubscriptionData
from cometmq.wire.codes import Response
from cometmq.wire.hashing import java_string_hash

TAG: Final = "TAG"
ALL: Final = "*"

TagMatch = Callable[[int], bool]


class Subscription:
    """A value: a newer version of it is another object. `data` is as its client wrote it."""

    __slots__ = ("topic", "version", "is_tag", "matches", "data")

    def __init__(self, data: SubscriptionData) -> None:
        self.topic: str = data.topic or ""
        self.version: int = data.sub_version
        self.is_tag: bool = is_tag_type(data.expression_type)
        self.matches: TagMatch | None = _tag_match(data) if self.is_tag else None
        self.data: SubscriptionData = data


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == TAG


def parse(topic: str, expression: str | None, expression_type: str | None, version: int) -> Subscription:
    """The subscription that a pull carries with it. Raises RequestError (23) for one that says nothing."""
    if not is_tag_type(expression_type):
        if not expression:
            raise RequestError(
                Response.SUBSCRIPTION_PARSE_FAILED, f"the {expression_type} expression for topic {topic} is empty"
            )
        return Subscription(SubscriptionData(expression_type=expression_type, sub_string=expression,
                                             sub_version=version, topic=topic))  # fmt: skip
    if is_everything(expression):
        return Subscription(SubscriptionData(sub_string=ALL, sub_version=version, topic=topic))
    tags = split_tags(expression or "")
    if not tags:
        raise RequestError(
            Response.SUBSCRIPTION_PARSE_FAILED,
            f"the expression {(expression or '')[:80]!r} for topic {topic} has no tag in it: use * or A || B",
        )
    return Subscription(
        SubscriptionData(
            code_set={java_string_hash(tag) for tag in tags},
            sub_string=expression,
            sub_version=version,
            tags_set=set(tags),
            topic=topic,
        )
    )


def is_everything(expression: str | None) -> bool:
    return not expression or expression == ALL


def split_tags(expression: str) -> list[str]:
    return [tag for part in expression.split("||") if (tag := part.strip())]


def fault_of(expression_type: str | None, property_filter_enabled: bool) -> tuple[int, str] | None:
    """Why this broker cannot filter by such an expression, as response code and remark; None if it can."""
    if is_tag_type(expression_type):
        return None
    if not property_filter_enabled:
        return (
            Response.SYSTEM_ERROR,
            f"the broker does not filter messages by {expression_type}: set enablePropertyFilter=true, or use tags",
        )
    if expression_type != SQL92:
        return (
            Response.SUBSCRIPTION_PARSE_FAILED,
            f"expressions of type {(expression_type or '')[:40]} are not known: use {TAG} or {SQL92}",
        )
    return None


def _tag_match(data: SubscriptionData) -> TagMatch | None:
    if data.class_filter_mode or is_everything(data.sub_string):
        return None
    # Some clients leave the codes to the broker.
    codes = data.code_set or {java_string_hash(tag) for tag in split_tags(data.sub_string or "")}
    return frozenset(codes).__contains__
