# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Bodies that other bodies consist of, and the smallest of those that stand alone."""

from __future__ import annotations

from typing import ClassVar

from cometmq.wire.bodies.base import I32, I64, Body


class DataVersion(Body, frozen=True):  # type: ignore[misc]  # Body has no fields to thaw
    """Version of a config table. Two are equal when all three numbers are."""

    STANDARD_FORM: ClassVar[bool] = True

    counter: I64 = 0
    state_version: I64 = 0
    timestamp: I64 = 0


class MessageQueue(Body, frozen=True, order=True):  # type: ignore[misc]
    """One queue of a topic on one broker; also a key of maps."""

    STANDARD_FORM: ClassVar[bool] = True

    broker_name: str = ""
    queue_id: I32 = 0
    topic: str = ""


class KVTable(Body):
    table: dict[str, str] = {}


class TopicList(Body):
    topic_list: list[str] = []
    broker_addr: str | None = None


class GroupList(Body):
    group_list: list[str] = []
