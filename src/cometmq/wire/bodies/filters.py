# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Property filters of consumer groups: the file consumerFilter.json."""

from __future__ import annotations

from cometmq.wire.bodies.base import I32, I64, Body


class BloomFilterData(Body):
    bit_num: I32 = 0
    bit_pos: list[I32] = []


class FilterData(Body):
    """`dead_time` 0 is a filter in use. RocketMQ writes `dead` along and does not read it."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: I64 = 0
    client_version: I64 = 0
    consumer_group: str | None = None
    dead: bool = False
    dead_time: I64 = 0
    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None


class TopicFilters(Body):
    group_filter_data: dict[str, FilterData] = {}
    topic: str | None = None


class FilterTable(Body):
    """By topic and group."""

    filter_data_by_topic: dict[str, TopicFilters] = {}
