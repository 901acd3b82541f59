"""What a group wants of a topic, in the form in which it is tested.

A tag filter is a set of hash codes: `A || B` becomes {hash("A"), hash("B")}, and a queue entry carries the hash of its
message's tag. Equal hashes of different tags pass here; the client compares the texts. Everything is `*`, an empty
expression, or none.

`matches` is the whole test for whoever reads queues: None lets all pass, else it is asked with the hash code of an
entry. A property filter (SQL92) cannot be tested that way, it needs the properties of the message; such a subscription
has `is_tag` False, and `fault_of` says whether this broker can serve it. See property_filters.py and sql/

Class filters, for which RocketMQ once compiled source that a client sent, let everything pass; nothing is run.
"""

from typing import Final

from cometmq import names
from cometmq.broker.matching import TagMatch
from cometmq.broker.sql import TYPE as SQL92
from cometmq.errors import RequestError
from cometmq.wire.bodies import SubscriptionData
from cometmq.wire.codes import Response
from cometmq.wire.hashing import java_string_hash

TAG: Final = "TAG"
ALL: Final = "*"

# A tag costs ten times its text: as a text of its own, as a hash code, in two sets.
EXPRESSION_CHARS_MAX: Final = 32_768
TAGS_MAX: Final = 1_000
TAG_BYTES: Final = 250
# Subscriptions that pulls carry are read once: the texts that were seen last, and what they were read as.
CACHE_MAX: Final = 200
CACHED_CHARS_MAX: Final = 512

_parsed: Final[dict[tuple[str, str, str, int], "Subscription"]] = {}


class Subscription:
    """A value: a newer version of it is another object. `data` is as its client wrote it."""

    __slots__ = ("topic", "version", "is_tag", "matches", "data", "kept_bytes")

    def __init__(self, data: SubscriptionData) -> None:
        self.topic: str = data.topic or ""
        self.version: int = data.sub_version
        self.is_tag: bool = is_tag_type(data.expression_type)
        self.matches: TagMatch | None = _tag_match(data) if self.is_tag else None
        self.data: SubscriptionData = data
        self.kept_bytes: int = kept_bytes(data)


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == TAG


def kept_bytes(data: SubscriptionData) -> int:
    """What is kept of a subscription, about."""
    texts = len(data.topic or "") + len(data.sub_string or "") + sum(map(len, data.tags_set))
    return 600 + texts + TAG_BYTES * max(len(data.code_set), len(data.tags_set))


def size_fault(data: SubscriptionData) -> str | None:
    """Why a subscription is too large to be kept; None if it is not."""
    chars = len(data.sub_string or "")
    tags = max(len(data.code_set), len(data.tags_set))
    fault = None
    if chars > EXPRESSION_CHARS_MAX:
        fault = f"has {chars} characters, at most {EXPRESSION_CHARS_MAX}"
    elif tags > TAGS_MAX or (is_tag_type(data.expression_type) and (data.sub_string or "").count("||") >= TAGS_MAX):
        fault = f"has {max(tags, (data.sub_string or '').count('||') + 1)} tags, at most {TAGS_MAX}"
    elif sum(map(len, data.tags_set)) > EXPRESSION_CHARS_MAX:
        fault = f"has tags of {sum(map(len, data.tags_set))} characters, at most {EXPRESSION_CHARS_MAX}"
    elif len(data.topic or "") > names.RETRY_TOPIC_CHARS_MAX:
        return f"the topic of a subscription has {len(data.topic or '')} characters"
    if fault is None:
        return None
    return f"the subscription to {(data.topic or '')[:80]} {fault} are allowed: use fewer tags"


def parse(topic: str, expression: str | None, expression_type: str | None, version: int) -> Subscription:
    """The subscription that a pull carries with it. Raises RequestError (23) for one that says nothing."""
    if len(expression or "") > CACHED_CHARS_MAX or len(topic) > names.RETRY_TOPIC_CHARS_MAX:
        return _parse(topic, expression, expression_type, version)
    key = (topic, expression or "", expression_type or "", version)
    found = _parsed.get(key)
    if found is None:
        found = _parse(topic, expression, expression_type, version)
        if len(_parsed) >= CACHE_MAX:
            del _parsed[next(iter(_parsed))]
        _parsed[key] = found
    return found


def _parse(topic: str, expression: str | None, expression_type: str | None, version: int) -> Subscription:
    fault = size_fault(SubscriptionData(expression_type=expression_type, sub_string=expression, topic=topic))
    if fault is not None:
        raise RequestError(Response.SUBSCRIPTION_PARSE_FAILED, fault)
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
