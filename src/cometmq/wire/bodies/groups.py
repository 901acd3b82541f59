# ruff: noqa: RUF012 - msgspec gives every struct its own copy of an empty default
"""Consumer group configurations. A missing member means Java's default, which is rarely zero."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from cometmq.wire.bodies.base import I32, I64, Body, EnumName, enum_name
from cometmq.wire.bodies.common import DataVersion

RETRY_POLICY_TYPES = ("EXPONENTIAL", "CUSTOMIZED")
# fmt: off
RETRY_DELAYS_MS = (
    1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000,
    540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
)
# fmt: on


class ExponentialRetryPolicy(Body):
    initial: I64 = 5_000
    max: I64 = 7_200_000
    multiplier: I64 = 2


class CustomizedRetryPolicy(Body):
    next: list[I64] = field(default_factory=lambda: list(RETRY_DELAYS_MS))


class GroupRetryPolicy(Body):
    type: EnumName = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None

    def __post_init__(self) -> None:
        self.type = enum_name(self.type, RETRY_POLICY_TYPES) or "CUSTOMIZED"


class GroupSubscription(Body):
    """What a group may subscribe to, where that is fixed by its configuration."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: I64 = 0


class SubscriptionGroupConfig(Body):
    group_name: str = ""
    attributes: dict[str, str] = {}
    broker_id: I64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: I32 = 15
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    group_sys_flag: I32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: I32 = 16
    retry_queue_nums: I32 = 1
    subscription_data_set: list[GroupSubscription] | None = None
    which_broker_when_consume_slowly: I64 = 1


class SubscriptionGroupList(Body):
    OBJECTS_MAX: ClassVar[int] = 1_000

    group_config_list: list[SubscriptionGroupConfig] = []


class SubscriptionGroupTable(Body):
    """`forbidden_table`: group to topic to bits."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, I32]] = {}
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class GroupForbidden(Body):
    group: str | None = None
    readable: bool | None = None
    topic: str | None = None
